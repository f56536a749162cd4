"""Augmented views of images. A view depends only on its image, the seed of the image's row, and the view's index."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

MEAN, DEVIATION = 0.5, 0.25  # fixed: those of a private set would be an answer without noise
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # of SplitMix64
_BITS = 20  # of each draw; 2^20 is far above any number of places


def normalise_pixels(x: Tensor) -> Tensor:
    """Shift and scale pixels in [0, 1] to about mean 0 and standard deviation 1, by constants that depend on no data.

    Differs from the code of Tang et al. and of De et al., which normalises by the private training set's statistics.
    """
    return (x - MEAN) / DEVIATION


@dataclass(frozen=True)
class Augmentation:
    """Augmentation multiplicity: `count` random crops of an image padded by reflection; `flip` mirrors half of them.

    Source: De et al. 2022, section 3 (after Fort et al. 2021, Hoffer et al. 2019). With `count` 0, the image is its
    only view.
    """

    count: int = 16
    padding: int = 4
    flip: bool = True

    @property
    def views_per_image(self) -> int:
        """The number of views of an image."""
        return max(1, self.count)

    def __call__(self, x: Tensor, seeds: Tensor) -> Tensor:
        """Return views (c, views, channels, h, w) of images (c, channels, h, w) with row seeds (c,)."""
        if not self.count:
            return x.unsqueeze(1)
        c, _, height, width = x.shape
        drawn = hash_seeds(seeds, self.count)  # (c, k)
        down, right = ((drawn >> start & (2**_BITS - 1)) % (2 * self.padding + 1) for start in (0, _BITS))
        rows = down.unsqueeze(2) + torch.arange(height, device=x.device)  # (c, k, h)
        columns = torch.arange(width, device=x.device).expand(c, self.count, width)
        if self.flip:
            mirrored = (drawn >> 2 * _BITS & 1).bool().unsqueeze(2)
            columns = torch.where(mirrored, width - 1 - columns, columns)
        columns = columns + right.unsqueeze(2)  # (c, k, w)
        padded = pad(x, (self.padding,) * 4, mode="reflect") if self.padding else x
        index = torch.arange(c, device=x.device).reshape(c, 1, 1, 1)
        # Indexed beside a slice, the indexed axes come first: (c, k, h, w, channels).
        return padded[index, :, rows.unsqueeze(3), columns.unsqueeze(2)].permute(0, 1, 4, 2, 3)


def hash_seeds(seeds: Tensor, count: int) -> Tensor:
    """Return SplitMix64 hashes (c, count) int64, one for each seed in `seeds` (c,) and each index below `count`."""
    z = seeds.unsqueeze(1) + (torch.arange(count, device=seeds.device) + 1) * _to_signed_int64(_GOLDEN)
    z = (z ^ _logical_shift_right(z, 30)) * _to_signed_int64(_FIRST)
    z = (z ^ _logical_shift_right(z, 27)) * _to_signed_int64(_SECOND)
    return z ^ _logical_shift_right(z, 31)


def _logical_shift_right(z: Tensor, bits: int) -> Tensor:
    return z >> bits & (1 << 64 - bits) - 1  # int64 shifts copy the sign; the mask takes the copies away


def _to_signed_int64(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
