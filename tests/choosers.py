"""Small learners that choose and that have teachers vote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from dpbench import Budget, Choice, Chunk, Curator, Learner, Planned, Predict, PublicData, Release, Task

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Prototypes(Learner):
    """Clusters public features, and lets private rows vote on the class of each cluster: one choice, by parts."""

    name: ClassVar[str] = "prototypes"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "unlabelled"

    clusters: int = 30

    def plan(self, task: Task, budget: Budget) -> Sequence[Planned]:
        return [Choice("classes", candidates=task.classes, parts=self.clusters)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch

        centres = centres_of(public.x.flatten(1), self.clusters, generator)
        classes = curator.task.classes

        def votes(chunk: Chunk) -> Tensor:
            return classes * nearest(chunk.x.flatten(1), centres) + chunk.y

        labels = curator.noisy_choices(votes, release="classes")
        return lambda x: torch.nn.functional.one_hot(labels[nearest(x.flatten(1), centres)], classes).float()


@dataclass(frozen=True)
class OneOfTwo(Prototypes):
    """Labels the first half of the clusters by votes, and lets a choice tell which threshold parts the rest."""

    name: ClassVar[str] = "one-of-two"

    def plan(self, task: Task, budget: Budget) -> Sequence[Planned]:
        return [*super().plan(task, budget), Choice("best", candidates=8, relative_noise=2.0), Release("mean")]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch

        predict = super().fit(curator, public, generator)
        cuts = torch.linspace(-1, 1, 7)

        def losses(chunk: Chunk) -> Tensor:
            return ((chunk.x.flatten(1)[:, :1] > cuts) != (chunk.y > 4).unsqueeze(1)).float()

        best = curator.noisy_choice(losses, release="best")
        curator.noisy_sum(lambda chunk: chunk.x.flatten(1), release="mean", clip=1.0)
        return lambda x: predict(x) + 0.01 * (x.flatten(1)[:, :1] > cuts[best])


@dataclass(frozen=True)
class Committee(Learner):
    """Labels public examples by the votes of nearest class means, and predicts by the nearest of them."""

    name: ClassVar[str] = "committee"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "unlabelled"

    shards: int = 30
    queries: int = 100
    confident: bool = False

    def plan(self, task: Task, budget: Budget) -> Sequence[Planned]:
        return [Release("votes"), *([Release("largest", relative_noise=2.0)] if self.confident else [])]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch

        queries, classes = public.x[: self.queries].flatten(1), curator.task.classes

        def teacher(shard: Chunk, queries: Tensor) -> Tensor:
            return shard.y[nearest(queries, shard.x.flatten(1))]

        counts = curator.noisy_votes(
            teacher, queries, release="votes", shards=self.shards,
            confident="largest" if self.confident else None, threshold=self.shards / 4,
        )  # fmt: skip
        kept = ~counts.isnan().any(1)
        if not bool(kept.any()):
            return lambda x: torch.zeros(len(x), classes)
        labels, seen = counts[kept].argmax(1), queries[kept]
        return lambda x: torch.nn.functional.one_hot(labels[nearest(x.flatten(1), seen)], classes).float()


def nearest(rows: Tensor, centres: Tensor) -> Tensor:
    """Return the index of the nearest centre of each row, by sums one step at a time: a row's bits are its own."""
    import torch

    best, label = None, None
    for at, centre in enumerate(centres):
        apart = (rows - centre).square_().sum(1, dtype=torch.float64)
        best, label = (
            (apart, torch.zeros_like(apart, dtype=torch.int64))
            if best is None or label is None
            else (torch.minimum(best, apart), torch.where(apart < best, at, label))
        )
    assert label is not None
    return label


def centres_of(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return some of the rows, moved to the means of those that are nearest to them."""
    import torch

    centres = rows[torch.randperm(len(rows), generator=generator)[:count]].clone()
    for _ in range(5):
        label = nearest(rows, centres)
        for at in set(label.tolist()):
            centres[at] = rows[label == at].mean(0)
    return centres
