"""Learners that ask for access which dpbench does not offer, so the published bug cannot be written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpbench import Budget, Curator, Predict, PublicData, Release, Task
from dpbench_lab.museum.exhibits.honest_learners import HonestLearner, gradients

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class ShuffledBatches(HonestLearner):
    """Plans epochs of shuffled batches, to be accounted as Poisson samples.

    Source: the code of GEP (Yu et al. 2021), of AdaDPS (Li et al. 2022) and of many later papers. Over several epochs,
    shuffled batches can leak substantially more (Chua et al. 2024, 2403.17673 and 2411.04205), and no bound
    close to that of Poisson sampling is known.
    """

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("gradient", self.steps, sample_rate=1 / self.steps, sampler="shuffle")]  # type: ignore[call-arg]


@dataclass(frozen=True)
class WeightedSampler(HonestLearner):
    """Samples rare classes more often, with a rate for each example.

    Source: `WeightedRandomSampler` passed to Opacus, which silently replaces it (issue 600) and accounts for another
    rate (issue 813).
    """

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        rates: Any = [0.1 if place % 10 else 0.9 for place in range(task.size)]
        return [Release("gradient", self.steps, sample_rate=rates)]


@dataclass(frozen=True)
class SelfSeededNoise(HonestLearner):
    """Uses its own noise generator, seeded again at every step: the difference of two answers has no noise.

    Source: the reference code of DP-FC (Mehta et al. 2023) closes over one key inside `jit`. Other libraries also let
    users pass seeds for the noise (diffprivlib, issue 31).
    """

    def noisy_gradient(self, curator: Curator, head: Tensor, step: int) -> Tensor:
        import torch

        noise: Any = {"generator": torch.Generator().manual_seed(0)}
        rows = lambda chunk: gradients(chunk, head)
        answer: Tensor = curator.noisy_sum(rows, release="gradient", clip=self.clip, **noise)
        return answer


@dataclass(frozen=True)
class NoiselessSums(HonestLearner):
    """Requests sums without noise, to compare them with the noisy ones.

    Source: the PATE of DPMLBench (Wei et al. 2023) prints vote counts before noise.
    """

    def noisy_gradient(self, curator: Curator, head: Tensor, step: int) -> Tensor:
        silence: Any = {"sigma": 0.0}
        rows = lambda chunk: gradients(chunk, head)
        answer: Tensor = curator.noisy_sum(rows, release="gradient", clip=self.clip, **silence)
        return answer


@dataclass(frozen=True)
class BestEpochByTestAccuracy(HonestLearner):
    """Scores every step on the test split and keeps the best one.

    Source: the code of DP-RandP (Tang et al. 2023) prints the "best test accuracy" over epochs, the code of GEP saves
    it, and DP-RAFT ranks runs by it.
    """

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch

        heads = [torch.zeros(curator.task.classes, *curator.task.example_shape)]
        for step in range(self.steps):
            heads.append(heads[-1] - self.noisy_gradient(curator, heads[-1], step) / curator.task.size)
        test: Any = curator.task.test  # type: ignore[attr-defined]
        best = max(heads, key=lambda head: float(((test.x @ head.T).argmax(1) == test.y).float().mean()))
        return lambda x: x @ best.T


@dataclass(frozen=True)
class DirectAccessToRows(HonestLearner):
    """Trains directly on private rows, and asks the curator only for epsilon.

    Source: made for the museum: what a non-private baseline does if its privacy flag is forgotten.
    """

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        rows: Any = curator.rows  # type: ignore[attr-defined]
        return lambda x: x.flatten(1) @ rows.x.flatten(1)[: curator.task.classes].T
