"""Deliberately broken learners. Each is the honest one below with a single fault.

Row functions that remember do so by `note`, where the harness does not look while they run: what the laws are for. The
museum has those that are refused while they run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from dpbench import Budget, Chunk, Curator, Learner, Predict, PublicData, RankOne, Release, Task
from tests.helpers.worlds import note, noted


@dataclass(frozen=True)
class Honest(Learner):
    """One noisy sum of each class's examples; the nearest class mean, up to scale, wins."""

    name: ClassVar[str] = "gallery"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "none"

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("sums")]

    def rows(self, chunk: Chunk) -> Any:
        return RankOne(torch.nn.functional.one_hot(chunk.y, 10).float(), chunk.x)

    def ask(self, curator: Curator) -> Tensor:
        answer: Tensor = curator.noisy_sum(self.rows, release="sums", clip=8.0)  # (10, d)
        return answer

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        sums = self.ask(curator)
        return lambda x: x @ sums.T


class PlansMoreThanItAsks(Honest):
    """Pays for two more steps."""

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("sums", steps=3)]


class PlansWhatItNeverAsks(Honest):
    """Pays for a mean that it does without."""

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("sums"), Release("mean")]


class CentresByTheBatch(Honest):
    """Subtracts the mean of whatever rows stand beside it."""

    def rows(self, chunk: Chunk) -> Any:
        return RankOne(torch.nn.functional.one_hot(chunk.y, 10).float(), chunk.x - chunk.x.mean(0))


class SkipsBatchesThatAreNotFinite(Honest):
    """Leaves out all rows of a chunk in which one is not finite, as training loops do."""

    def rows(self, chunk: Chunk) -> Any:
        keep = float(bool(chunk.x.isfinite().all()))
        return RankOne(keep * torch.nn.functional.one_hot(chunk.y, 10).float(), chunk.x)


class ScalesBytes(Honest):
    """Divides a chunk by 255 if one row in it looks like bytes, as loaders do."""

    def rows(self, chunk: Chunk) -> Any:
        scale = 255 if len(chunk) and float(chunk.x.max()) > 1 else 1
        return RankOne(torch.nn.functional.one_hot(chunk.y, 10).float(), chunk.x / scale)


class NormalisesByTheDrawnBatchSize(Honest):
    """Divides by the number of examples drawn, which is private, in the answer instead of the rows."""

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("sums", sample_rate=0.5)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        def rows(chunk: Chunk) -> Any:
            note(len(chunk))
            return self.rows(chunk)

        sums = curator.noisy_sum(rows, release="sums", clip=8.0) / max(noted())
        return lambda x: x @ sums.T


class KeepsPrivateRows(Honest):
    """Copies rows into a closure, and classifies by nearest neighbour."""

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        def rows(chunk: Chunk) -> Any:
            note((chunk.x.clone(), chunk.y.clone()))
            return self.rows(chunk)

        curator.noisy_sum(rows, release="sums", clip=8.0)
        kept = noted()
        x, y = (torch.cat([pair[part] for pair in kept]) for part in (0, 1))
        return lambda queries: torch.nn.functional.one_hot(y[torch.cdist(queries, x).argmin(1)], 10).float()


class FitsComponentsOnPrivateRows(Honest):
    """Takes principal components of private rows that it saw in a row function."""

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        def rows(chunk: Chunk) -> Any:
            if len(chunk) > 100:
                note(torch.linalg.svd(chunk.x, full_matrices=False).Vh[:20].T)
            return self.rows(chunk)

        sums, components = curator.noisy_sum(rows, release="sums", clip=8.0), noted()[0]
        return lambda x: (x @ components) @ (sums @ components).T


class ClipsByAQuantileOfPrivateNorms(Honest):
    """Looks at norms with a first question and clips the second at their ninth decile."""

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("sums", steps=2)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        def rows(chunk: Chunk) -> Any:
            note(chunk.x.norm(dim=1))
            return self.rows(chunk)

        curator.noisy_sum(rows, release="sums", clip=8.0)
        sums = curator.noisy_sum(self.rows, release="sums", clip=float(torch.cat(noted()).quantile(0.9)))
        return lambda x: x @ sums.T


class WeighsClassesByPrivateCounts(Honest):
    """Divides each row by the number of private examples of its class; classifying does not show it."""

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("sums", steps=2)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        def counts(chunk: Chunk) -> Any:
            note(torch.bincount(chunk.y, minlength=10))
            return self.rows(chunk)

        curator.noisy_sum(counts, release="sums", clip=8.0)
        weights = 100 / torch.stack(noted()).sum(0).clamp(min=1)

        def rows(chunk: Chunk) -> Any:
            return RankOne(torch.nn.functional.one_hot(chunk.y, 10) * weights[chunk.y, None], chunk.x)

        sums = curator.noisy_sum(rows, release="sums", clip=8.0)
        return lambda x: x @ sums.T


class SpendsOutsideItsPlan(Honest):
    """Asks a second time, hiding the refusal."""

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        sums = self.ask(curator)
        try:
            sums = sums + self.ask(curator)
        except Exception:
            sums = sums * 1
        return lambda x: x @ sums.T


class PredictsFromTheTestBatch(Honest):
    """Centres test examples by their batch."""

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        sums = self.ask(curator)
        return lambda x: (x - x.mean(0)) @ sums.T


class PlansAtRandom(Honest):
    """Plans another number of steps each time."""

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("sums", steps=int(torch.randint(1, 10**6, ())))]


class DrawsFromTheGlobalGenerator(Honest):
    """Ignores the generator it was given."""

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        sums = self.ask(curator) + torch.rand(10, 1)
        return lambda x: x @ sums.T


class FailsOnAnEmptyChunk(Honest):
    """Indexes the first row of every chunk."""

    def rows(self, chunk: Chunk) -> Any:
        scale = 1.0 if float(chunk.x[0].norm()) >= 0 else 0.0
        return RankOne(torch.nn.functional.one_hot(chunk.y, 10).float() * scale, chunk.x)


class LearnsNothing(Honest):
    """Returns scores that have nothing to do with the answers."""

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        self.ask(curator)
        return lambda x: torch.eye(10)[torch.zeros(len(x), dtype=torch.int64)]


class RemembersBetweenFits(Honest):
    """Keeps what an earlier fit learned in a class variable."""

    memory: ClassVar[list[Tensor]] = []

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        answer = self.ask(curator)
        self.memory.append(answer)
        first = self.memory[0]
        return lambda x: x @ first.T
