"""Lower bounds on epsilon from an attack: guesses about planted examples, each in the data with chance 1/2.

The number of guesses is fixed before any score is seen. Trying several numbers and keeping the best result gives no
valid bound: with 10^4 canaries it gave 0.143 at a true epsilon of 0.1.

=================== ====================== ==========================================================================
function            bounds                 source
=================== ====================== ==========================================================================
`steinke_bound`     epsilon at this delta  Steinke, Nasr, Jagielski 2023 (2305.08846), theorem 5.2
`mahloujifar_bound` mu of Gaussian DP      Mahloujifar, Melis, Chaudhuri 2024 (2410.22235), algorithm 3
`gaussian_mu_bound`       mu, if the scores are  a t-test (Let's Ask Gauss, 2606.12733): an estimate. Like the order
                    normal and independent statistics of Xiang et al. (2509.08704), it needs independent canaries; if
                                           all canaries share their luck, both report far too much
=================== ====================== ==========================================================================
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from dpbench.privacy.core.accounting.accountant import silence_accounting_libraries

SIGNIFICANCE = 0.05  # of the bounds that are shown
GUESSED_SHARE = 0.03  # of the canaries that are guessed about
LARGEST_BOUND = 200.0  # epsilon, and mu: no audit can see more
_CONFIRMED = 1e-7  # relative: what a confirmed bound may be off by, a tenth of what stored numbers may
_NORMAL = NormalDist()


def steinke_p_value(epsilon: float, delta: float, canaries: int, guesses: int, correct: int) -> float:
    """Return an upper bound on the chance of at least this many correct guesses under (epsilon, delta)-DP."""
    from scipy.special import bdtrc, expit

    right, wrong = -np.logaddexp(0, -epsilon), -np.logaddexp(0, epsilon)  # logs of the chances of a guess
    beta = float(bdtrc(correct - 1, guesses, expit(epsilon))) if correct else 1.0  # P[at least correct]
    hits = np.arange(correct)[::-1]
    fewer = np.cumsum(np.exp(_log_binomials(guesses)[hits] + hits * right + (guesses - hits) * wrong))
    alpha = float(np.max(fewer / np.arange(1, correct + 1), initial=0.0))  # P[correct - i or more, but not correct] / i
    return min(1.0, beta + 2 * canaries * delta * alpha)


@functools.cache
def _log_binomials(guesses: int) -> np.ndarray:
    """Return the logarithms of the binomial coefficients for 0 to `guesses` hits; cached for the bisection."""
    from scipy.special import gammaln

    hits = np.arange(guesses + 1)
    ways: np.ndarray = gammaln(guesses + 1) - gammaln(hits + 1) - gammaln(guesses - hits + 1)
    return ways


@functools.cache  # entries of a leaderboard share many of these
def steinke_bound(delta: float, canaries: int, guesses: int, correct: int, near: float = 0.0) -> float:
    """Return the largest epsilon that the guesses reject: a 95% lower bound; `near`: see `find_largest_rejected`."""
    return find_largest_rejected(
        lambda epsilon: steinke_p_value(epsilon, delta, canaries, guesses, correct) <= SIGNIFICANCE, near
    )


def rejects_mu(mu: float, canaries: int, guesses: int, correct: int, significance: float) -> bool:
    """Return whether this many correct guesses reject mu-Gaussian DP (Mahloujifar et al., algorithm 3)."""
    from scipy.special import ndtr, ndtri

    right, wrong = significance * correct / canaries, significance * (guesses - correct) / canaries
    for place in range(correct - 1, -1, -1):
        more = max(wrong, float(ndtr(ndtri(right) - mu)))
        if more == wrong:
            break
        right = min(1.0, right + place / (guesses - place) * (more - wrong))
        wrong = more
    return right + wrong > guesses / canaries


@functools.cache
def mahloujifar_bound(canaries: int, guesses: int, correct: int, near: float = 0.0) -> float:
    """Return the largest mu of Gaussian DP that the guesses reject: a 95% lower bound.

    For `near`, see `find_largest_rejected`.
    """
    return find_largest_rejected(lambda mu: rejects_mu(mu, canaries, guesses, correct, SIGNIFICANCE), near)


def gaussian_mu_bound(mean: float, members: int, non_members: int) -> tuple[float, float]:
    """Return a one-sided lower bound on mu and the standard error of `mean`.

    `mean` is the mean score of the members minus that of the others, the canaries that were left out, in standard
    deviations of a score. The bound is an estimate: it assumes normal and independent scores, which other tests check.
    """
    error = math.sqrt(1 / members + 1 / non_members + mean**2 / (2 * (members + non_members)))
    return mean - _NORMAL.inv_cdf(1 - SIGNIFICANCE) * error, error


@functools.cache
def gaussian_dp_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of mu-Gaussian DP at delta; 0 if mu is not positive."""
    from dp_accounting import get_epsilon_gaussian

    with silence_accounting_libraries():  # of logarithms of 0, near epsilon 0
        return float(get_epsilon_gaussian(1 / mu, delta)) if mu > 0 else 0.0


@functools.cache
def gaussian_dp_mu(epsilon: float, delta: float) -> float:
    """Return the mu of the Gaussian mechanism that has this epsilon at delta; 0 if epsilon is not positive."""
    from dp_accounting import get_sigma_gaussian

    with silence_accounting_libraries():
        return 1 / float(get_sigma_gaussian(epsilon, delta)) if epsilon > 0 else 0.0


def find_largest_rejected(is_rejected: Callable[[float], bool], near: float = 0.0) -> float:
    """Find the largest rejected number by bisection, to 1e-9; return 0 if no number is rejected.

    Every number below a rejected number must be rejected too: the chance of guessing right rises with epsilon.

    Args:
        is_rejected: returns whether a number is rejected.
        near: a number to confirm, such as a stated bound. It is returned if the largest rejected number lies within a
            relative 1e-7 of it, which takes two evaluations instead of thirty.
    """
    if 0 < near < LARGEST_BOUND and is_rejected(near * (1 - _CONFIRMED)) and not is_rejected(near * (1 + _CONFIRMED)):
        return near
    if not is_rejected(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while is_rejected(high):
        if high >= LARGEST_BOUND:
            return high
        low, high = high, 2 * high
    while high - low > 1e-9 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if is_rejected(middle) else (low, middle)
    return low
