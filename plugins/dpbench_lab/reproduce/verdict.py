"""Compare our numbers with a paper's, and give a verdict by one rule.

A number or an order is *decided* if it was measured with the paper's learner, and each accuracy in it is above chance
(always guessing the largest class) by its interval. The verdict is *cannot tell* if something was measured, but nothing
is decided, or nothing that is decided was measured with the learner that the paper proposes.

A study *holds* if every number of the paper is decided and met within 2 points (at most 2 points below, where the paper
says "more than"), and every order that the paper states without numbers is found here, by a difference beyond its 95%
interval. It *holds in order only* if, of all pairs that lie more than 1 point apart in the paper, none is reversed
beyond both 95% intervals, and at least half have the paper's order beyond both intervals. Both verdicts are *in part*
if some of the paper's numbers or orders are not decided. If none of our data is the paper's, only orders are judged,
and the study *holds on other data* if all of them are found. Otherwise it *does not hold* (*on other data*). Without
any measurement, it was *not run*. A study of a theorem's rate has the verdict of `rates`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

from dpbench.analysis.figure_data import PublishedPoint
from dpbench.analysis.plots import format_axis_value
from dpbench_lab.figures import literature
from dpbench_lab.reproduce.catalogue import AxisValues, OrderClaim, ReproductionStudy
from dpbench_lab.reproduce.measurements import Measurement
from dpbench_lab.reproduce.rates import RateReport, compare_with_rate

Verdict = Literal[
    "holds", "holds, in part", "holds in order only", "holds in order only, in part", "holds on other data",
    "holds up to a constant", "does not hold", "does not hold on other data", "cannot tell", "not run",
    "nothing to measure",
]  # fmt: skip
NEAR = 2.0  # points
APART = 1.0  # points


@dataclass(frozen=True)
class NumberComparison:
    """A number of the paper, and our measurement of it."""

    point: PublishedPoint
    ours: Measurement | None
    doubts: tuple[str, ...] = ()  # why ours decides nothing

    @property
    def is_decided(self) -> bool:
        """Whether our number can be compared with the paper's."""
        return self.ours is not None and not self.doubts

    @property
    def difference(self) -> float | None:
        """Our number minus the paper's, in points; None if not measured."""
        return None if self.ours is None else 100 * self.ours.interval.mean - self.point.percent

    @property
    def agrees(self) -> bool:
        """Whether our number is within 2 points of the paper's, or at most 2 below it if the paper says "more than"."""
        if self.difference is None:
            return False
        return self.difference >= -NEAR if self.point.above else abs(self.difference) <= NEAR


@dataclass(frozen=True)
class OrderComparison:
    """An order that the paper states, beside our results; `ends` is empty if a result was not measured."""

    order: OrderClaim
    ends: tuple[Measurement, ...]  # what the paper says is higher, and lower
    starts: tuple[Measurement, ...] = ()  # where losses are compared: the results that they are losses from
    doubts: tuple[str, ...] = ()  # why ours decide nothing

    @property
    def is_decided(self) -> bool:
        """Whether our results can be compared with the order."""
        return bool(self.ends) and not self.doubts

    @property
    def holds(self) -> bool | None:
        """Whether our results have the paper's order and differ significantly; None if they were not measured."""
        return None if self.difference is None else self.difference > self._margin

    @property
    def is_within_noise(self) -> bool:
        """Whether chance alone could explain the difference between our results."""
        return self.difference is not None and abs(self.difference) <= self._margin

    @property
    def difference(self) -> float | None:
        """Our result for the setting that is better in the paper minus that for the other; None if not measured.

        If the order is one of losses, each result is counted from its own start (`starts`).
        """
        if not self.ends:
            return None
        higher, lower = (end.interval.mean for end in self.ends)
        if self.starts:
            before = [start.interval.mean for start in self.starts]
            higher, lower = higher - before[0], lower - before[1]
        return higher - lower

    @property
    def _margin(self) -> float:
        return math.hypot(*(measurement.margin for measurement in (*self.ends, *self.starts)))


