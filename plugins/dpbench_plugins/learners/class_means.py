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
    PrincipalComponents,
    PublicData,
    RankOne,
    Release,
    SpecError,
    Task,
    calibrated,
    components,
    exact_linear,
    hookimpl,
    require_setting,
    unit_norm,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

BALANCED = "balanced_accuracy"


@dataclass(frozen=True)
class ClassMeans(Learner):
    """Nearest class mean in publicly whitened space, from one noisy sum per class.

    Linear discriminant analysis whose covariance is public and whose means are private: rows are brought to unit norm,
    centred by the public mean, projected on the leading `k` public principal components, divided by the public
    deviations along them, and brought to unit norm again. An example contributes the outer product of its one-hot
    label, centred (less 1 / classes), and its whitened row, whose norm is sqrt(1 - 1 / classes), which is the clip: it
    acts on rounding alone. Centring leaves the classifier as it is, and takes 5% of the noise for ten classes, 29% for
    two. The inner product with the noisy sums classifies: sums and not means, so that a class of more examples counts
    for more. The whole budget goes into one release, so the noise on each sum has std sigma(epsilon), not sigma times
    the root of the steps: it is at its best at tiny epsilon, and for few examples. `k` follows the budget
    (`components`).

    Where the protocol compares by balanced accuracy, sums are brought to one length, so that all classes count alike:
    post-processing that asks for no counts. There are half as many components then, as rare classes carry fewer.
    Chosen on training images alone: HAM10000 (5,750 private, epsilon 0.3 to 2) and CIFAR-10, 20 to 1 (epsilon 0.1 to
    1), held-out images; from 58.5 to 65.4 at epsilon 0.3 on the second, from 37.0 to 40.6 at epsilon 0.7 on the first.

    Sums times k classes / n are the logits of that analysis for classes of n / classes examples each, as whitened rows
    of norm 1 have variance 1 / k in every direction.
    """

    name: ClassVar[str] = "class-means"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "unlabelled"
    logits: ClassVar[bool] = True
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {"k": (10, 20, 40, 80, 120, 200)}

    k: int | None = None

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return as many components as the budget carries, and at most 6 sqrt(m): more of m whitened rows mislead."""
        share = 0.5 if task.metric == BALANCED else 1.0
        return {"k": max(1, min(round(share * components(task, budget)), round(6 * task.public**0.5)))}

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """One release over all examples."""
        return [Release("class-sums")]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Ask once for the sum of (centred one-hot label) x (whitened features)."""
        from torch.nn.functional import one_hot

        whiten, classes = self._whitening(public.x), curator.task.classes

        def rows(chunk: Chunk) -> RankOne:
            return RankOne(one_hot(chunk.y, classes) - 1 / classes, chunk.rows)

        clip, k = (1 - 1 / classes) ** 0.5, require_setting(self.k)
        sums = curator.map(whiten).noisy_sum(rows, release="class-sums", clip=clip)  # (classes, k)
        if curator.task.metric == BALANCED:
            lengths = sums.norm(dim=1, keepdim=True).clamp(min=1e-12)
            sums = sums * (lengths.mean() / lengths)
        scale = k * classes / curator.task.size
        head, noise = scale * sums, (scale * clip * curator.sigma["class-sums"]) ** 2
        return calibrated(lambda x: whiten(x) @ head.T, public, lambda _: noise)

    def _whitening(self, public: Tensor) -> Any:  # (m, *shape) -> the map (c, *shape) -> (c, k) of unit rows
        units, k = unit_norm(public).double(), require_setting(self.k)
        examples, features = units.shape
        if not 1 <= k <= min(examples - 1, features):
            raise SpecError(
                f"Expected k={k} in 1..{min(examples - 1, features)} in learner 'class-means': whitening needs "
                f"more public examples ({examples}) than components, and no more of those than features ({features}). "
                "Set class-means:k=..."
            )
        mean = units.mean(0)
        found = PrincipalComponents.of(units - mean, examples)
        deviations = found.values[-k:].clamp(min=1e-12 * float(found.values[-1])).sqrt()
        directions = (found.leading(k) / deviations).T  # (k, d)
        weight, shift = directions.float(), (-directions @ mean).float()
        return lambda rows: unit_norm(exact_linear(unit_norm(rows), weight, shift))


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [ClassMeans]
