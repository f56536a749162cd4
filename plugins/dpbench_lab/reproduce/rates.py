"""Compare measured errors with a theorem's rate, and give a verdict by one rule.

The rule: the curve is the rate times one constant, which is fitted at one cell. A cell *exceeds* the curve if its error
is more than twice the curve, and *falls short* if its error is less than half the curve; both count only beyond the 95%
interval. A theorem *does not hold* if a cell where its conditions are met exceeds the curve. It *holds* if no cell
falls short either, and the constant is within a factor of two of 1. Otherwise it *holds up to a constant*: as a bound,
and not as a law. Where the curve is at most one test example of one seed (`Rate.unseen`), no cell falls short, even
without errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dpbench.analysis.plots import format_axis_value
from dpbench_lab.reproduce.catalogue import ReproductionStudy
from dpbench_lab.reproduce.measurements import Measurement, TheoremRate

FACTOR = 2.0


@dataclass(frozen=True)
class RateComparison:
    """The measured error of a cell, and the theorem's curve there."""

    measured: Measurement
    rate: TheoremRate
    curve: float  # the rate times the constant

    @property
    def factor(self) -> float:
        """The error divided by the curve; 1 if the curve is 0."""
        return self.measured.interval.mean / self.curve if self.curve else 1.0

    @property
    def is_clearly_above(self) -> bool:
        """Whether the error is more than twice the curve, beyond its 95% interval."""
        interval = self.measured.interval
        return (interval.mean if interval.low is None else interval.low) > FACTOR * max(self.curve, self.rate.unseen)

    @property
    def is_clearly_below(self) -> bool:
        """Whether the error is less than half the curve, beyond its 95% interval.

        False if the curve is at most `Rate.unseen`.
        """
        interval = self.measured.interval
        return (
            interval.mean if interval.high is None else interval.high
        ) < self.curve / FACTOR and self.curve > self.rate.unseen


@dataclass(frozen=True)
class RateReport:
    """The cells of a sweep that meet a theorem's conditions, compared with its rate."""

    constant: float
    cells: tuple[RateComparison, ...]

    @property
    def fitted(self) -> RateComparison:
        """The cell to which the constant is fitted."""
        return next(cell for cell in self.cells if cell.rate.fitted)

    @property
    def highest(self) -> RateComparison:
        """The cell that lies farthest above the curve, or least below."""
        return max(self._cells_above_resolution, key=lambda point: point.factor)

    @property
    def lowest(self) -> RateComparison:
        """The cell farthest below the curve; among cells without errors, the one with the highest rate."""
        return min(self._cells_above_resolution, key=lambda point: (point.factor, -point.curve))

    @property
    def verdict(self) -> Literal["holds", "holds up to a constant", "does not hold"]:
        """The verdict according to the rule of this module."""
        if any(cell.is_clearly_above for cell in self.cells):
            return "does not hold"
        near = 1 / FACTOR <= self.constant <= FACTOR
        return "holds" if near and not any(cell.is_clearly_below for cell in self.cells) else "holds up to a constant"

    @property
    def _cells_above_resolution(self) -> Sequence[RateComparison]:
        return [cell for cell in self.cells if cell.curve > cell.rate.unseen]


def compare_with_rate(study: ReproductionStudy, ours: Sequence[Measurement]) -> RateReport | None:
    """Compare measurements with the study's theoretical rate, times a constant that is fitted at one cell.

    Return None if the study has no rate, or if the constant cannot be fitted: the cell was not measured, is outside the
    theorem's conditions, or has a mean error of 0.
    """
    found = [(our, our.rate) for our in ours if our.rate and not _is_outside_theorem_conditions(study, our.rate)]
    constant = next(
        (measurement.interval.mean / rate.value for measurement, rate in found if rate.fitted and rate.value), None
    )
    if not study.rate or not constant:
        return None
    return RateReport(
        constant, tuple(RateComparison(measurement, rate, constant * rate.value) for measurement, rate in found)
    )


def _is_outside_theorem_conditions(study: ReproductionStudy, rate: TheoremRate) -> bool:
    return any(
        all(format_axis_value(rate.at.get(axis)) == format_axis_value(value) for axis, value in at.items())
        for at in study.outside
    )
