"""Prepare a photograph as networks for ImageNet expect it. It registers nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpbench import resize_pixels
from dpbench_plugins.extractors.pixel_values import make_unit_value_table

if TYPE_CHECKING:
    from PIL.Image import Image, Resampling
    from torch import Tensor


def crop_photograph(image: Image, short: int, side: int, resample: Resampling, values: Tensor) -> Tensor:
    """Return (3, side, side) float32: short side resized to `short`, centre crop, the values (3, 256) of 8-bit colours.

    The numbers are those of torchvision's transforms.
    """
    scaled = tuple(short * length // min(image.size) for length in image.size)
    left, top = (round((length - side) / 2) for length in scaled)
    crop = left, top, left + side, top + side
    return resize_pixels(image, "RGB", (scaled[0], scaled[1]), resample, values, crop)


def make_normalised_value_table(mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Return the numbers that stand for 8-bit colours, (3, 256) float32: those in [0, 1] minus `mean`, over `std`."""
    import torch

    return (make_unit_value_table(3) - torch.tensor(mean).unsqueeze(1)) / torch.tensor(std).unsqueeze(1)
