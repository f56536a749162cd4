"""Honest learners; each exhibit changes one detail of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dpbench import Blocks, Budget, Chunk, Curator, Learner, Predict, PublicData, RankOne, Release, Task

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class HonestLearner(Learner):
    """Softmax regression by twelve full-batch steps of DP-SGD (Abadi et al. 2016, algorithm 1)."""

    name: ClassVar[str] = "exhibit"

    steps: int = 12
    clip: float = 1.0
    learning_rate: float = 2.0

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("gradient", self.steps)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch

        features = torch.Size(curator.task.example_shape).numel()
        head = torch.zeros(curator.task.classes, features)
        for step in range(self.steps):
            head -= self.learning_rate * self.noisy_gradient(curator, head, step) / curator.task.size
        return lambda x: x.flatten(1) @ head.T

    def noisy_gradient(self, curator: Curator, head: Tensor, step: int) -> Tensor:
        answer: Tensor = curator.noisy_sum(
            lambda chunk: self.rows(chunk, head, step), release="gradient", clip=self.clip, chunk_size=300
        )
        return answer

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        return gradients(chunk, head)


@dataclass(frozen=True)
class PoissonLearner(HonestLearner):
    """The honest learner, with each step on a Poisson sample."""

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("gradient", self.steps, sample_rate=0.3)]


@dataclass(frozen=True)
class TwoBlockLearner(HonestLearner):
    """The honest learner with each gradient split into two halves that have their own clips (per-layer clipping)."""

    def noisy_gradient(self, curator: Curator, head: Tensor, step: int) -> Tensor:
        half = len(head) // 2

        def rows(chunk: Chunk) -> Blocks:
            found = gradients(chunk, head)
            return Blocks((RankOne(found.left[:, :half], found.right), RankOne(found.left[:, half:], found.right)))

        import torch

        return torch.cat(curator.noisy_sum(rows, release="gradient", clip=(self.clip, self.clip)))


def gradients(chunk: Chunk, head: Tensor, weights: Tensor | float = 1.0) -> RankOne:
    """Return the gradient of each row's cross-entropy, times its weight."""
    import torch

    x = chunk.x.float().flatten(1)  # (c, d)
    residual = (x @ head.T).softmax(1) - torch.nn.functional.one_hot(chunk.y, len(head))
    return RankOne(residual * weights, x)
