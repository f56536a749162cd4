"""Discrete noise for integer sums: each draw is an integer multiple of the step of the sum's grid."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dpbench.errors import SpecError
from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.privacy.core.randomness import NoiseSource, Std

MOST_STEPS = 2.0**56  # standard deviation of noise in grid steps: sums and noise stay inside 64 bits


def add_noise(summed: IntegerSum, std: Std, draws: NoiseSource) -> Tensor:
    """Return the sum plus normal noise of standard deviation `std`, rounded to the sum's own grid, in float32.

    `std` may be an array that broadcasts with the sum. At epsilon = inf, `std` is 0 and no noise is drawn.

    The grid is public: its step is the clip times a power of two that depends on the row's shape (see `exact.sums`).
    Noise of about a million steps is added in integers, so the low bits of an answer reveal nothing about the rows
    (Mironov 2012).

    Covered: a sum of sensitivity s has the (epsilon, delta) that the accountant states for sigma = std / s.
    Not covered: that research noise consists of normals rounded to the grid, from a generator that is not
    cryptographic.

    Raises:
        SpecError: see `draw_noise`.
    """
    return add_drawn_noise(summed, draw_noise(summed, std, draws))


def draw_noise(summed: IntegerSum, std: Std, draws: NoiseSource) -> np.ndarray | None:
    """Draw the noise of a sum in whole grid steps, int64, from its shape and grid alone; None if every std is 0.

    Raises:
        SpecError: the std of a coordinate is above 2^56 grid steps, so 64 bits may not hold its noise.
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
    """Return a sum plus its noise from `draw_noise`, in float32; overwrites `noise`. If it is None, add nothing."""
    if noise is None:
        return summed.value().float()
    noisy = torch.from_numpy(noise).to(summed.total.device).add_(summed.total)
    return noisy.double().mul_(summed.grid).float()
