"""Learners that want what nobody gives them: there is no way to write what published code did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpbench import Budget, Curator, Predict, PublicData, Release, Task
from dpbench.museum.exhibits.honest_learners import HonestLearner, gradients

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class ShuffledBatches(HonestLearner):
    """Plans epochs of shuffled batches, and would have them accounted as Poisson samples.

    Source: the code of GEP (Yu et al. 2021) and of AdaDPS (Li et al. 2022), and many after them. Over several epochs
    shuffled batches can leak substantially more (Chua et al. 2024, 2403.17673 and 2411.04205); nobody has an upper
    bound to state.
    """

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("gradient", self.steps, sample_rate=1 / self.steps, sampler="shuffle")]  # type: ignore[call-arg]


@dataclass(frozen=True)
class WeightedSampler(HonestLearner):
    """Samples rare classes more often, by a rate for each example.

    Source: `WeightedRandomSampler` handed to Opacus, which replaces it without a word (issue 600) and accounts for
    another rate (issue 813).
    """

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        rates: Any = [0.1 if place % 10 else 0.9 for place in range(task.size)]
        return [Release("gradient", self.steps, sample_rate=rates)]


@dataclass(frozen=True)
class SelfSeededNoise(HonestLearner):
    """Brings a generator for the noise, seeded anew at every step: the difference of two answers has none.

    Source: the reference code of DP-FC (Mehta et al. 2023) closes over one key inside `jit`; seeds for the noise are
    asked for in other libraries too (diffprivlib, issue 31).
    """

    def noisy_gradient(self, curator: Curator, head: Tensor, step: int) -> Tensor:
        import torch

        noise: Any = {"generator": torch.Generator().manual_seed(0)}
        rows = lambda chunk: gradients(chunk, head)
        answer: Tensor = curator.noisy_sum(rows, release="gradient", clip=self.clip, **noise)
        return answer


@dataclass(frozen=True)
class NoiselessSums(HonestLearner):
    """Asks for sums without noise, to look at them beside the noisy ones.

    Source: the PATE of DPMLBench (Wei et al. 2023) prints vote counts before noise.
    """

    def noisy_gradient(self, curator: Curator, head: Tensor, step: int) -> Tensor:
        silence: Any = {"sigma": 0.0}
        rows = lambda chunk: gradients(chunk, head)
        answer: Tensor = curator.noisy_sum(rows, release="gradient", clip=self.clip, **silence)
        return answer


@dataclass(frozen=True)
class BestEpochByTestAccuracy(HonestLearner):
    """Scores every step on the test split, and keeps the best.

    Source: "best test accuracy" over epochs is printed by the code of DP-RandP (Tang et al. 2023) and saved by that of
    GEP; DP-RAFT's runs are ranked by it.
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
    """Trains on private rows as they are, and asks the curator for the epsilon.

    Source: made for the museum: what a baseline without privacy does when its flag for privacy is forgotten.
    """

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        rows: Any = curator.rows  # type: ignore[attr-defined]
        return lambda x: x.flatten(1) @ rows.x.flatten(1)[: curator.task.classes].T
