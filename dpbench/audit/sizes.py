"""The distribution of Poisson sample sizes: the sum of squared deviations from the expected size, over all steps.

A size is binomial. The sum of squared deviations, each divided by the variance, is nearly chi-square if samples are
expected to be large. If they are not, the tail is much heavier: with one expected row and ten steps, a chi-square test
at a level of 5e-5 rejects 38 times as often.
"""

from __future__ import annotations

import math

import numpy as np

FEWEST_INCLUSIONS = 2_000  # expected inclusions of all steps, below which the law is computed
GRID_SLACK = 0.02  # standard deviations of the sum, by which its place on the grid may be off
LEAST_CHANCE = 1e-12  # chances that are told from 0


def sample_size_tails(squares: float, steps: int, members: int, rate: float) -> tuple[float, float]:
    """Return the chances that the sum of squared deviations is at least, and at most, `squares`.

    Args:
        squares: the sum over steps of (size - members * rate)^2 / (members * rate * (1 - rate)).
        steps: the number of samples drawn.
        members: the number of rows that a sample can contain, each independently of the others.
        rate: the chance that a row is in a sample, above 0 and below 1.
    """
    from scipy.special import chdtr, chdtrc

    variance = members * rate * (1 - rate)
    kurtosis = (1 - 6 * rate * (1 - rate)) / variance  # of a size, in excess: the sum has variance steps (2 + kurtosis)
    if steps * members * min(rate, 1 - rate) < FEWEST_INCLUSIONS:
        return _exact_sample_size_tails(squares, steps, members, rate, math.sqrt(steps * (2 + kurtosis)))
    scale = 1 + kurtosis / 2  # a chi-square with the same mean and variance
    return float(chdtrc(steps / scale, squares / scale)), float(chdtr(steps / scale, squares / scale))


def _exact_sample_size_tails(
    squares: float, steps: int, members: int, rate: float, deviation: float
) -> tuple[float, float]:
    """Return both tails by convolving the distribution of one step over all steps, on a grid, with the FFT."""
    from scipy.stats import binom

    low, high = binom.ppf([LEAST_CHANCE**2, 1 - LEAST_CHANCE / 100], members, rate)
    high = max(high, float(binom.isf(LEAST_CHANCE / steps, members, rate)))
    sizes = np.arange(low, high + 1)
    values = (sizes - members * rate) ** 2 / (members * rate * (1 - rate))
    least = float(values.min())  # the most likely size, in the first bin: so steps without a member are not rounded
    inclusions = steps * members * min(rate, 1 - rate)  # each is rounded by half a bin at most
    count = 2 ** math.ceil(math.log2(30 / GRID_SLACK * (inclusions + 10)))
    width = (60 * deviation + 3 * float(values.max() - least)) / count
    law = np.bincount(np.rint((values - least) / width).astype(int), binom.pmf(sizes, members, rate), count)
    whole = np.fft.irfft(np.fft.rfft(law) ** steps, count)
    place, slack = (squares - steps * least) / width, GRID_SLACK * deviation / width
    above = float(whole[max(0, math.floor(place - slack)) :].sum())
    below = float(whole[: max(0, math.ceil(place + slack)) + 1].sum())
    return min(1.0, max(LEAST_CHANCE, above)), min(1.0, max(LEAST_CHANCE, below))
