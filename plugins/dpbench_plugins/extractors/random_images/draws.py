"""Random numbers of an image: each is a hash of the seed, the image's index and the index of the draw."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dpbench_plugins.networks.views import hash_seeds

_BITS = 23  # of each uniform number; with one half added float32 holds it exactly


class ImageRandomState:
    """Random numbers for a batch of images, each from the image's own stream, in a fixed order.

    The numbers of image i depend on (seed, i) and the calls so far, not on the other images or the device.
    """

    def __init__(self, seed: int, indices: Tensor, purpose: int = 0) -> None:
        """Start the streams of the images `indices` (n,) int64; each `purpose` has its own streams."""
        start = hash_seeds(torch.tensor([seed], device=indices.device), purpose + 1)[:, -1]
        self._keys = hash_seeds(start ^ indices, 1)[:, 0]  # (n,)

    @property
    def device(self) -> torch.device:
        """The device that the numbers are on."""
        return self._keys.device

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Return (n, *shape) float32, uniform in (low, high)."""
        drawn = hash_seeds(self._keys, 1 + math.prod(shape))
        self._keys = drawn[:, 0]
        bits = drawn[:, 1:] >> (64 - _BITS) & (1 << _BITS) - 1
        unit = (bits.float() + 0.5) / (1 << _BITS)
        return (low + (high - low) * unit).reshape(len(unit), *shape)

    def integers(self, *shape: int, below: int) -> Tensor:
        """Return (n, *shape) int64, uniform in [0, below)."""
        return (self.uniform(*shape) * below).long().clamp(max=below - 1)

    def normal(self, *shape: int) -> Tensor:
        """Return (n, *shape) float32, standard normal."""
        quantiles: Tensor = torch.special.ndtri(self.uniform(*shape))
        return quantiles

    def laplace(self, *shape: int) -> Tensor:
        """Return (n, *shape) float32 of the Laplace distribution with scale 1."""
        centred = self.uniform(*shape, low=-0.5, high=0.5)
        tail: Tensor = torch.log1p(-2 * centred.abs().clamp(max=0.4999999))  # at most 0
        return tail.copysign(centred)
