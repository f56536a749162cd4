"""The training loop: noisy gradients, an optimiser, and the averaged weights that predict."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat

import torch
from torch import Tensor

from dpbench import AdamBC, Curator, DpbenchError, Predict, Release
from dpbench_plugins.learners.networks.gradients import PerExampleGradients, Trains
from dpbench_plugins.learners.networks.optimisers import KalmanFilter, MomentumSGD, Optimiser, OptimiserName
from dpbench_plugins.networks.models import Network
from dpbench_plugins.networks.views import normalise_pixels

BATCH = 256  # images predicted at once
ALLOCATORS = ("out of memory", "allocate memory", "not enough memory")  # what they say


@dataclass(frozen=True)
class Phase:
    """Training steps of one part of a network at one learning rate; `releases` give their noisy gradients, in order."""

    trains: Trains
    learning_rate: float
    releases: Sequence[Release]


@dataclass(frozen=True)
class NetworkTrainer:
    """DP-SGD on a network's parameters.

    Each step subtracts learning rate * direction from the parameters. An optimiser computes the direction from the
    noisy sum of clipped gradients, divided by sample_rate * n: a velocity, the ratio of moments of DP-AdamBC, or the
    output of DiSK's filter. Each phase starts with a new optimiser. The expected batch size is public; the actual size
    of a sample is not.

    Predictions use an exponential moving average of the weights, with decay min(ema, (1 + t) / (10 + t)) after step t.
    It starts at the initial weights and continues through all phases (De et al. 2022, section 3; the code of Tang et
    al. does the same). It depends on noisy answers only. With `ema` 0, the last weights predict.
    """

    gradients: PerExampleGradients
    momentum: float
    clip: float
    ema: float
    chunk_size: int | None
    optimiser: OptimiserName = "momentum"

    def run(self, curator: Curator, theta: Tensor, phases: Sequence[Phase]) -> Tensor:
        """Train from parameters `theta`, in place, and return the averaged parameters (size,) after all phases.

        Raises:
            DpbenchError: a chunk does not fit into memory; the message suggests a smaller one.
        """
        average, step = theta.clone(), 0
        chunk_size = self.chunk_size or self.gradients.count_rows_per_chunk(curator.task.example_shape, theta.device)
        for phase in phases:
            trained = theta[self.gradients.layout.find_trained_start(phase.trains) :]
            optimiser = self._make_optimiser(curator, phase)
            for release in chain.from_iterable(repeat(release, release.steps) for release in phase.releases):
                rows = self.gradients.row_function(self._find_gradient_point(theta, phase, optimiser), phase.trains)
                with _explain_out_of_memory(chunk_size):
                    noisy_gradient = curator.noisy_sum(
                        rows, release=release.name, clip=self.clip, chunk_size=chunk_size
                    )
                direction = optimiser.step(noisy_gradient, 1 / (release.sample_rate * curator.task.size))
                trained.add_(direction, alpha=-phase.learning_rate)
                step += 1
                average.lerp_(theta, 1 - min(self.ema, (1 + step) / (10 + step)))
        return average

    def _make_optimiser(self, curator: Curator, phase: Phase) -> Optimiser:
        if self.optimiser == "momentum":
            return MomentumSGD(self.momentum)
        if self.optimiser == "disk":
            return KalmanFilter()
        noise = max(curator.sigma[release.name] / release.sample_rate for release in phase.releases)
        return AdamBC(noise * self.clip / curator.task.size)

    def _find_gradient_point(self, theta: Tensor, phase: Phase, optimiser: Optimiser) -> Tensor:
        """Return the parameters at which the next gradients are computed: `theta` or, for DiSK, a lookahead point."""
        if not isinstance(optimiser, KalmanFilter):
            return theta
        point = theta.clone()
        point[self.gradients.layout.find_trained_start(phase.trains) :] -= phase.learning_rate * optimiser.lookahead
        return point


def make_predictor(network: Network, named: dict[str, Tensor]) -> Predict:
    """Return the map from images to logits with parameters `named`; it processes a limited number of images at once."""
    network = copy.deepcopy(network)
    network.load_state_dict(named, assign=True)

    def predict(x: Tensor) -> Tensor:
        with torch.no_grad():
            parts = [network(normalise_pixels(part)) for part in torch.split(x, BATCH)]
        return torch.cat(parts)

    return predict


@contextmanager
def _explain_out_of_memory(chunk_size: int) -> Iterator[None]:
    """Turn out-of-memory errors, on a CPU or a GPU, into a `DpbenchError` with advice."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and not any(said in str(error).lower() for said in ALLOCATORS):
            raise
        smaller = f"chunk_size={chunk_size // 2}: only memory depends on it"
        raise DpbenchError(
            f"Gradients of {chunk_size} example(s) at once do not fit into memory. Set "
            f"{smaller if chunk_size > 1 else 'a smaller augmult or network'}."
        ) from error
