"""Accuracy by group of the test split, the worst group, and the price of privacy for each group.

All values are computed from the counts in a result, and terminals, pages and cards show the same values. Intervals are
over seeds, as for other metrics: they leave out the sampling error of the test images, which is large in small groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpbench.records.group_counts import UNKNOWN_VALUE, sum_counts_in_line
from dpbench.records.result import Interval, Result, mean_interval

MIN_IMAGES = 20  # test images: in a smaller group one image is more than five points
MAX_SHOWN = 6  # groups that a line of a summary names


@dataclass(frozen=True)
class ImageGroup:
    """The test images that share a value of a column, and their accuracy."""

    value: str
    images: int
    accuracy: Interval  # share of 1

    @property
    def name(self) -> str:
        """The group's value, or a word for an unknown value."""
        return self.value or "not known"

    @property
    def is_comparable(self) -> bool:
        """Whether the group is known and has enough test images to be called the best or the worst."""
        return self.images >= MIN_IMAGES and self.value != UNKNOWN_VALUE


@dataclass(frozen=True)
class GroupColumn:
    """Accuracy for each value of a column, such as sex."""

    name: str
    groups: tuple[ImageGroup, ...]  # by value; images of unknown group last

    @property
    def ranked_groups(self) -> tuple[ImageGroup, ...]:
        """The comparable groups, worst first; empty if fewer than two groups have enough test images."""
        found = sorted((group for group in self.groups if group.is_comparable), key=lambda group: group.accuracy.mean)
        return tuple(found) if len(found) > 1 else ()

    @property
    def worst_group(self) -> ImageGroup | None:
        """The group with the lowest accuracy; None if fewer than two are comparable, or all are equally accurate."""
        return self.ranked_groups[0] if self.gap else None

    @property
    def gap(self) -> float | None:
        """The best group's accuracy minus the worst group's, a share of 1; None if fewer than two are comparable."""
        return (
            self.ranked_groups[-1].accuracy.mean - self.ranked_groups[0].accuracy.mean if self.ranked_groups else None
        )


@dataclass(frozen=True)
class GroupPrivacyPrice:
    """The price of privacy for the groups of a column: accuracy without noise minus accuracy with noise."""

    column: str
    overall: float  # share of 1, over all test images
    losses: Mapping[str, float]  # by value
    most: ImageGroup | None  # that loses most, of those that are compared; with its accuracy under privacy

    @property
    def added_loss(self) -> float | None:
        """The largest loss of a group minus the overall loss, a share of 1; None if no group can be ranked."""
        return None if self.most is None else self.losses[self.most.value] - self.overall


def compute_accuracy_from_counts(
    images: Mapping[str, Mapping[str, str]], correct: Sequence[Mapping[str, Mapping[str, str]]]
) -> tuple[GroupColumn, ...]:
    """Return accuracy by group, computed from counts.

    Args:
        images: counts of test images by column, value and class, see `GroupCounts`.
        correct: for each seed, the counts of correct predictions in the same form.
    """
    return tuple(
        GroupColumn(
            column,
            tuple(
                ImageGroup(
                    value, count, mean_interval([sum_counts_in_line(seed[column][value]) / count for seed in correct])
                )
                for value, line in sorted(values.items(), key=lambda item: (item[0] == UNKNOWN_VALUE, item[0]))
                if (count := sum_counts_in_line(line))
            ),
        )
        for column, values in sorted(images.items())
    )


def compute_accuracy_by_group(result: Result) -> tuple[GroupColumn, ...]:
    """Return a result's accuracy by group; empty if its test split has no groups."""
    correct = [seed.group_correct for seed in result.seeds if seed.group_correct is not None]
    return compute_accuracy_from_counts(result.task.groups, correct) if result.task.groups and correct else ()


