"""Optimisers that use noisy gradients and the known size of their noise: post-processing, which costs no privacy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

MOMENT_DECAYS = 0.9, 0.999
RELATIVE_FLOOR = 1e-3  # of the mean debiased second moment: what is divided by, where noise hides the gradient


class AdamBC:
    """Adam with the variance of the noise subtracted from its second moment (Tang et al. 2024, arXiv:2312.14334).

    Tang, Shpilevskiy and Lecuyer call it DP-AdamBC. `noise` is the standard deviation of the noise in each number of a
    gradient. After the subtraction, the second moment is clamped from below at `noise` squared times the relative
    uncertainty of the estimate, so that no number is divided by mere noise. In the paper, this floor is a setting.
    """

    def __init__(self, noise: float) -> None:
        """Start with empty moments. Use an optimiser for a single training only."""
        import torch

        self._noise, self._steps = noise, 0
        self._first = self._second = torch.zeros(())

    def step(self, total: Tensor, weight: float = 1.0) -> Tensor:
        """Return the direction of the step for the gradient `total` times `weight`.

        The direction is the first moment divided by the root of the second. Its entries are about 1 in size where the
        signal dominates the noise.
        """
        import torch

        gradient = total * weight
        self._steps += 1
        self._first = torch.lerp(gradient, self._first.to(gradient.device), MOMENT_DECAYS[0])
        self._second = torch.lerp(gradient.square(), self._second.to(gradient.device), MOMENT_DECAYS[1])
        first, second = (
            moment / (1 - beta**self._steps)
            for moment, beta in zip((self._first, self._second), MOMENT_DECAYS, strict=True)
        )
        signal = second - self._noise**2
        floor = max(self._noise**2 * (2 / self._steps) ** 0.5, RELATIVE_FLOOR * float(signal.mean().clamp(min=1e-20)))
        return first / signal.clamp(min=floor).sqrt()