@dataclass(frozen=True)
class StudyComparison:
    """A study compared with our measurements, and the verdict."""

    study: ReproductionStudy
    rows: tuple[NumberComparison, ...]
    orders: tuple[OrderComparison, ...]
    rated: RateReport | None
    verdict: Verdict

    @property
    def compared_count(self) -> int:
        """How many of the paper's numbers and orders were measured, plus the cells compared with a theorem's rate."""
        stated = sum(row.ours is not None for row in self.rows) + sum(bool(order.ends) for order in self.orders)
        return stated + (len(self.rated.cells) if self.rated else 0)

    @property
    def measurements(self) -> list[Measurement]:
        """All measurements that are compared."""
        found = [row.ours for row in self.rows if row.ours]
        found += [measurement for order in self.orders for measurement in (*order.ends, *order.starts)]
        return found + ([cell.measured for cell in self.rated.cells] if self.rated else [])

    @property
    def is_measured_with_current_code(self) -> bool:
        """Whether all measurements come from code that sums and adds noise as today's code does."""
        return all(measurement.today for measurement in self.measurements)

    @property
    def doubts(self) -> list[str]:
        """The distinct reasons why measurements decide nothing."""
        found = [row.doubts for row in self.rows] + [order.doubts for order in self.orders]
        return list(dict.fromkeys(doubt for doubts in found for doubt in doubts))


def compare_with_paper(study: ReproductionStudy, ours: Sequence[Measurement]) -> StudyComparison:
    """Compare a study with our measurements, and give the verdict."""
    series = literature.read_literature().series
    points = [point for name in study.published for point in series[name].points]
    axes = {axis for point in points for axis in point.at}
    rows = [
        _compare_number(study, point, _find_highest_measurement(_find_matching_measurements(point.at, axes, ours)))
        for point in points
    ]
    rows += [NumberComparison(point, None) for name in study.other_features for point in series[name].points]
    orders = tuple(_compare_order(study, order, ours) for order in study.orders)
    against = compare_with_rate(study, ours)
    verdict = against.verdict if against else _decide_verdict(study, rows, orders)
    return StudyComparison(study, tuple(rows), orders, against, verdict)


def _compare_number(study: ReproductionStudy, point: PublishedPoint, ours: Measurement | None) -> NumberComparison:
    return NumberComparison(point, ours, tuple(_list_doubts(study, ours)) if ours else ())


def _compare_order(study: ReproductionStudy, order: OrderClaim, ours: Sequence[Measurement]) -> OrderComparison:
    axes = {*order.higher, *order.lower}
    contrasted = order.higher.get("extractor") != order.lower.get("extractor")
    sides = [{**side, **order.loss_from} for side in (order.higher, order.lower)] if order.loss_from else []
    found = [
        _find_highest_measurement(_find_matching_measurements(side, axes, ours, contrasted))
        for side in (order.higher, order.lower, *sides)
    ]
    kept = [measurement for measurement in found if measurement]
    if len(kept) < len(found):
        return OrderComparison(order, ())
    doubts = [doubt for end in kept for doubt in _list_doubts(study, end, at_chance=order.at_chance and end is kept[1])]
    return OrderComparison(order, tuple(kept[:2]), tuple(kept[2:]), tuple(doubts))


def _list_doubts(study: ReproductionStudy, ours: Measurement, at_chance: bool = False) -> Iterator[str]:
    """Yield each reason why a measurement decides nothing: another learner than the paper's, or chance accuracy."""
    learner = ours.facts.learner if ours.facts else None
    if learner and study.protocol and study.protocol.learners and learner not in study.protocol.learners:
        yield f"{learner} is not the paper's learner"
    if not (ours.is_above_chance or at_chance):
        yield (
            f"{learner or 'a learner'} scores {100 * ours.interval.mean:.2f}, which is not clearly above the "
            f"{100 * ours.chance:.2f} of always guessing the largest class"
        )


