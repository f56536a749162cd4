"""Optimisers that turn noisy gradients into steps, in addition to `AdamBC`. They are post-processing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor

GAIN = 0.7  # of the Kalman filter, the paper's
OptimiserName = Literal["momentum", "adam", "disk"]


class Optimiser(Protocol):
    """Turns noisy sums of gradients into directions, step by step."""

    def step(self, total: Tensor, weight: float = 1.0) -> Tensor:
        """Return the direction (p,) of a step with gradient `total` times `weight`; the next step may overwrite it."""


class MomentumSGD:
    """SGD with momentum: velocity = momentum * velocity + gradient."""

    def __init__(self, momentum: float) -> None:
        import torch

        self._momentum, self._velocity = momentum, torch.zeros(())

    def step(self, total: Tensor, weight: float = 1.0) -> Tensor:
        """Update the velocity, and return it."""
        if not self._velocity.ndim:
            self._velocity = total.new_zeros(total.shape)
        return self._velocity.mul_(self._momentum).add_(total, alpha=weight)


class KalmanFilter:
    """DiSK: a Kalman filter with a fixed gain over lookahead gradients (Zhang et al. 2024, arXiv:2410.03883).

    estimate = (1 - gain) * estimate + gain * gradient. Each example's gradient is computed at the parameters plus (1 -
    gain) / gain times the last step. The paper combines gradients at two points per step; with this distance, the
    second point has weight 0, so a step costs one gradient and has the sensitivity of one row. The paper's experiments
    use both points, at half the last step.
    """

    def __init__(self) -> None:
        import torch

        self._estimate = torch.zeros(())

    @property
    def lookahead(self) -> Tensor:
        """The direction to the point of the next gradient: (1 - gain) / gain times the last direction, 0 at first."""
        return self._estimate * ((1 - GAIN) / GAIN)

    def step(self, total: Tensor, weight: float = 1.0) -> Tensor:
        """Return the filtered gradient; the first estimate is the gradient itself."""
        gradient = total * weight
        self._estimate = self._estimate.lerp(gradient, GAIN) if self._estimate.ndim else gradient
        return self._estimate
