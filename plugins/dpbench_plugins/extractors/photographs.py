"""Prepare a photograph as networks for ImageNet expect it. It registers nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpbench import resize_pixels

if TYPE_CHECKING:
    from PIL.Image import Image, Resampling
    from torch import Tensor


def crop_photograph(
    image: Image, short: int, side: int, resample: Resampling, mean: Sequence[float] = (0,), std: Sequence[float] = (1,)
) -> Tensor:
    """Return (3, side, side) float32: short side resized to `short`, centre crop, pixels in [0, 1] normalised.

    The numbers are those of torchvision's transforms.
    """
    import torch

    scaled = tuple(short * length // min(image.size) for length in image.size)
    left, top = (round((length - side) / 2) for length in scaled)
    pixels = torch.arange(256).div(255).expand(3, -1)
    values = (pixels - torch.tensor(mean).unsqueeze(1)) / torch.tensor(std).unsqueeze(1)
    return resize_pixels(image, "RGB", (scaled[0], scaled[1]), resample, values, (left, top, left + side, top + side))
