"""Noisy class sums, whitened with public data: one release, no training and nothing to tune but k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dpbench import (
    Budget,
    Chunk,
    Curator,
    Learner,
    Predict,
    PublicData,
    RankOne,
    Release,
    SpecError,
    Task,
    exact_linear,
    hookimpl,
    standardisation,
    unit_norm,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class ClassMeans(Learner):
    """Nearest class mean in publicly whitened space, from one noisy sum per class.

    Linear discriminant analysis whose covariance is public and whose means are private: features are standardised,
    projected on the leading `k` public principal components, divided by the public deviations along them, and scaled to
    unit norm, so each example's contribution to its class has norm exactly 1 and clipping never acts. The inner product
    with the noisy sums classifies. The whole budget goes into one release, so the noise on each sum has std
    sigma(epsilon), not sigma times the root of the steps: it is at its best at tiny epsilon, and for few examples.
    """

    name: ClassVar[str] = "class-means"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "unlabelled"
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {"k": (10, 20, 40, 80, 120, 200)}

    k: int = 40

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """One release over all examples."""
        return [Release("class-sums")]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Ask once for the sum of (one-hot label) x (whitened features)."""
        from torch.nn.functional import one_hot

        whiten, classes = self._whitening(public.x.flatten(1)), curator.task.classes

        def rows(chunk: Chunk) -> RankOne:
            return RankOne(one_hot(chunk.y, classes).float(), chunk.rows)

        sums = curator.map(whiten).noisy_sum(rows, release="class-sums", clip=1.0)  # (classes, k)
        return lambda x: whiten(x) @ sums.T

    def _whitening(self, x: Tensor) -> Any:  # (m, d) -> the map (c, *shape) -> (c, k) of unit rows
        import torch

        examples, features = x.shape
        if not 1 <= self.k <= min(examples - 1, features):
            raise SpecError(
                f"Expected k={self.k} in 1..{min(examples - 1, features)} in learner 'class-means': whitening needs "
                f"more public examples ({examples}) than components, and no more of those than features ({features}). "
                "Set class-means:k=..."
            )
        scale = standardisation(x)
        scaled = scale(x).double()
        values, vectors = torch.linalg.eigh(scaled.T @ scaled / examples)
        deviations = values[-self.k :].clamp(min=1e-12 * float(values[-1])).sqrt()
        directions = (vectors[:, -self.k :] / deviations).T.float()  # (k, d)
        return lambda rows: unit_norm(exact_linear(scale(rows), directions))


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [ClassMeans]
