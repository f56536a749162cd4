"""Compare our numbers with a paper's, and give a verdict by one rule.

The rule: a study *holds* if every number of the paper that was measured here is met within 2 points (at least met,
less 2 points, where the paper says "more than"), and every order that it states without numbers is found here, by a
difference beyond its 95% interval.
It *holds in order only* if, of all pairs that lie more than 1 point apart in the paper, none is reversed beyond both
95% intervals, and at least half lie the paper's way round beyond them.
Otherwise it *does not hold*. Numbers that nobody measured here decide nothing; without any, it was *not run*.
A study of a theorem's rate has the verdict of `rates`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

from dpbench.analysis.figure_data import Point
from dpbench.analysis.plots import write_axis_value
from dpbench_lab.figures import literature
from dpbench_lab.reproduce.catalogue import At, OrderClaim, Study
from dpbench_lab.reproduce.measurements import Measurement
from dpbench_lab.reproduce.rates import RateReport, compare_with_rate

Verdict = Literal[
    "holds", "holds in order only", "holds up to a constant", "does not hold", "not run", "nothing to measure"
]
NEAR = 2.0  # points
APART = 1.0  # points


@dataclass(frozen=True)
class NumberComparison:
    """A number of the paper beside ours."""

    point: Point
    ours: Measurement | None

    @property
    def difference(self) -> float | None:
        """Our number minus the paper's, in points."""
        return None if self.ours is None else 100 * self.ours.interval.mean - self.point.percent

    @property
    def agrees(self) -> bool:
        """Whether our number agrees with the paper's."""
        if self.difference is None:
            return False
        return self.difference >= -NEAR if self.point.above else abs(self.difference) <= NEAR


@dataclass(frozen=True)
class OrderComparison:
    """An order that the paper states, beside our two results; None for a result that was not measured."""

    order: OrderClaim
    higher: Measurement | None
    lower: Measurement | None

    @property
    def holds(self) -> bool | None:
        """Whether our results are in the paper's order by more than chance explains."""
        return None if self.difference is None else self.difference > self._margin

    @property
    def is_doubtful(self) -> bool:
        """Whether chance alone could explain the difference between our results."""
        return self.difference is not None and abs(self.difference) <= self._margin

    @property
    def difference(self) -> float | None:
        """Our result for the higher side of the paper's order, minus our result for the lower side."""
        if self.higher is None or self.lower is None:
            return None
        return self.higher.interval.mean - self.lower.interval.mean

    @property
    def _margin(self) -> float:
        return math.hypot(*(measurement.margin for measurement in (self.higher, self.lower) if measurement))


@dataclass(frozen=True)
class Comparison:
    """A study beside our measurements."""

    study: Study
    rows: tuple[NumberComparison, ...]
    orders: tuple[OrderComparison, ...]
    rated: RateReport | None
    verdict: Verdict

    @property
    def compared_count(self) -> int:
        """The number of measured comparisons: the paper's numbers and orders, and cells beside a theorem's rate."""
        stated = sum(row.ours is not None for row in self.rows) + sum(order.holds is not None for order in self.orders)
        return stated + (len(self.rated.cells) if self.rated else 0)

    @property
    def is_current(self) -> bool:
        """Whether all measurements are by the current code."""
        found = [row.ours for row in self.rows] + [end for order in self.orders for end in (order.higher, order.lower)]
        found += [cell.measured for cell in self.rated.cells] if self.rated else []
        return all(measurement.today for measurement in found if measurement)


def compare(study: Study, ours: Sequence[Measurement]) -> Comparison:
    """Compare a study with our measurements, and give the verdict."""
    series = literature.read_literature().series
    points = [point for name in study.published for point in series[name].points]
    axes = {axis for point in points for axis in point.at}
    rows = [NumberComparison(point, _best_measurement(_matches(point.at, axes, ours))) for point in points]
    rows += [NumberComparison(point, None) for name in study.other_features for point in series[name].points]
    orders = tuple(_compare_order(order, ours) for order in study.orders)
    against = compare_with_rate(study, ours)
    verdict = against.verdict if against else _verdict(study, rows, orders)
    return Comparison(study, tuple(rows), orders, against, verdict)


def _compare_order(order: OrderClaim, ours: Sequence[Measurement]) -> OrderComparison:
    axes = {*order.higher, *order.lower}
    ends = [_best_measurement(_matches(at, axes, ours)) for at in (order.higher, order.lower)]
    return OrderComparison(order, *ends)


def _matches(at: At, axes: set[str], ours: Sequence[Measurement]) -> list[Measurement]:
    if at.get("extractor") not in {our.at.get("extractor") for our in ours}:
        axes = axes - {"extractor"}  # another stands for the paper's, as the study says
    return [our for our in ours if all(_is_same_value(at.get(axis), our.at, axis) for axis in axes)]


def _is_same_value(theirs: float | str | None, ours: Mapping[str, Any], axis: str) -> bool:
    mine = ours.get(axis)
    if theirs == "best":  # of the values of an axis that the paper does not name
        return mine is not None
    return write_axis_value(theirs) == write_axis_value(mine)


def _best_measurement(found: Sequence[Measurement]) -> Measurement | None:
    return max(found, key=lambda measurement: measurement.interval.mean, default=None)


def _verdict(study: Study, rows: Sequence[NumberComparison], orders: Sequence[OrderComparison]) -> Verdict:
    met = [row for row in rows if row.ours]
    stated = [order.holds for order in orders if order.holds is not None]
    if not met and not stated:
        return "nothing to measure" if study.nothing else "not run"
    if not all(stated):
        return "does not hold"
    if all(row.agrees for row in met):
        return "holds"
    return "holds in order only" if _has_paper_order(met) or (stated and not _ordered_pairs(met)) else "does not hold"


def _ordered_pairs(rows: Sequence[NumberComparison]) -> list[tuple[NumberComparison, NumberComparison]]:
    """Return the pairs of numbers that differ in the paper, the higher number first."""
    ordered = [sorted(pair, key=lambda row: -row.point.percent) for pair in combinations(rows, 2)]
    return [(high, low) for high, low in ordered if high.point.percent - low.point.percent > APART]


def _has_paper_order(rows: Sequence[NumberComparison]) -> bool:
    pairs = _ordered_pairs(rows)
    confirmed = sum(_is_clearly_above(high, low) for high, low in pairs)
    return bool(pairs) and not any(_is_clearly_above(low, high) for high, low in pairs) and 2 * confirmed >= len(pairs)


def _is_clearly_above(high: NumberComparison, low: NumberComparison) -> bool:
    above, below = (_interval(row) for row in (high, low))
    return above[0] > below[1]


def _interval(row: NumberComparison) -> tuple[float, float]:
    measurement: Measurement = row.ours  # type: ignore[assignment]
    return measurement.interval.mean - measurement.margin, measurement.interval.mean + measurement.margin
