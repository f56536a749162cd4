"""Plugins that are written to defeat the harness, and do: Python cannot sandbox them. `table` is shown on a page.

`tests/board/test_forgeries.py` runs each and compares it with what an honest learner scores.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from dpbench import Budget, Chunk, Curator, Learner, Planned, Predict, PublicData, Release, Task
from dpbench.harness.prepare import PreparedRun
from dpbench.harness.scoring import TestScorer
from dpbench.privacy.core.randomness import Randomness

CLASSES, CLIP = 10, 10.0
READ_LABELS = (
    "import json; from dpbench_plugins.datasets.sklearn import Digits; "
    "print(json.dumps(Digits().load().test.labels.tolist()))"
)


@dataclass(frozen=True)
class Means(Learner):
    """Classifies by the nearest noisy class mean; one question."""

    name: ClassVar[str] = "means"

    def plan(self, task: Task, budget: Budget) -> Sequence[Planned]:
        return [Release("sums")]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        sums = self.ask(curator).reshape(CLASSES, -1)
        means = sums[:, :-1] / sums[:, -1:].clamp(min=1)
        return lambda x: -torch.cdist(x, means)

    def ask(self, curator: Curator) -> Tensor:
        noisy: Tensor = curator.noisy_sum(self.rows, release="sums", clip=CLIP)
        return noisy

    def rows(self, chunk: Chunk) -> Tensor:
        x = torch.cat([chunk.x, torch.ones(len(chunk.x), 1)], 1)
        return (one_hot(chunk.y, CLASSES)[:, :, None] * x[:, None]).flatten(1)


class SubtractsNoise(Means):
    """Draws the published noise of its run once more, and subtracts it."""

    name: ClassVar[str] = "subtracts-noise"

    def ask(self, curator: Curator) -> Tensor:
        noisy = super().ask(curator)
        run = next(found for found in gc.get_objects() if isinstance(found, PreparedRun) and found.asked == self)
        draws = Randomness.research(run.spec.seeds[0], run.identity).draws("sums", 1)
        steps = 2.0**20
        noise = draws.noise(tuple(noisy.shape), curator.sigma["sums"] * CLIP * steps)
        return noisy - torch.from_numpy(noise / steps).float()


class ReadsMemory(Means):
    """Finds the scorer among all objects of the process, and predicts its labels."""

    name: ClassVar[str] = "reads-memory"

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        def predict(x: Tensor) -> Tensor:
            scorer = next(found for found in gc.get_objects() if isinstance(found, TestScorer))
            return one_hot(torch.from_numpy(scorer.y[: len(x)]), CLASSES).float()

        return predict


class ReadsByAProgram(Means):
    """Has another program open the files of the dataset, and predicts the labels that it prints."""

    name: ClassVar[str] = "reads-by-a-program"

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        def predict(x: Tensor) -> Tensor:
            printed = subprocess.run([sys.executable, "-c", READ_LABELS], capture_output=True, text=True, check=True)
            return one_hot(torch.tensor(json.loads(printed.stdout)[: len(x)]), CLASSES).float()

        return predict


@dataclass(frozen=True)
class HostilePlugin:
    """What such a plugin does, and what protects besides a review of its source."""

    learner: type[Means]
    what: str
    protects: str


HOSTILE: tuple[HostilePlugin, ...] = (
    HostilePlugin(
        ReadsMemory, "The predictor searches the memory of the process for the test labels, and returns them.",
        "a predictor has no use for Python's garbage collector",
    ),
    HostilePlugin(
        ReadsByAProgram, "The predictor starts a program that reads the labels from the dataset's files.",
        "images and labels that nobody has published",
    ),
    HostilePlugin(
        SubtractsNoise, "The learner draws the noise of its run again, from published values, and subtracts it.",
        "secure noise, which nobody can draw again; no choice of seeds",
    ),
)  # fmt: skip


def table() -> str:
    """Return the table of the page."""
    rows = [f"| {plugin.what} | {plugin.protects} |" for plugin in HOSTILE]
    return "\n".join(
        ["| what the plugin does | what protects, besides reading its source before it runs here |", "|---|---|", *rows]
    )
