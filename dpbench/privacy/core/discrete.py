"""Noise with an exact distribution: OpenDP's discrete Gaussians, for `--secure-rng`.

Floating-point numbers cannot be normally distributed: noise from a generator of doubles has gaps, from which a sum can
be read (Mironov 2012). Here, noise is integers. OpenDP draws them with exact rational arithmetic from a cryptographic
generator that the operating system seeds (Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy,
2020).

Answers get the noise of `draw_rounded_gaussian`: a discrete Gaussian on a lattice 2^k times as fine as the grid, with a
standard deviation of `s` >= 2^44 lattice steps, rounded to the grid.

Covered, for integer sums of sensitivity D in grid steps (L2, add or remove one) and noise of `std` grid steps (with a
std for each coordinate, D / std means sqrt(sum_j (d_j / std_j)^2)): the (epsilon, delta) that any accountant states
for continuous noise, Poisson sampling included, with epsilon larger by less than 1e-12 and delta by a factor below
1 + 1e-12, for every epsilon below 600 and up to 10^12 numbers in total (`check_duration` refuses a release of more than
10^10).

- Rounding commutes with adding a whole number, so adding continuous noise that is rounded to the lattice equals
  rounding the answer of the continuous mechanism: post-processing.
- The chance of lattice step k under this rounded continuous noise is within a factor 1 + (k^2 / s^2 - 1) / (24 s^2) of
  the discrete Gaussian's. For |k| <= 40 s and s >= 2^44 the factor is within 1 +- 2.2e-25, so over 10^12 numbers, even
  if questions follow from earlier answers, the likelihood ratio of the two kinds of noise is within 1 +- 2.2e-13; the
  chance of any larger |k| is below 1e-300. The epsilons of the two mechanisms differ by at most two such ratios.
- As a cross-check, the discrete Gaussian satisfies (D / std)^2 / 2 zero-concentrated DP, like the continuous one
  (section 2 of that paper).

Not covered: the duration of sampling, which depends on the noise drawn; errors in OpenDP's sampler, whose algorithm is
proven, but whose code OpenDP marks as contributed (not yet audited).
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpbench.errors import SpecError
from dpbench.support.messages import format_duration

SECONDS_PER_NUMBER = 12e-6  # a number, on one core
FINEST = 44  # log2 of the least standard deviation, in steps of the lattice that noise is drawn on
MOST_LATTICE_STEPS = 2.0**58  # standard deviation in lattice steps: noise stays far inside 64 bits
CHUNK = 50_000  # numbers drawn at once


def check_opendp_installed() -> None:
    """Check that OpenDP is installed.

    Raises:
        SpecError: OpenDP is not installed; the message says how to install it.
    """
    if importlib.util.find_spec("opendp") is None:
        raise SpecError(
            "Secure noise needs OpenDP's exact sampler, which is not installed. "
            "Run pip install 'dpbench-vision[secure]', or run without --secure-rng."
        )


def draw_rounded_gaussian(shape: Sequence[int], std: float | np.ndarray) -> np.ndarray:
    """Draw Gaussian noise in whole grid steps, int64 of this shape; see the module for its guarantee.

    Args:
        shape: the shape of the answer.
        std: standard deviation in grid steps, one for all or an array that broadcasts to `shape`; 0 adds nothing.

    Raises:
        SpecError: a standard deviation that is negative, not finite, or too large for 64 bits.
    """
    wanted = np.broadcast_to(np.asarray(std, np.float64), tuple(shape))
    noise = np.zeros(wanted.shape, np.int64)
    for value in np.unique(wanted):
        if value:
            here = wanted == value
            noise[here] = _draw_rounded(int(here.sum()), float(value))
    return noise


def draw_discrete_gaussian(shape: Sequence[int], std: float) -> np.ndarray:
    """Draw int64 numbers k with probability proportional to exp(-k^2 / (2 std^2)), exactly.

    Raises:
        SpecError: a standard deviation that is not positive, not finite, or too large for 64 bits.
    """
    if not 0 < std <= MOST_LATTICE_STEPS:
        raise SpecError(f"Expected std={std} in (0, 2^58]: the standard deviation of integer noise.")
    count = math.prod(shape)
    parts = [np.array(_draw_with_opendp(min(CHUNK, count - start), std), np.int64) for start in range(0, count, CHUNK)]
    return np.concatenate([*parts, np.empty(0, np.int64)]).reshape(tuple(shape))


def check_duration(numbers_per_step: int, steps: int, release: str, *, quiet: bool = False) -> None:
    """Estimate how long drawing a release's exact noise takes; unless `quiet`, warn if it takes over ten minutes.

    Raises:
        SpecError: the estimate is above a day.
    """
    seconds = SECONDS_PER_NUMBER * numbers_per_step * steps
    size = f"{steps:,} x {numbers_per_step:,} numbers"
    cost = f"Secure noise for release {release!r}: {size}, about {format_duration(seconds)} a fit."
    if seconds > 86_400:
        raise SpecError(f"{cost} That is above a day. Plan fewer numbers, or run without --secure-rng.")
    if seconds > 600 and not quiet:
        print(f"dpbench: {cost}", file=sys.stderr)


def _draw_rounded(count: int, std: float) -> np.ndarray:
    finer = max(0, FINEST - math.frexp(std)[1] + 1) if math.isfinite(std) else 0
    noise = draw_discrete_gaussian((count,), math.ldexp(std, finer))
    return noise if finer == 0 else ((noise >> (finer - 1)) + 1) >> 1


def _draw_with_opendp(count: int, std: float) -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"), size=count)
    return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=std)([0] * count)
