"""Are numbers standard normal, one by one: their distribution, their tails, the largest, and values that come twice."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from dpbench.records.audit import Check

FEWEST = 2_000  # numbers whose skewness and kurtosis are nearly normal themselves
TAIL = 0.85
"""Power of the p-value of D'Agostino's test, which is too small where it is small: of 354,000 samples of 2,000 numbers
it has 77 below 1e-4 and 20 below 1.4e-5, where chance has 35 and 5."""
COMPARED = 2**16  # numbers that are searched for equal ones
CLOSE = 2.0**-19  # standard deviations between values that count as equal, where floats are no coarser
LATTICE = 4  # units of the coarsest float below which distances say nothing


def check_shape(numbers: np.ndarray, who: str, coarse: float) -> Iterator[Check]:
    """Yield the tests of numbers (n,) that came in floats as coarse as this, in standard deviations."""
    from scipy.stats import kstest, normaltest

    if len(numbers) >= FEWEST:
        yield Check(name=f"normal {who}", p=float(kstest(numbers, "norm").pvalue), numbers=len(numbers))
        p = float(normaltest(numbers).pvalue) ** TAIL
        yield Check(name=f"tails {who}", p=p, numbers=len(numbers))
        yield from _check_equal(numbers, who, max(CLOSE, LATTICE * coarse))


def check_largest(largest: float, numbers: int, who: str) -> Iterator[Check]:
    """Yield whether the largest of so many numbers is too large or too small: both are exact."""
    if numbers:
        tail = math.erfc(largest / math.sqrt(2))
        none = math.exp(numbers * math.log1p(-tail)) if tail < 1 else 0.0
        above = -math.expm1(numbers * math.log1p(-tail)) if tail < 1 else 1.0
        yield Check(name=f"largest number {who}", p=min(1.0, 2 * min(above, none)), numbers=numbers)


def _check_equal(numbers: np.ndarray, who: str, close: float) -> Iterator[Check]:
    """Yield whether more values are next to each other than chance has it: such pairs are rare events.

    Floats are on a lattice, whose points may make up to an eighth more of them.
    """
    from scipy.special import pdtrc

    some = np.sort(numbers[:: max(1, len(numbers) // COMPARED)][:COMPARED])
    expected = len(some) * (len(some) - 1) / 2 * close / math.sqrt(math.pi) * (1 + 1 / LATTICE)
    found = int((np.diff(some) < close).sum())
    if close <= 2.0**-10:
        p = float(pdtrc(found - 1, expected)) if found > expected + 1 else 1.0
        yield Check(name=f"equal numbers {who}", p=p, numbers=len(some))
