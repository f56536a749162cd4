"""Noise on an integer sum, in whole steps of its own grid. A pure function of arrays and draws."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dpbench.errors import SpecError
from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.privacy.core.randomness import NoiseSource, Std

MOST_STEPS = 2.0**56  # standard deviation of noise in grid steps: sums and noise stay inside 64 bits


def add_noise(summed: IntegerSum, std: Std, draws: NoiseSource) -> Tensor:
    """Return the sum in float32, with normal noise of standard deviation `std` in whole steps of the sum's own grid.

    An array of standard deviations broadcasts with the sum. At epsilon = inf all are 0, and nothing is drawn.

    The grid is public: the clip times a power of two that the row's shape decides (see `exact.sums`). Noise of some
    million steps is added in integers, so that the low bits of an answer tell nothing of the rows (Mironov 2012).

    Covered: a sum of sensitivity s is (epsilon, delta)-DP as the accountant says for sigma = std / s.
    Not covered: research draws are normals rounded to the grid, by a generator that is not cryptographic.

    Raises:
        SpecError: see `draw_noise`.
    """
    return add_drawn_noise(summed, draw_noise(summed, std, draws))


def draw_noise(summed: IntegerSum, std: Std, draws: NoiseSource) -> np.ndarray | None:
    """Draw the noise of a sum in whole grid steps, int64, reading only its grid; None if every std is 0.

    Raises:
        SpecError: noise of some coordinate that 64 bits cannot hold; what does not fit would be no noise.
    """
    if not (std.any() if isinstance(std, np.ndarray) else std):
        return None
    steps = std / summed.grid.cpu().numpy()
    if steps.size and not steps.max() <= MOST_STEPS:
        raise SpecError(
            f"Expected noise of at most 2^56 grid steps, got {steps.max():.2g}. Plan a smaller relative_noise, "
            "or a Scaled contribution whose scale varies less."
        )
    return draws.noise(summed.total.shape, steps.item() if steps.size == 1 else steps)


def add_drawn_noise(summed: IntegerSum, noise: np.ndarray | None) -> Tensor:
    """Return the sum in float32 plus the noise that `draw_noise` drew for it, whose array is overwritten."""
    if noise is None:
        return summed.value().float()
    noisy = torch.from_numpy(noise).to(summed.total.device).add_(summed.total)
    return noisy.double().mul_(summed.grid).float()
