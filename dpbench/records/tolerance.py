"""The tolerance within which two floating-point numbers count as equal: the same on every machine.

Whole numbers, labels, text and digests are compared for equality. What a library computed from floating-point numbers
(epsilon and its bounds, sigma, means, intervals, AUROC) is not: another processor, another version or another number
of threads adds in another order, and exp and log differ in their last bits. Which processor made a number is never
asked, as a name such as "AMD EPYC" is that of many.

What a forger gains: nothing. A millionth of epsilon or of a score is below all digits that a page prints; the target
of epsilon is held exactly; entries are ranked and sorted by answers that are counted (`board.ranking`).
"""

from __future__ import annotations

import math

RELATIVE_TOLERANCE = 1e-6  # relative


def close(stated: float | None, found: float | None) -> bool:
    """Return whether two numbers are equal up to rounding; None equals only None.

    >>> close(0.3, 0.1 + 0.2), close(0.0, 5e-324), close(1.0, 1.00001), close(float("nan"), float("nan"))
    (True, True, False, False)
    """
    if stated is None or found is None:
        return stated is found
    return math.isclose(stated, found, rel_tol=RELATIVE_TOLERANCE, abs_tol=RELATIVE_TOLERANCE**2)
