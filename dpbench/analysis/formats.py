"""Scores as a person reads them: in percent, with half their interval."""

from __future__ import annotations

import math

from dpbench.records.metrics import FACTS
from dpbench.records.result import Interval

LEGEND = "{}ean over seeds with its 95% interval. {}: statistically tied with the best of its column."


def percent(score: Interval) -> str:
    """Return a score in percent, with half its interval where there is one, or its ends where one would pass 0 or 100.

    >>> percent(Interval(mean=0.7231, low=0.72, high=0.7262)), percent(Interval(mean=0.5, low=None, high=None))
    ('72.31 ± 0.31', '50.00')
    >>> percent(Interval(mean=0.95, low=0.85, high=1.05)), percent(Interval(mean=0.02, low=-0.1, high=0.14))
    ('95.00 (85.00 to 100)', '2.00 (0 to 14.00)')
    """
    low, high = clamp_interval(score).low, clamp_interval(score).high
    if low is not None and high is not None and (low != score.low or high != score.high):
        return f"{100 * score.mean:.2f} ({_end(low)} to {_end(high)})"
    half = "" if score.high is None else f"{100 * (score.high - score.mean):.2f}"
    return f"{100 * score.mean:.2f}" + (f" ± {half}" if half not in {"", "0.00"} else "")


def percent_with_sign(score: Interval) -> str:
    """Return what `percent` does, with the percent sign behind the mean.

    >>> percent_with_sign(Interval(mean=0.7231, low=0.72, high=0.7262))
    '72.31% ± 0.31'
    """
    mean, *rest = percent(score).split(" ", 1)
    return " ".join([f"{mean}%", *rest])


def write_score(metric: str, score: Interval) -> str:
    """Return a score as its metric is printed: a share of 1 in percent, anything else as a number of three digits.

    >>> write_score("accuracy", Interval(mean=0.5, low=0.4, high=0.6))
    '50.00 ± 10.00'
    >>> write_score("nll", Interval(mean=1.25, low=1.0, high=1.5))
    '1.250 ± 0.250'
    """
    if FACTS[metric].share:
        return percent(score)
    return f"{score.mean:.3f}" + ("" if score.high is None else f" ± {score.high - score.mean:.3f}")


def unit_of(metric: str) -> str:
    """Return what stands behind a printed score."""
    return "%" * FACTS[metric].share


def legend(metric: str, mark: str = "*") -> str:
    """Return what a table's numbers and its mark mean."""
    way = "Percent, m" if FACTS[metric].share else "M"
    return LEGEND.format(way, mark) + ("" if FACTS[metric].higher else " Lower is better.")


def percent_at_most(share: float) -> str:
    """Return an upper bound on a share in percent, rounded up.

    >>> percent_at_most(0.00271), percent_at_most(1.0)
    ('0.28%', '100.00%')
    """
    return f"{math.ceil(10_000 * share) / 100:.2f}%"


def clamp_interval(score: Interval) -> Interval:
    """Return an interval whose ends are shares: Student's t knows no bounds."""
    low, high = (None if end is None else min(max(end, 0.0), 1.0) for end in (score.low, score.high))
    return Interval(mean=score.mean, low=low, high=high)


def _end(share: float) -> str:
    return f"{100 * share:.0f}" if share in (0, 1) else f"{100 * share:.2f}"
