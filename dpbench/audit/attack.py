"""The attack: how well can planted examples be told apart from those that were left out, by all answers together.

Canary i is in the data with chance 1/2 and contributes its clip on coordinate i (`privacy.witness`). Its score is the
log-likelihood ratio of what was released there: the best there is (Neyman and Pearson). Scores of several releases add
up, each in units of its own noise. Where every example is in every sample they are normal, members' further up by
mu = sqrt(sum of 1 / sigma^2) standard deviations; under sampling they are not, and only counting says how far apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpbench.audit.bounds import SHARE
from dpbench.records.audit import Attack

COORDINATES = 40_000_000  # noise drawn for canaries in a whole fit, where that allows for more than the fewest of them
FEWEST, MOST = 100_000, 1_000_000


def count_canaries(numbers: int, epsilon: float) -> int:
    """Return how many canaries to plant in a fit that draws noise for each `numbers` times.

    Below epsilon 0.3 fewer than a million say nothing: more time is spent on them.
    """
    affordable = int(COORDINATES * (2.5 if epsilon < 0.3 else 1) // max(1, numbers))
    return min(MOST, max(FEWEST, affordable))


def draw_members(canaries: int, generator: np.random.Generator) -> np.ndarray:
    """Return who is in the data, (m,) bool: each with chance 1/2, on its own."""
    return generator.random(canaries) < 0.5


def count_guesses(canaries: int) -> int:
    """Return how many guesses are made about so many canaries."""
    return max(2, round(SHARE * canaries))


class CanaryScores:
    """The canaries' scores, answer by answer."""

    def __init__(self, member: np.ndarray) -> None:
        self._member, self._scores = member, np.zeros(len(member))
        self._precision, self._sampled = 0.0, False

    def __len__(self) -> int:
        return len(self._member)

    def add(self, shares: Sequence[np.ndarray], sigma: float, rate: float) -> None:
        """Add what one question released at the canaries' coordinates, by block and in clips (m,) each.

        The mean over blocks has the canary's share as its mean, and sigma as its standard deviation.
        """
        released = shares[0] if len(shares) == 1 else np.mean(shares, axis=0)
        ratio = (released - 0.5) / sigma**2
        if rate < 1:
            ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + ratio)
        self._scores += ratio
        self._precision += 1 / sigma**2
        self._sampled |= rate < 1

    @property
    def any(self) -> bool:
        """Whether anything was released at the canaries' coordinates: nothing is by choices."""
        return self._precision > 0

    def summarise(self) -> Attack:
        """Guess as often as was fixed in advance, and count: the highest are members, the lowest are not.

        Where samples are drawn, a low score may be that of a member who was never sampled: only the highest are used.
        """
        m = len(self._member)
        guesses = count_guesses(m)
        low = 0 if self._sampled else guesses // 2
        order = np.argpartition(self._scores, sorted({max(low - 1, 0), m - guesses + low}))
        right = int(self._member[order[m - guesses + low :]].sum() + (~self._member[order[:low]]).sum())
        inside, outside = self._scores[self._member], self._scores[~self._member]
        pooled = (inside.var() * len(inside) + outside.var() * len(outside)) / (m - 2)
        return Attack(
            canaries=m, members=len(inside), guesses=guesses, correct=right,
            mean=float((inside.mean() - outside.mean()) / math.sqrt(pooled)),
            mu=None if self._sampled else math.sqrt(self._precision),
        )  # fmt: skip