def compute_price_by_group(result: Result, non_private: Result) -> tuple[GroupPrivacyPrice, ...]:
    """Return the price of privacy for each group; `non_private` is the result of `find_non_private_counterpart`."""
    overall = non_private.metrics["accuracy"].mean - result.metrics["accuracy"].mean
    return tuple(
        _compute_privacy_price(private, free, overall)
        for private, free in zip(compute_accuracy_by_group(result), compute_accuracy_by_group(non_private), strict=True)
    )


def _compute_privacy_price(private: GroupColumn, free: GroupColumn, overall: float) -> GroupPrivacyPrice:
    pairs = zip(private.groups, free.groups, strict=True)
    losses = {pair.value: best.accuracy.mean - pair.accuracy.mean for pair, best in pairs}
    most = max(private.ranked_groups, key=lambda group: losses[group.value], default=None)
    return GroupPrivacyPrice(private.name, overall, losses, most)


def find_non_private_counterpart(result: Result, candidates: Iterable[Result]) -> Result | None:
    """Return the non-private result of the same learner, data and groups, or None.

    If there are several, results with the same settings, selection rule and seeds are preferred, in this order. Returns
    None also if the result has no groups or is itself non-private.
    """
    if not result.task.groups or not result.privacy.plan or math.isinf(result.spec.epsilon):
        return None
    found = [other for other in candidates if _is_non_private_counterpart(other, result)]
    return min(found, key=lambda candidate: _preference_key(candidate, result), default=None)


def _is_non_private_counterpart(free: Result, result: Result) -> bool:
    without = math.isinf(free.spec.epsilon) and bool(free.privacy.plan)
    return without and _counterpart_key(free) == _counterpart_key(result)


def _counterpart_key(result: Result) -> tuple[Any, ...]:
    spec, task = result.spec, result.task
    return spec.learner.name, spec.data_key, spec.public_labels, task.digests, task.groups


def _preference_key(free: Result, result: Result) -> tuple[bool, bool, bool, str]:
    return (
        free.spec.learner != result.spec.learner,
        free.selection != result.selection,
        free.spec.seeds != result.spec.seeds,
        free.digest,
    )


def _format_accuracy(score: Interval) -> str:
    return f"{100 * score.mean:.2f}%"


def format_group_accuracies(
    column: GroupColumn, score: Callable[[Interval], str] = _format_accuracy, most: int | None = None
) -> str:
    """Format a column as a line with each group's accuracy and number of test images.

    Args:
        column: the column to format.
        score: formats an accuracy, with its percent sign.
        most: the largest number of groups to name; None names all groups. If there are more, only the worst and the
            best are named, or the first `most` groups if fewer than two can be compared.
    """
    if most is None or len(column.groups) <= most or not column.ranked_groups:
        named = [
            _format_group(group, column, score, first=not place) for place, group in enumerate(column.groups[:most])
        ]
        more = len(column.groups) - len(named)
        return ", ".join(named) + (f"; {more} more groups" if more else "")
    worst, best = column.ranked_groups[0], column.ranked_groups[-1]
    return (
        f"{_format_group(worst, column, score, first=True)} to {_format_group(best, column, score, first=False)}, of "
        f"{len(column.groups)} groups"
    )


def _format_group(group: ImageGroup, column: GroupColumn, score: Callable[[Interval], str], *, first: bool) -> str:
    of = f"{group.images:,} test images" if first else f"{group.images:,}"
    mark = " (worst)" if group == column.worst_group else " (too few to compare)" if group.images < MIN_IMAGES else ""
    return f"{group.name} {score(group.accuracy)} of {of}{mark}"


def format_privacy_price(price: GroupPrivacyPrice) -> str:
    """Format the price of privacy in a line: the loss over all test images, and the largest loss of a group."""
    said = f"{100 * price.overall:.2f} points overall"
    if price.most is None or price.added_loss is None:
        return said
    lost, images = 100 * price.losses[price.most.value], f"{price.most.images:,} test images"
    beside = f"{100 * price.added_loss:.2f} more" if price.added_loss >= 0 else f"{-100 * price.added_loss:.2f} less"
    return f"{said}; most for {price.most.name}: {lost:.2f} points ({images}), {beside} than overall"
