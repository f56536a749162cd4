"""The smallest p-value of many statistics, with Bonferroni's correction, which also holds for dependent statistics.

Statistics of one kind overlap (a column contains its coordinates), so the exact distribution of the largest is unknown.
Even for independent statistics, Sidak's correction would differ by less than a thousandth at these levels. Each
statistic has an exact distribution or a bound on its tail, because a normal approximation is too coarse at a chance of
one in a billion.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpbench.records.audit import StatisticalCheck


@dataclass
class SmallestPValue:
    """The smallest p-value of many statistics, and the number of values behind that statistic."""

    count: int = 0
    p: float = 1.0
    numbers: int = 0

    def add(self, p: float, value_count: int, statistic_count: int = 1) -> None:
        """Add `statistic_count` statistics; the smallest p-value, `p`, was computed from `value_count` values."""
        self.count += statistic_count
        if p <= self.p:
            self.p, self.numbers = p, value_count

    def add_normal_statistics(self, z: np.ndarray | float, value_count: int) -> None:
        """Add standard normal statistics, each tested on both sides."""
        found = np.abs(z)
        if found.size:
            self.add(math.erfc(float(found.max()) / math.sqrt(2)), value_count, found.size)

    def add_sums_of_squares(self, sums: np.ndarray, value_count: int, float_spacing: float = 0.0) -> None:
        """Add sums of `value_count` squared standard normals each, tested for being too large or too small.

        Floats round the root of a sum by up to `float_spacing` / 2; the test for small sums adds this amount.
        """
        from scipy.special import chdtr, chdtrc

        if sums.size:
            least = (math.sqrt(float(sums.min())) + float_spacing / 2) ** 2
            above, below = float(chdtrc(value_count, sums.max())), float(chdtr(value_count, least))
            self.add(min(1.0, 2 * min(above, below)), value_count, sums.size)

    def add_event_counts(self, observed: np.ndarray, expected: np.ndarray, value_count: int) -> None:
        """Add counts of independent events with these expectations, tested for being too large.

        For counts above the expectation plus one, the Poisson tail is an upper bound, whatever the chance of each event
        (Hoeffding 1956).
        """
        from scipy.special import pdtrc

        if observed.size:
            tails = np.where(
                observed > expected + 1, pdtrc(np.maximum(observed - 1, 0), np.maximum(expected, 1e-300)), 1.0
            )
            self.add(float(tails.min()), value_count, observed.size)

    def add_hit_counts(self, hits: np.ndarray, trials: np.ndarray, rate: float) -> None:
        """Add counts of hits, tested on both sides; each trial hits with chance `rate`, whatever earlier trials gave.

        P-values come from Freedman's inequality, which also holds if the number of trials depends on earlier hits.
        """
        off, variance = np.abs(hits - rate * trials), rate * (1 - rate) * trials
        some = variance > 0
        if some.any():
            powers = off[some] ** 2 / (2 * (variance[some] + off[some] / 3))
            worst = int(powers.argmax())
            self.add(min(1.0, 2 * math.exp(-powers[worst])), int(trials[some][worst]), int(some.sum()))

    def test(self, name: str) -> Iterator[StatisticalCheck]:
        """Yield the joint test of all statistics, if there are any."""
        if self.count:
            p = min(1.0, self.count * self.p)
            yield StatisticalCheck(name=name, p=p, statistics=self.count, numbers=self.numbers)
