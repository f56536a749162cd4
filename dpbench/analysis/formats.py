"""Formats of scores and bounds for readers, each metric in its own unit."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from dpbench.records.metrics import METRIC_FACTS
from dpbench.records.result import Interval

LEGEND = "{}ean over seeds with its 95% interval. {}: statistically tied with the best of its column."


def format_metric_score(metric: str, score: Interval, *, unit: bool = False) -> str:
    """Return a score as text: mean ± half the interval, or mean and both ends if the metric's range clips the interval.

    >>> format_metric_score("accuracy", Interval(mean=0.7231, low=0.72, high=0.7262), unit=True)
    '72.31% ± 0.31'
    >>> format_metric_score("accuracy", Interval(mean=0.95, low=0.85, high=1.05))
    '95.00 (85.00 to 100)'
    >>> format_metric_score("nll", Interval(mean=4.043, low=1.639, high=6.447))
    '4.043 ± 2.404'
    """
    facts, held = METRIC_FACTS[metric], clamp_interval(metric, score)

    def format_number(value: float, bounds: bool = False) -> str:
        digits = 0 if bounds and value in (0, facts.most) else facts.digits
        return f"{facts.scale * value:.{digits}f}"

    mean = format_number(score.mean) + facts.unit * unit
    if held.low is None or held.high is None:
        return mean
    if held != score:
        return f"{mean} ({format_number(held.low, True)} to {format_number(held.high, True)})"
    half = format_number(held.high - score.mean)
    return mean + (f" ± {half}" if float(half) else "")


def format_percent_score(score: Interval) -> str:
    """Return a score that is a share of 1 as text in percent."""
    return format_metric_score("accuracy", score)


def clamp_interval(metric: str, score: Interval) -> Interval:
    """Clip an interval to the metric's range, because Student's t intervals can exceed the range."""
    low, high = (
        None if end is None else min(max(end, 0.0), METRIC_FACTS[metric].most) for end in (score.low, score.high)
    )
    return Interval(mean=score.mean, low=low, high=high)


def format_upper_bound(value: float, digits: int = 4) -> str:
    """Return an upper bound as text, rounded up to `digits` significant digits so that no page understates it.

    >>> [format_upper_bound(value) for value in (0.9999912, 1.00001, 37.3064, math.inf, 0.0)]
    ['1', '1.001', '37.31', '∞', '0']
    """
    return _format_rounded(value, digits, ROUND_CEILING)


def format_lower_bound(value: float, digits: int = 4) -> str:
    """Return a lower bound as text, rounded down to `digits` significant digits.

    >>> format_lower_bound(0.97996)
    '0.9799'
    """
    return _format_rounded(value, digits, ROUND_FLOOR)


def _format_rounded(value: float, digits: int, rounding: str) -> str:
    if math.isinf(value):
        return "∞"
    exact = Decimal(value)
    return (
        f"{exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding).normalize():f}" if value else "0"
    )


def format_legend(metric: str, mark: str = "*") -> str:
    """Return a table's legend: the meaning of its numbers and of its mark."""
    way = "Percent, m" if METRIC_FACTS[metric].share else "M"
    return LEGEND.format(way, mark) + ("" if METRIC_FACTS[metric].higher else " Lower is better.")


def format_percent_rounded_up(share: float) -> str:
    """Return an upper bound on a share as text in percent, rounded up.

    >>> format_percent_rounded_up(0.00271), format_percent_rounded_up(1.0)
    ('0.28%', '100.00%')
    """
    return f"{math.ceil(10_000 * share) / 100:.2f}%"
