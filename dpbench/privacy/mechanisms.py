"""The Gaussian mechanism: clip, sum, noise. Pure functions of arrays and draws."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dpbench.privacy.forms.contributions import Contribution
from dpbench.privacy.forms.rounding import weights_for
from dpbench.privacy.randomness import Draws

GRID_BITS = 20


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


def noised(total: Tensor, std: float, draws: Draws) -> Tensor:
    """Return float32 `total`, rounded to a grid of std * 2^-20 or finer, plus normal noise in whole steps of it.

    The grid is a power of two that depends on `std` alone; noise of about a million steps is added in integers. With
    ``std == 0`` the sum is returned as it is.

    Covered: a sum of sensitivity s is (epsilon, delta)-DP as the accountant says for sigma = std / s.
    Not covered: research draws are normals rounded to the grid, by a generator that is not cryptographic.
    """
    if std == 0:
        return total.float()
    grid = 2.0 ** (math.floor(math.log2(std)) - GRID_BITS)
    noise = torch.from_numpy(draws.noise(tuple(total.shape), std / grid)).to(total.device)
    return (total.div(grid).round().to(torch.int64) + noise).double().mul_(grid).float()