def _find_matching_measurements(
    paper_values: AxisValues, axes: set[str], measurements: Sequence[Measurement], contrasted: bool = False
) -> list[Measurement]:
    if not contrasted and paper_values.get("extractor") not in {our.at.get("extractor") for our in measurements}:
        axes = axes - {"extractor"}  # another stands for the paper's, as the line of differences says
    return [our for our in measurements if all(_is_same_value(paper_values.get(axis), our.at, axis) for axis in axes)]


def _is_same_value(paper_value: float | str | None, our_values: Mapping[str, Any], axis: str) -> bool:
    mine = our_values.get(axis)
    if paper_value == "best":  # of the values of an axis that the paper does not name
        return mine is not None
    return format_axis_value(paper_value) == format_axis_value(mine)


def _find_highest_measurement(measurements: Sequence[Measurement]) -> Measurement | None:
    return max(measurements, key=lambda measurement: measurement.interval.mean, default=None)


def _decide_verdict(
    study: ReproductionStudy, rows: Sequence[NumberComparison], orders: Sequence[OrderComparison]
) -> Verdict:
    if not any(row.ours for row in rows) and not any(order.ends for order in orders):
        return "nothing to measure" if study.nothing else "not run"
    met, found = [row for row in rows if row.is_decided], [order for order in orders if order.is_decided]
    kept = [row.ours for row in met if row.ours] + [end for order in found for end in order.ends]
    if not kept or not _includes_papers_learner(study, kept):
        return "cannot tell"
    near, agrees = all(row.agrees for row in met), all(order.holds for order in found)
    if not _includes_papers_data(study, kept):
        agrees = agrees and len(found) == len(orders) > 0
        return "holds on other data" if agrees else "does not hold on other data"
    if not agrees or not (near or _has_paper_order(met) or (found and not _pairs_in_paper_order(met))):
        return "does not hold"
    whole = len(met) == len(rows) and len(found) == len(orders)
    if near:
        return "holds" if whole else "holds, in part"
    return "holds in order only" if whole else "holds in order only, in part"


def _includes_papers_learner(study: ReproductionStudy, measurements: Sequence[Measurement]) -> bool:
    own = study.protocol.own if study.protocol else None
    return own is None or any(our.facts is None or our.facts.learner in {None, own} for our in measurements)


def _includes_papers_data(study: ReproductionStudy, measurements: Sequence[Measurement]) -> bool:
    known = study.protocol.data if study.protocol else ()
    return not known or any(our.facts is None or our.facts.data in known for our in measurements)


def _pairs_in_paper_order(rows: Sequence[NumberComparison]) -> list[tuple[NumberComparison, NumberComparison]]:
    """Return the pairs of numbers that lie more than `APART` points apart in the paper, the higher number first."""
    ordered = [sorted(pair, key=lambda row: -row.point.percent) for pair in combinations(rows, 2)]
    return [(high, low) for high, low in ordered if high.point.percent - low.point.percent > APART]


def _has_paper_order(rows: Sequence[NumberComparison]) -> bool:
    pairs = _pairs_in_paper_order(rows)
    confirmed = sum(_is_clearly_above(high, low) for high, low in pairs)
    return bool(pairs) and not any(_is_clearly_above(low, high) for high, low in pairs) and 2 * confirmed >= len(pairs)


def _is_clearly_above(high: NumberComparison, low: NumberComparison) -> bool:
    above, below = (_measured_interval(row) for row in (high, low))
    return above[0] > below[1]


def _measured_interval(row: NumberComparison) -> tuple[float, float]:
    measurement: Measurement = row.ours  # type: ignore[assignment]
    return measurement.interval.mean - measurement.margin, measurement.interval.mean + measurement.margin
