"""Honest learners with choices and with teachers' votes, which run on the museum's broken cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from dpbench import Budget, Choice, Chunk, Curator, Learner, Planned, Predict, PublicData, Release, Task, folded

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class PrototypeLearner(Learner):
    """Clusters public examples; private rows vote on each cluster's class, in one choice with a part per cluster."""

    name: ClassVar[str] = "exhibit"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "unlabelled"

    clusters: int = 30

    def plan(self, task: Task, budget: Budget) -> Sequence[Planned]:
        return [Choice("classes", candidates=task.classes, parts=self.clusters)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch

        centres, classes = cluster_centres(public.x.flatten(1), self.clusters, generator), curator.task.classes

        def votes(chunk: Chunk) -> Tensor:
            return classes * find_nearest_centres(chunk.x.flatten(1), centres) + chunk.y

        labels = curator.noisy_choices(votes, release="classes", chunk_size=300)
        return lambda x: torch.nn.functional.one_hot(
            labels[find_nearest_centres(x.flatten(1), centres)], classes
        ).float()


@dataclass(frozen=True)
class StumpLearner(PrototypeLearner):
    """Adds a stump to `PrototypeLearner`: a second choice finds the pixel that best separates class 0."""

    relative_noise: float = 0.5

    def plan(self, task: Task, budget: Budget) -> Sequence[Planned]:
        pixels = task.example_shape[0]
        return [*super().plan(task, budget), Choice("pixel", candidates=pixels, relative_noise=self.relative_noise)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        predict, middle = super().fit(curator, public, generator), public.x.mean(0)

        def losses(chunk: Chunk) -> Tensor:
            return ((chunk.x > middle) != (chunk.y == 0).unsqueeze(1)).float()

        pixel = curator.noisy_choice(losses, release="pixel", chunk_size=300)

        def predict_scores(x: Tensor) -> Tensor:
            found = predict(x)
            found[:, 0] += 0.1 * (x[:, pixel] > middle[pixel])
            return found

        return predict_scores


@dataclass(frozen=True)
class NearestExampleLearner(Learner):
    """Chooses for each class a public example near the class's private examples (Wahdany et al. 2024)."""

    name: ClassVar[str] = "exhibit"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "unlabelled"

    def plan(self, task: Task, budget: Budget) -> Sequence[Planned]:
        return [Choice("examples", candidates=task.public, parts=task.classes)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        candidates = public.x.flatten(1)
        farthest = compute_squared_distances(candidates, candidates).max()

        def losses(chunk: Chunk) -> Tensor:
            return compute_squared_distances(chunk.x.flatten(1), candidates) / farthest

        chosen = curator.noisy_choices(losses, part=lambda chunk: chunk.y, release="examples", chunk_size=300)
        return lambda x: -compute_squared_distances(x.flatten(1), candidates[chosen])


@dataclass(frozen=True)
class CommitteeLearner(Learner):
    """Labels public examples by votes of teachers, each a nearest-neighbour classifier (Papernot et al. 2017)."""

    name: ClassVar[str] = "exhibit"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "unlabelled"

    shards: int = 60
    queries: int = 40

    def plan(self, task: Task, budget: Budget) -> Sequence[Planned]:
        return [Release("votes")]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch

        centres, classes = cluster_centres(public.x.flatten(1), self.queries, generator), curator.task.classes

        def answer_queries(shard: Chunk, queries: Tensor) -> Tensor:
            return shard.y[find_nearest_centres(queries, shard.x.flatten(1))]

        counts = curator.noisy_votes(answer_queries, centres, release="votes", shards=self.shards)
        labels = counts.argmax(1)
        return lambda x: torch.nn.functional.one_hot(
            labels[find_nearest_centres(x.flatten(1), centres)], classes
        ).float()


def find_nearest_centres(rows: Tensor, centres: Tensor) -> Tensor:
    """Return the index of the centre nearest to each row."""
    return compute_squared_distances(rows, centres).argmin(1)


def compute_squared_distances(rows: Tensor, centres: Tensor) -> Tensor:
    """Return squared distances (c, m); the bits of each row's distances depend on that row alone."""
    return folded((rows.unsqueeze(1) - centres).square(), 2)


def cluster_centres(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return the cluster means of public rows, by five rounds of k-means."""
    import torch

    centres = rows[torch.randperm(len(rows), generator=generator)[:count]].clone()
    for _ in range(5):
        label = find_nearest_centres(rows, centres)
        for at in set(label.tolist()):
            centres[at] = rows[label == at].mean(0)
    return centres
