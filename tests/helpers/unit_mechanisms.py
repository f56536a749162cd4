"""Other ways to bound what a unit contributes, measured beside the mean of its clipped rows, which dpbench has.

``python -m tests.helpers.unit_mechanisms`` prints the table. It needs HAM10000, and takes ten minutes of one core.

Every rule bounds the sum of a unit by the clip, so all get the same noise at the same epsilon. They are floats here,
and answer full batches of outer products alone: enough to compare accuracies, and no mechanism.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from dpbench_plugins.datasets.sklearn import Digits
from torch import Tensor

from dpbench import Chunk, RankOne, Splits
from dpbench.analysis.formats import format_percent_score
from dpbench.harness.fitting import fit_once, predict_isolated
from dpbench.harness.prepare import PreparedRun
from dpbench.privacy.core.ledger_curator import LedgerCurator, Question
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivacyUnits
from dpbench.privacy.core.sum import Sum
from dpbench.records.result import mean_interval
from dpbench.records.spec import make_spec
from dpbench.registry import Registration, Registry, load
from dpbench.testing.curators import CuratorProxy
from tests.helpers.sessions import session

SEEDS = range(5)
LEARNERS = ("thrift", "dp-sgd")
LARGEST = 10  # images of a made-up unit
AT_ONCE = 100_000  # pairs of rows


@dataclass(frozen=True)
class MadeUpUnits(Digits):
    """Digits whose training images belong to made-up units of 1 to 10 images of one class, drawn with a seed."""

    name: ClassVar[str] = "made-up-units"

    def load(self) -> Splits:
        splits = super().load()
        labels, random = splits.train.labels, np.random.default_rng(0)
        units, count = np.empty(len(labels), np.int64), 0
        for label in range(len(self.classes)):
            rows = random.permutation(np.flatnonzero(labels == label))
            while len(rows):
                size = int(random.integers(1, LARGEST + 1))
                units[rows[:size]], rows, count = count, rows[size:], count + 1
        return replace(splits, train=replace(splits.train, units=units), unit="unit")


class Pairs:
    """All pairs of rows of one unit: the norm of a unit's sum follows from the inner products of its rows."""

    def __init__(self, of: Tensor) -> None:
        order = torch.argsort(of, stable=True)
        sizes = torch.bincount(of)
        starts = torch.repeat_interleave(torch.cumsum(sizes, 0) - sizes, sizes)  # of the unit of each row in order
        counts = torch.repeat_interleave(sizes, sizes)
        self.of, self.sizes = of, sizes
        first = torch.repeat_interleave(torch.arange(len(of)), counts)
        within = torch.arange(len(first)) - torch.repeat_interleave(torch.cumsum(counts, 0) - counts, counts)
        self.first, self.second = order[first], order[torch.repeat_interleave(starts, counts) + within]

    def norms(self, outer: RankOne) -> Tensor:
        """Return the norm of the sum of each unit's outer products, (units,)."""
        left, right = outer.left, outer.right_with_bias()
        products = torch.cat([
            (left[part] * left[other]).sum(1) * (right[part] * right[other]).sum(1)
            for part, other in zip(torch.split(self.first, AT_ONCE), torch.split(self.second, AT_ONCE), strict=True)
        ])  # fmt: skip
        squares = torch.zeros(len(self.sizes)).index_add_(0, self.of[self.first], products)
        return squares.clamp(min=0).sqrt()


@dataclass(frozen=True)
class Private:
    """What a rule may read: whose the rows are, and an order within each unit that follows from its own content."""

    pairs: Pairs
    place: Tensor  # (n,) int64, from 0 on: of each row within its unit

    @property
    def sizes(self) -> Tensor:
        """How many rows the unit of each row has, (n,)."""
        return self.pairs.sizes[self.pairs.of]


Weights = Callable[[Private, RankOne, float], Tensor]
"""With what each row is weighed, (n,), so that the weighted rows of no unit have a sum longer than the clip."""


def bounded(norms: Tensor, clip: float) -> Tensor:
    """Return what brings norms to at most the clip."""
    return (clip / norms.clamp(min=1e-12)).clamp(max=1.0)


def mean_of_clips(private: Private, outer: RankOne, clip: float) -> Tensor:
    """Each row clipped, then the mean of the unit's: what dpbench does."""
    return bounded(outer.norms().float(), clip) / private.sizes


def clip_of_mean(private: Private, outer: RankOne, clip: float) -> Tensor:
    """The mean of a unit's rows, clipped."""
    whole = bounded(private.pairs.norms(outer) / private.pairs.sizes, clip)
    return whole[private.pairs.of] / private.sizes


def clip_of_sum(private: Private, outer: RankOne, clip: float) -> Tensor:
    """The sum of a unit's rows, clipped."""
    return bounded(private.pairs.norms(outer), clip)[private.pairs.of]


def mean_of_most(most: int, private: Private, outer: RankOne, clip: float) -> Tensor:
    """At most so many rows of a unit, each clipped, then their mean."""
    kept = private.sizes.clamp(max=most)
    return bounded(outer.norms().float(), clip) * (private.place < most) / kept


