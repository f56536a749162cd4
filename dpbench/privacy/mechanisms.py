"""The Gaussian mechanism on Poisson samples: sample, clip, sum, noise. Pure functions of arrays and generators."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from dpbench.privacy.forms.contributions import Contribution
from dpbench.privacy.forms.rounding import weights_for

GRID_BITS = 20


def poisson_sample(size: int, rate: float, generator: np.random.Generator) -> np.ndarray:
    """Return the indices of a Poisson sample, ascending int64: each of `size` examples with chance `rate`, on its own.

    Draws the gaps between chosen indices, which are geometric, so the cost is O(size * rate) and not O(size).
    """
    if rate == 1:
        return np.arange(size)
    expected = size * rate
    count = int(expected + 6 * math.sqrt(expected) + 16)
    parts, last = [], -1
    while last < size:
        gaps = np.minimum(generator.geometric(rate, count), size + 1)  # a longer gap leaves the range all the same
        parts.append(last + np.cumsum(gaps))
        last = int(parts[-1][-1])
    chosen = np.concatenate(parts)
    return chosen[: np.searchsorted(chosen, size)]


def clipped_sum(contribution: Contribution, clip: float) -> Tensor:
    """Return the float64 sum of the rows, each scaled down to L2 norm at most `clip`.

    Sensitivity: adding or removing one example moves the sum by at most `clip`: norms are upper bounds (see
    `contributions`) and a row that is not finite counts as zero.

    Not covered: the rounding of the accumulation itself, which is common to all rows; the coarse grid of `noised`
    hides it (see there).
    """
    norms = contribution.norms()  # (c,) float64
    finite = norms.isfinite()
    if not bool(finite.all()):
        kept = finite.nonzero().squeeze(1)
        contribution, norms = contribution.take(kept), norms[kept]
    return contribution.weighted_sum(weights_for(norms, clip))


def noised(total: Tensor, std: float, generator: np.random.Generator) -> Tensor:
    """Return float32 `total` plus normal noise of standard deviation `std`, rounded to a grid of std * 2^-20 or finer.

    Noise is drawn in float64; the grid, a power of two that depends on `std` alone, takes away the low bits from which
    floating-point attacks read the sum (Mironov 2012). With ``std == 0`` the sum is returned as it is.

    Covered: a sum of sensitivity s is (epsilon, delta)-DP as the accountant says for sigma = std / s.
    Not covered: numpy's generator is not cryptographic, and the grid is a mitigation, not a discrete Gaussian.
    """
    if std == 0:
        return total.float()
    noise = torch.from_numpy(generator.standard_normal(tuple(total.shape))).to(total.device)
    grid = 2.0 ** (math.floor(math.log2(std)) - GRID_BITS)
    return noise.mul_(std).add_(total).div_(grid).round_().mul_(grid).float()
