"""PATE: teachers on disjoint private shards vote on public examples; a student learns from the noisy plurality."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpbench import (
    Budget,
    Chunk,
    Curator,
    Learner,
    Predict,
    PrincipalComponents,
    PublicData,
    Release,
    SpecError,
    Task,
    exact_linear,
    gaussian_sigma,
    require_setting,
    setting,
    unit_norm,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

GAP = 0.15  # of the teachers, between the first and the second class: measured for nearest means on photographs
SHARD = 20  # examples a teacher has


@dataclass(frozen=True)
class Pate(Learner):
    """Private aggregation of teacher ensembles: GNMax (Papernot et al. 2018), and its confident form.

    Each of `shards` disjoint parts of the private data trains a teacher: a nearest-class-mean classifier in the space
    of the `k` leading public principal components, whitened. The teachers label `queries` public examples: each example
    gets the class with the largest noisy number of votes. The student is a nearest-class-mean classifier of the
    labelled examples. With `threshold` > 0, a share of the teachers, an example is labelled only if its largest number
    of votes, with separate noise, reaches this share.

    Privacy (add or remove one). An example is in one shard, which depends on its content and not on its position, so it
    changes one teacher, and this teacher's vote on each of m queries. Votes move by at most sqrt(2) per query and
    sqrt(2 m) together, in one Gaussian release; the largest counts move by at most 1 per query and sqrt(m) together.
    The student is post-processing. Covered: an epsilon that does not depend on the votes. Not covered: the smaller
    epsilon that clear votes would give (theorem 6 of Papernot et al. 2018); it is a function of private votes, and is
    never stated.

    Differs from the papers: all queries are one release, not one release each; teachers are nearest means instead of
    networks, since shards are small. The noise of a count is sqrt(2 m) sigma(epsilon). It must stay below the gap
    between classes, which grows with the number of teachers. So `auto` takes shards of 20 examples, and `queries` =
    (gap / sigma)^2 / 2 for a gap of 0.15 of the teachers. With one example per teacher, this is private nearest
    neighbours. For C classes, it releases m C counts, and `class-means` releases k C numbers.
    """

    name = "pate"
    public = "unlabelled"
    rule_origin = "the papers; gap between votes: photographs, which is not on record"
    search_space = {"k": (20, 40, 80), "queries": (100, 500, 2000)}

    shards: int | None = setting(None, ge=1, says="teachers")
    queries: int | None = setting(None, ge=1, says="public examples that teachers label")
    k: int = setting(40, ge=1, says="public components kept")
    threshold: float = setting(0.0, ge=0, lt=1, says="share of the teachers that must agree on a label")

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return shards of 20 examples, and a number of queries whose votes stand out from the noise."""
        shards = self.shards or max(1, task.size // SHARD)
        gap = GAP * shards / max(1e-9, gaussian_sigma(budget))
        fewest = min(10 * task.classes, task.public)
        return {"shards": shards, "queries": max(1, fewest, int(min(gap**2 / 2, task.public)))}

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan one release of all votes and, with a threshold, an earlier one of each query's largest count."""
        shards, queries = require_setting(self.shards), require_setting(self.queries)
        if not task.public:
            raise SpecError(f"Learner {self.name!r} needs public examples to vote on. Add --public-fraction.")
        if shards > task.size:
            raise SpecError(
                f"Expected shards={shards:,} <= {task.size:,} private examples in learner {self.name!r}: a teacher "
                "needs one."
            )
        if queries > task.public:
            raise SpecError(
                f"Expected queries={queries:,} <= {task.public:,} public examples in learner {self.name!r}."
            )
        votes = Release("votes")
        return [Release("confident", relative_noise=2.0), votes] if self.threshold else [votes]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Label `queries` random public examples by the teachers' votes, and train the student on them."""
        import torch

        classes, shards = curator.task.classes, require_setting(self.shards)
        whiten = self._make_whitening_map(public.x)
        chosen = torch.randperm(len(public.x), generator=generator)[: require_setting(self.queries)]
        queries = whiten(public.x[chosen])

        def teacher(shard: Chunk, asked: Tensor) -> Tensor:
            return score_by_distance(asked, *compute_class_means(whiten(shard.x), shard.y, classes)).argmax(1)

        counts = curator.noisy_votes(
            teacher, queries, release="votes", shards=shards,
            confident="confident" if self.threshold else None, threshold=self.threshold * shards,
        )  # fmt: skip
        answered = ~counts.isnan().any(1)
        labels = counts[answered].argmax(1)
        centres = compute_class_means(queries[answered], labels, classes)
        return lambda x: score_by_distance(whiten(x), *centres)

    def _make_whitening_map(self, public: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the function that projects rows on the leading public directions, whitened and scaled to norm 1."""
        units = unit_norm(public).double()
        k, mean = min(self.k, max(1, len(units) - 1), units.shape[1]), units.mean(0)
        found = PrincipalComponents.of(units - mean, len(units))
        if not found.values[-1] > 0:
            raise SpecError(f"Expected public examples that differ in learner {self.name!r}, got the same point.")
        deviations = found.values[-k:].clamp(min=1e-12 * float(found.values[-1])).sqrt()
        directions = (found.leading(k) / deviations).T  # (k, d)
        weight, shift = directions.float(), (-directions @ mean).float()
        return lambda rows: unit_norm(exact_linear(unit_norm(rows), weight, shift))


def compute_class_means(x: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return the class means (classes, k), zero for classes without rows, and a mask (classes,) of those with rows."""
    from torch.nn.functional import one_hot

    member = one_hot(y, classes).float()  # (c, classes)
    counts = member.sum(0)
    return (member.T @ x) / counts.clamp(min=1).unsqueeze(1), counts > 0


def score_by_distance(x: Tensor, centres: Tensor, has_rows: Tensor) -> Tensor:
    """Return scores (c, classes), higher for nearer centres, up to a constant per row; absent classes score lowest."""
    scores = x @ centres.T - centres.square().sum(1) / 2
    return scores.masked_fill(~has_rows, -1e4)
