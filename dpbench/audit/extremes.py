"""The most surprising of many statistics, corrected for how many there are: Bonferroni's bound, whatever they share.

Statistics of one kind overlap (a column and its coordinates), so that no exact law of their largest is at hand; and
where they are independent, Sidak's correction is the same to a thousandth at these levels. Each statistic has an exact
law, or a bound on its tail: a normal approximation is not good at the one in a billion that is needed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpbench.records.audit import Check


@dataclass
class Extreme:
    """The least p of many statistics, and how many numbers it is made of."""

    count: int = 0
    p: float = 1.0
    numbers: int = 0

    def add(self, p: float, numbers: int, count: int = 1) -> None:
        """Add `count` statistics, of which the most surprising has this p."""
        self.count += count
        if p <= self.p:
            self.p, self.numbers = p, numbers

    def add_normals(self, z: np.ndarray | float, numbers: int) -> None:
        """Add standard normals."""
        found = np.abs(z)
        if found.size:
            self.add(math.erfc(float(found.max()) / math.sqrt(2)), numbers, found.size)

    def add_squares(self, sums: np.ndarray, numbers: int, coarse: float = 0.0) -> None:
        """Add sums of so many squared standard normals each: too large or too small.

        Each sum is known to half of `coarse`, as a length: what floats round to 0 may have been as long as that.
        """
        from scipy.special import chdtr, chdtrc

        if sums.size:
            least = (math.sqrt(float(sums.min())) + coarse / 2) ** 2
            above, below = float(chdtrc(numbers, sums.max())), float(chdtr(numbers, least))
            self.add(min(1.0, 2 * min(above, below)), numbers, sums.size)

    def add_counts(self, found: np.ndarray, expected: np.ndarray, numbers: int) -> None:
        """Add counts of independent events with these expectations: too many.

        A count of rare events, whatever the chance of each, has a tail below that of Poisson's law from one above the
        expectation on (Hoeffding 1956).
        """
        from scipy.special import pdtrc

        if found.size:
            tails = np.where(found > expected + 1, pdtrc(np.maximum(found - 1, 0), np.maximum(expected, 1e-300)), 1.0)
            self.add(float(tails.min()), numbers, found.size)

    def add_hits(self, hits: np.ndarray, trials: np.ndarray, rate: float) -> None:
        """Add counts of hits, each trial a hit with chance `rate` whatever came before: too many or too few.

        By Freedman's inequality, which holds where the number of trials follows from earlier hits as well.
        """
        off, variance = np.abs(hits - rate * trials), rate * (1 - rate) * trials
        some = variance > 0
        if some.any():
            powers = off[some] ** 2 / (2 * (variance[some] + off[some] / 3))
            worst = int(powers.argmax())
            self.add(min(1.0, 2 * math.exp(-powers[worst])), int(trials[some][worst]), int(some.sum()))

    def test(self, name: str) -> Iterator[Check]:
        """Yield the test that all of them make together; nothing where there are none."""
        if self.count:
            p = min(1.0, self.count * self.p)
            yield Check(name=name, p=p, statistics=self.count, numbers=self.numbers)
