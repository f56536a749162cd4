"""Images from random processes against plain noise, and steps of pre-training against the network's own work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from dpbench_plugins.extractors.random_images.generators import GENERATORS, make_generator
from dpbench_plugins.extractors.randp.losses import align_uniform_loss
from dpbench_plugins.extractors.randp.pretraining import Pretrainer
from dpbench_plugins.extractors.randp.recipe import PretrainingRecipe

from tests.benchmarks.conftest import Ratios

CPU = torch.device("cpu")


def _noise(count: int, size: int) -> Callable[[], object]:
    """Return what no generator can avoid: one normal number a pixel and colour."""
    draws = torch.Generator().manual_seed(0)
    return lambda: torch.randn(count, 3, size, size, generator=draws)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("stylegan-oriented", "<= 250"),
        ("stylegan-high-freq", "<= 250"),
        ("stylegan-sparse", "<= 250"),
        ("dead-leaves", "<= 350"),
        ("statistical", "<= 1000"),
    ],
)
def test_images_against_plain_noise(benchmark: Any, ratios: Ratios, name: str, target: str) -> None:
    count, size = (64, 64) if ratios.enabled else (2, 8)
    make, numbers = make_generator(name, 0, size), torch.arange(count)

    def images() -> object:
        return make(numbers)

    benchmark.pedantic(images, rounds=1, warmup_rounds=1)
    if ratios.enabled:
        benchmark.extra_info["images a second"] = count / benchmark.stats.stats.median
    what = f"{count} images of {name} / as many of plain noise: {size}x{size}"
    benchmark.extra_info["ratio"] = ratios.record(what, images, _noise(count, size), target, (1, 1))


def test_every_generator_is_measured() -> None:
    (parameters,) = test_images_against_plain_noise.pytestmark
    assert {name for name, _ in parameters.args[1]} == set(GENERATORS)


def test_a_step_against_forward_and_backward(benchmark: Any, ratios: Ratios) -> None:
    network, size, canvas, batch = ("wrn-16-4", 32, 64, 16) if ratios.enabled else ("tiny", 8, 8, 4)
    training = Pretrainer(network, size, PretrainingRecipe(batch=batch, canvas=canvas, probe="none"), CPU)
    first, second = training.views(0)

    def alone() -> None:
        training.optimiser.zero_grad()
        x, y = training.encoder(torch.cat([first, second])).chunk(2)
        align_uniform_loss(x, y).backward()  # type: ignore[no-untyped-call]

    benchmark.pedantic(training.step, rounds=1, warmup_rounds=1)
    if ratios.enabled:
        benchmark.extra_info["images a second"] = batch / benchmark.stats.stats.median
    what = f"a step of pre-training / forward and backward: {network}, {batch} images"
    benchmark.extra_info["ratio"] = ratios.record(what, training.step, alone, "<= 1.3", (1, 1))