def share_of_most(most: int, private: Private, outer: RankOne, clip: float) -> Tensor:
    """At most so many rows of a unit, each clipped and divided by that number, however many the unit has."""
    return bounded(outer.norms().float(), clip) * (private.place < most) / most


RULES: Mapping[str, Weights] = {
    "mean of clipped images (dpbench)": mean_of_clips,
    "clipped mean": clip_of_mean,
    "clipped sum": clip_of_sum,
    "mean of 1 image": partial(mean_of_most, 1),
    "mean of at most 2 images": partial(mean_of_most, 2),
    "mean of at most 3 images": partial(mean_of_most, 3),
    "at most 2 images, each a half": partial(share_of_most, 2),
}


class Ruled(CuratorProxy):
    """Answers full batches by a rule; everything else is the curator's own."""

    def __init__(self, curator: LedgerCurator, private: Private, rule: Weights, noise: torch.Generator) -> None:
        super().__init__(curator)
        self.private, self.rule, self.noise = private, rule, noise

    def wrap_mapped_curator(self, mapped: LedgerCurator) -> Ruled:
        """Answer of mapped rows."""
        return Ruled(mapped, self.private, self.rule, self.noise)

    def answer(self, question: Question) -> Any:
        """Weigh, sum, noise."""
        rows = self.curator.rows
        if not isinstance(question, Sum) or self.curator.ledger.spend(question.release, question.kind).sample_rate < 1:
            raise ValueError(f"Expected a sum over all rows, got {question}.")
        outer = question.rows(Chunk(rows.x, rows.y, torch.zeros_like(rows.y)))
        if not isinstance(outer, RankOne):
            raise TypeError(f"Expected outer products, got a {type(outer).__name__}.")
        (clip,) = question.clips
        weights = self.rule(self.private, outer, clip)
        total = (outer.left * weights.unsqueeze(1)).T @ outer.right_with_bias()
        std = self.curator.sigma[question.release] * clip
        return total + std * torch.randn(total.shape, generator=self.noise)


def private_of(prepared: PreparedRun) -> Private:
    """Return the units of a run's private rows, each row's place in its unit by a hash of its features."""
    rows = prepared.roles.private
    owners = rows.units
    if not isinstance(owners, PrivacyUnits):
        raise TypeError("Expected units.")
    x = rows.x[rows.index]  # (n, d)
    hashes = [hashlib.sha256(row.numpy().tobytes()).digest() for row in x]
    place = np.empty(len(hashes), np.int64)
    seen: dict[int, int] = {}
    for row in sorted(range(len(hashes)), key=hashes.__getitem__):
        unit = int(owners.of[row])
        place[row] = seen.get(unit, 0)
        seen[unit] = int(place[row]) + 1
    return Private(Pairs(torch.from_numpy(owners.of)), torch.from_numpy(place))


def fitted(prepared: PreparedRun, private: Private, rule: Weights, seed: int) -> Mapping[str, Any]:
    """Return the scores of one fit under a rule."""
    given = replace(prepared.make_fit_input(seed), randomness=Randomness.research(seed, "unit-mechanisms"))
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        done = fit_once(given, wrap=lambda curator: Ruled(curator, private, rule, noise).handle())
        return prepared.test.scorer.score(predict_isolated(done, prepared.test.x)).metrics


def measured(dataset: str, extractor: str, unit: str, learner: str) -> dict[str, Sequence[str]]:
    """Return by rule the accuracy and the balanced accuracy of a learner at epsilon 1, with their intervals."""
    components = {kind: dict(items) for kind, items in load().components.items()}
    components["dataset"][MadeUpUnits.name] = Registration(MadeUpUnits, "tests", "tests", "1")
    values = {"learner": learner, "dataset": dataset, "extractor": extractor, "unit": unit, "epsilon": 1.0}
    prepared = session(Registry(components)).prepare(make_spec(values, "the study"))
    private, found = private_of(prepared), dict[str, Sequence[str]]()
    for name, rule in RULES.items():
        scores = [fitted(prepared, private, rule, seed) for seed in SEEDS]
        columns = [[score[metric] for score in scores] for metric in ("accuracy", "balanced_accuracy")]
        found[name] = [format_percent_score(mean_interval(column)) for column in columns]
        print(dataset, learner, name, *found[name], file=sys.stderr, flush=True)
    return found


def table() -> str:
    """Return the table: a line a rule, accuracy and balanced accuracy by data and learner."""
    columns = [
        (title, learner, measured(dataset, extractor, unit, learner))
        for title, dataset, extractor, unit in (
            ("HAM10000", "ham10000", "efficientnet-lite0:size=128,precision=bfloat16", "lesion"),
            ("digits", MadeUpUnits.name, "pixels", "unit"),
        )
        for learner in LEARNERS
    ]
    heads = [f"{title}, `{learner}`: {metric}" for title, learner, _ in columns for metric in ("accuracy", "balanced")]
    heads = [head for head in heads if "digits" not in head or "balanced" not in head]  # its classes are equally large
    lines = [f"| a unit contributes | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    for rule in RULES:
        cells = [cell for title, _, found in columns for cell in found[rule][: 1 if title == "digits" else 2]]
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
