"""A step of network training against Opacus' own engine: the same network, examples and physical batches."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dpbench_plugins.learners.networks.gradients import ParameterLayout, PerExampleGradients
from dpbench_plugins.learners.networks.training import NetworkTrainer, Phase
from dpbench_plugins.networks.models import Network, build_network, draw_parameters
from dpbench_plugins.networks.views import Augmentation, normalise_pixels
from torch import Tensor
from torch.nn.functional import cross_entropy

from dpbench import Release, Task
from dpbench.privacy.binding import bind
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.curator import make_learner_curator
from tests.benchmarks.conftest import Ratios

CPU = torch.device("cpu")


class World:
    """One batch of private images, and a network to train on them; small when benchmarks are switched off."""

    def __init__(
        self, ratios: Ratios, network: str, device: torch.device = CPU, batch: int = 16, physical: int = 8
    ) -> None:
        self.device = device
        self.shape, self.batch, self.physical = ((3, 32, 32), batch, physical) if ratios.enabled else ((3, 8, 8), 4, 2)
        self.name = network if ratios.enabled or network == "resnet-9" else "wrn-10-1"
        self.network = build_network(self.name, self.shape, 10)
        self.start = draw_parameters(self.network, torch.Generator().manual_seed(0))
        draw = torch.Generator().manual_seed(1)
        self.x, self.y = torch.rand(self.batch, *self.shape, generator=draw), torch.arange(self.batch) % 10

    def ours(self, views: int) -> Callable[[], object]:
        """Return a step with the curator. It keeps its curator: rows are checked alone at steps 1, 2, 4, 8 ... only."""
        plan = [Release("gradient", 10_000)]
        task = Task(self.shape, 10, self.batch, self.device)
        rows = PrivateRows(self.x, self.y, torch.arange(self.batch))
        curator = make_learner_curator(bind(rows, task, plan, 1.0, Randomness.research(0, "a benchmark")))
        layout = ParameterLayout(self.network)
        theta = layout.flatten_parameters(self.start).to(self.device)
        training = NetworkTrainer(PerExampleGradients(layout, Augmentation(views)), 0.0, 1.0, 0.9999, self.physical)
        return lambda: training.run(curator, theta, [Phase("all", 0.1, [Release("gradient", 1)])])

    def opacus(self) -> Callable[[], object]:
        """Return a step with Opacus' PrivacyEngine, its hooks, its optimiser and its batch memory manager."""
        from opacus import PrivacyEngine
        from opacus.utils.batch_memory_manager import BatchMemoryManager
        from torch.utils.data import DataLoader, TensorDataset

        module: Any = _with_weights(self.network, self.start).to(self.device)
        images, labels = normalise_pixels(self.x).to(self.device), self.y.to(self.device)
        data = DataLoader(TensorDataset(images, labels), batch_size=self.batch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module, optimiser, loader = PrivacyEngine().make_private(
                module=module, optimizer=torch.optim.SGD(module.parameters(), 0.1), data_loader=data,
                noise_multiplier=1.0, max_grad_norm=1.0, poisson_sampling=False,
            )  # fmt: skip

        def step() -> None:
            with (
                warnings.catch_warnings(),
                BatchMemoryManager(
                    data_loader=loader, max_physical_batch_size=self.physical, optimizer=optimiser
                ) as batches,
            ):
                warnings.simplefilter("ignore")
                for x, y in batches:
                    optimiser.zero_grad(set_to_none=True)
                    torch.autograd.backward(cross_entropy(module(x), y))
                    optimiser.step()

        return step


def _with_weights(network: Network, start: dict[str, Tensor]) -> Network:
    network = copy.deepcopy(network)
    network.load_state_dict(start, assign=True)
    return network.requires_grad_()


# Standardised convolutions are a module of its own, which Opacus differentiates by functorch; plain ones are its best.
@pytest.mark.parametrize("network", ["wrn-16-4", "resnet-9"])
def test_opacus_engine_against_a_step(benchmark: Any, ratios: Ratios, network: str) -> None:
    world = World(ratios, network)
    ours = world.ours(0)
    benchmark.pedantic(ours, rounds=1)
    what = f"Opacus' engine / a step: {world.name}, {world.batch} of {world.shape}, {world.physical} at once"
    benchmark.extra_info["ratio"] = ratios.record(what, world.opacus(), ours, ">= 0.9", (1, 1))


def test_views_of_one_example_against_as_many_examples(benchmark: Any, ratios: Ratios) -> None:
    world = World(ratios, "wrn-16-4")
    ours = world.ours(4)
    benchmark.pedantic(ours, rounds=1)
    what = f"4 views of an example / one: {world.name}, {world.batch} of {world.shape}, {world.physical} at once"
    benchmark.extra_info["ratio"] = ratios.record(what, ours, world.ours(0), "<= 4", (1, 1))
