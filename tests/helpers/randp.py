"""A pre-training of seconds, for tests: the smallest network on images of 16x16."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from dpbench_plugins.extractors.randp.extractor import RandPWRN
from dpbench_plugins.extractors.randp.pretraining import Pretrainer, pretrain
from dpbench_plugins.extractors.randp.recipe import PretrainingRecipe
from torch import Tensor

CPU = torch.device("cpu")
Told = list[tuple[str, float]]


@dataclass(frozen=True)
class Tiny(RandPWRN):
    """The extractor with the smallest network."""

    name = "randp-tiny"
    dimension = 48
    network = "tiny"
    size = 16


def recipe(**changes: Any) -> PretrainingRecipe:
    """Return a recipe of a few small steps."""
    few: dict[str, Any] = {
        "steps": 6, "batch": 8, "canvas": 16, "queue": 12, "probe": "none", "learning_rate": 0.05,
    }  # fmt: skip
    return PretrainingRecipe(**{**few, **changes})


def trained(
    out: Path, *, resume: bool = False, report: Callable[[str, float], None] = lambda _, __: None, **changes: Any
) -> Path:
    """Pre-train `Tiny`'s network into `out` and return it."""
    training = Pretrainer(Tiny.network, Tiny.size, recipe(**changes), CPU)
    pretrain(training, out, resume, report, lambda _: 0.5)
    return out


def tensors(file: Path) -> dict[str, Tensor]:
    """Return the tensors of a file."""
    from safetensors.torch import load_file

    return load_file(file)
