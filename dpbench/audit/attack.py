"""The membership attack: tell planted canaries from canaries that were left out, using all answers together.

Canary i is in the data with chance 1/2 and contributes its clip on coordinate i (`privacy.witness`). Its score is the
log-likelihood ratio of the number released at that coordinate, the most powerful test (Neyman and Pearson). Scores of
several releases add up, each in units of its own noise. If every example is in every sample, scores are normal, and
members score mu = sqrt(sum of 1 / sigma^2) standard deviations higher. Under sampling, scores are not normal, and only
the number of correct guesses measures how far members and others are apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpbench.audit.bounds import GUESSED_SHARE
from dpbench.records.audit import CanaryAttackResult

MOST_NOISE_DRAWS = (
    40_000_000  # noise drawn for canaries in a whole fit, where that allows for more than the fewest of them
)
FEWEST_CANARIES, MOST_CANARIES = 100_000, 1_000_000


def choose_canary_count(draws_per_canary: int, epsilon: float) -> int:
    """Choose the number of canaries to plant in a fit that draws this many noise values for each canary.

    Below epsilon 0.3, fewer than a million canaries show nothing, so more time is allowed.
    """
    affordable = int(MOST_NOISE_DRAWS * (2.5 if epsilon < 0.3 else 1) // max(1, draws_per_canary))
    return min(MOST_CANARIES, max(FEWEST_CANARIES, affordable))


def draw_canary_membership(canaries: int, generator: np.random.Generator) -> np.ndarray:
    """Draw which canaries are in the data, (m,) bool: each independently with chance 1/2."""
    return generator.random(canaries) < 0.5


def choose_guess_count(canaries: int) -> int:
    """Return the number of guesses that the attack makes about this many canaries."""
    return max(2, round(GUESSED_SHARE * canaries))


class CanaryScores:
    """Accumulates the canaries' scores, answer by answer."""

    def __init__(self, member: np.ndarray) -> None:
        self._member, self._scores = member, np.zeros(len(member))
        self._precision, self._sampled = 0.0, False

    def __len__(self) -> int:
        return len(self._member)

    def add(self, shares: Sequence[np.ndarray], sigma: float, rate: float) -> None:
        """Add a released answer at the canaries' coordinates: one array (m,) per block, in units of the clip.

        The mean over blocks is the canary's contribution in clips plus noise of standard deviation `sigma`.
        """
        released = shares[0] if len(shares) == 1 else np.mean(shares, axis=0)
        ratio = (released - 0.5) / sigma**2
        if rate < 1:
            ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + ratio)
        self._scores += ratio
        self._precision += 1 / sigma**2
        self._sampled |= rate < 1

    @property
    def has_scores(self) -> bool:
        """Whether any answer included the canaries' coordinates; a choice has no such coordinates."""
        return self._precision > 0

    def summarise(self) -> CanaryAttackResult:
        """Guess that the highest scores are members and the lowest are not; count correct guesses.

        The number of guesses is fixed. Under sampling, a low score may belong to a member that was never sampled, so
        only the highest scores are used.
        """
        m = len(self._member)
        guesses = choose_guess_count(m)
        low = 0 if self._sampled else guesses // 2
        order = np.argpartition(self._scores, sorted({max(low - 1, 0), m - guesses + low}))
        right = int(self._member[order[m - guesses + low :]].sum() + (~self._member[order[:low]]).sum())
        inside, outside = self._scores[self._member], self._scores[~self._member]
        pooled = (inside.var() * len(inside) + outside.var() * len(outside)) / (m - 2)
        return CanaryAttackResult(
            canaries=m, members=len(inside), guesses=guesses, correct=right,
            mean=float((inside.mean() - outside.mean()) / math.sqrt(pooled)),
            mu=None if self._sampled else math.sqrt(self._precision),
        )  # fmt: skip
