"""The learner that every exhibit changes in one thing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from dpbench import Budget, Chunk, Curator, Learner, Predict, PublicData, RankOne, Release, Task


@dataclass(frozen=True)
class Honest(Learner):
    """Softmax regression by twelve full-batch steps of DP-SGD (Abadi et al. 2016, algorithm 1)."""

    name: ClassVar[str] = "exhibit"

    steps: int = 12
    clip: float = 1.0
    learning_rate: float = 2.0

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("gradient", self.steps)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
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


def gradients(chunk: Chunk, head: Tensor, weights: Tensor | float = 1.0) -> RankOne:
    """Return the gradient of each row's cross-entropy, times its weight."""
    x = chunk.x.float().flatten(1)  # (c, d)
    residual = (x @ head.T).softmax(1) - torch.nn.functional.one_hot(chunk.y, len(head))
    return RankOne(residual * weights, x)
