"""The tolerance within which two floating-point numbers count as equal. It is the same on every machine.

Integers, labels, text and digests must be equal. Numbers that a library computes in floating point (epsilon and its
bounds, sigma, means, intervals, AUROC) are compared within a tolerance: another processor, library version or number of
threads adds in another order, and exp and log differ in their last bits. The processor's name plays no role, because a
name such as "AMD EPYC" is shared by many processors.

A forger gains nothing from the tolerance. A millionth of epsilon or of a score is below every digit that a page prints;
the target epsilon is checked exactly; and entries are ranked and sorted by counted answers (`board.ranking`).
"""

from __future__ import annotations

import math
from typing import Any

RELATIVE_TOLERANCE = 1e-6  # relative


def is_close(stated: float | None, recomputed: float | None) -> bool:
    """Return whether two numbers are equal up to rounding; None equals only None.

    >>> is_close(0.3, 0.1 + 0.2), is_close(0.0, 5e-324), is_close(1.0, 1.00001), is_close(float("nan"), float("nan"))
    (True, True, False, False)
    """
    if stated is None or recomputed is None:
        return stated is recomputed
    return math.isclose(stated, recomputed, rel_tol=RELATIVE_TOLERANCE, abs_tol=RELATIVE_TOLERANCE**2)


def agree_up_to_rounding(value: Any, other: Any) -> bool:
    """Return whether two settings are equal; numbers in floating point may differ by the tolerance."""
    return is_close(value, other) if isinstance(value, float) and isinstance(other, float) else value == other
