"""Accuracy by group of the test split, the worst group, and what privacy costs each group.

Computed from the counts that a result keeps, for the terminal, pages and cards alike. An interval is over seeds, as for
other metrics: it does not say how much another sample of test images would change a small group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpbench.records.group_counts import UNKNOWN, total
from dpbench.records.result import Interval, Result, interval

ENOUGH = 20  # test images: in a smaller group one image is more than five points
MOST_SHOWN = 6  # groups that a line of a summary names


@dataclass(frozen=True)
class Group:
    """The test images of one value of a column."""

    value: str
    images: int
    accuracy: Interval  # share of 1

    @property
    def name(self) -> str:
        """Its value; a word where it is unknown."""
        return self.value or "not known"

    @property
    def comparable(self) -> bool:
        """Whether it is a known group with enough test images to be called best or worst."""
        return self.images >= ENOUGH and self.value != UNKNOWN


@dataclass(frozen=True)
class GroupColumn:
    """Accuracy by the values of one column, such as sex."""

    name: str
    groups: tuple[Group, ...]  # by value; images of unknown group last

    @property
    def ranked(self) -> tuple[Group, ...]:
        """The groups that are compared, the worst first; none where fewer than two have enough test images."""
        found = sorted((one for one in self.groups if one.comparable), key=lambda one: one.accuracy.mean)
        return tuple(found) if len(found) > 1 else ()

    @property
    def worst(self) -> Group | None:
        """The group with the lowest accuracy; None where fewer than two have enough test images, or all are equal."""
        return self.ranked[0] if self.gap else None

    @property
    def gap(self) -> float | None:
        """Accuracy of the best group less that of the worst, a share of 1; None where no two are compared."""
        return self.ranked[-1].accuracy.mean - self.ranked[0].accuracy.mean if self.ranked else None


@dataclass(frozen=True)
class GroupPrice:
    """What privacy costs the groups of one column: accuracy of the same learner without noise less that with it."""

    column: str
    overall: float  # share of 1, over all test images
    losses: Mapping[str, float]  # by value
    most: Group | None  # that loses most, of those that are compared; with its accuracy under privacy

    @property
    def added(self) -> float | None:
        """By how much the loss of the group that loses most is above that of all test images, a share of 1."""
        return None if self.most is None else self.losses[self.most.value] - self.overall


def group_accuracies(
    images: Mapping[str, Mapping[str, str]], correct: Sequence[Mapping[str, Mapping[str, str]]]
) -> tuple[GroupColumn, ...]:
    """Return accuracy by group.

    Args:
        images: test images by column, value and class, see `GroupCounts`.
        correct: the same of the correct predictions of each seed.
    """
    return tuple(
        GroupColumn(
            column,
            tuple(
                Group(value, count, interval([total(seed[column][value]) / count for seed in correct]))
                for value, line in sorted(values.items(), key=lambda one: (one[0] == UNKNOWN, one[0]))
                if (count := total(line))
            ),
        )
        for column, values in sorted(images.items())
    )


def accuracy_by_group(result: Result) -> tuple[GroupColumn, ...]:
    """Return accuracy by group of a result; nothing where its test split has no groups."""
    correct = [seed.group_correct for seed in result.seeds if seed.group_correct is not None]
    return group_accuracies(result.task.groups, correct) if result.task.groups and correct else ()


def price_by_group(result: Result, ceiling: Result) -> tuple[GroupPrice, ...]:
    """Return what privacy costs each group; `ceiling` is the result without privacy, of `find_ceiling`."""
    overall = ceiling.metrics["accuracy"].mean - result.metrics["accuracy"].mean
    return tuple(
        _price(private, free, overall)
        for private, free in zip(accuracy_by_group(result), accuracy_by_group(ceiling), strict=True)
    )


def _price(private: GroupColumn, free: GroupColumn, overall: float) -> GroupPrice:
    pairs = zip(private.groups, free.groups, strict=True)
    losses = {one.value: best.accuracy.mean - one.accuracy.mean for one, best in pairs}
    most = max(private.ranked, key=lambda one: losses[one.value], default=None)
    return GroupPrice(private.name, overall, losses, most)


def find_ceiling(result: Result, others: Iterable[Result]) -> Result | None:
    """Return the result of the same learner without privacy on the same data and groups; None if none of them is.

    Of several, the one with the same settings, how they were chosen and seeds comes first, in this order. None also for
    a result that has no groups, or that is itself without privacy.
    """
    if not result.task.groups or not result.privacy.plan or math.isinf(result.spec.epsilon):
        return None
    found = [one for one in others if _is_ceiling(one, result)]
    return min(found, key=lambda one: _distance(one, result), default=None)


def _is_ceiling(free: Result, result: Result) -> bool:
    without = math.isinf(free.spec.epsilon) and bool(free.privacy.plan)
    return without and _learner_and_data(free) == _learner_and_data(result)


def _learner_and_data(result: Result) -> tuple[Any, ...]:
    spec, task = result.spec, result.task
    return spec.learner.name, spec.data_key, spec.public_labels, task.digests, task.groups


def _distance(free: Result, result: Result) -> tuple[bool, bool, bool, str]:
    return (
        free.spec.learner != result.spec.learner,
        free.selection != result.selection,
        free.spec.seeds != result.spec.seeds,
        free.digest,
    )


def _plain(score: Interval) -> str:
    return f"{100 * score.mean:.2f}%"


def write_groups(column: GroupColumn, score: Callable[[Interval], str] = _plain, most: int | None = None) -> str:
    """Return a column in a line, with the number of test images of each group; of many groups the worst and the best.

    Args:
        column: what to write.
        score: writes an accuracy, with its percent sign.
        most: groups that are named; of more, the two ends are. None: all are named.
    """
    if most is None or len(column.groups) <= most or not column.ranked:
        named = [_write(one, column, score, first=not place) for place, one in enumerate(column.groups[:most])]
        more = len(column.groups) - len(named)
        return ", ".join(named) + (f"; {more} more groups" if more else "")
    worst, best = column.ranked[0], column.ranked[-1]
    return (
        f"{_write(worst, column, score, first=True)} to {_write(best, column, score, first=False)}, of "
        f"{len(column.groups)} groups"
    )


def _write(one: Group, column: GroupColumn, score: Callable[[Interval], str], *, first: bool) -> str:
    of = f"{one.images:,} test images" if first else f"{one.images:,}"
    mark = " (worst)" if one == column.worst else " (too few to compare)" if one.images < ENOUGH else ""
    return f"{one.name} {score(one.accuracy)} of {of}{mark}"


def write_price(price: GroupPrice) -> str:
    """Return in a line what privacy costs all test images, and the group that loses most."""
    said = f"{100 * price.overall:.2f} points overall"
    if price.most is None or price.added is None:
        return said
    lost, images = 100 * price.losses[price.most.value], f"{price.most.images:,} test images"
    beside = f"{100 * price.added:.2f} more" if price.added >= 0 else f"{-100 * price.added:.2f} less"
    return f"{said}; most for {price.most.name}: {lost:.2f} points ({images}), {beside} than overall"
