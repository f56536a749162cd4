"""An image's pixels as a tensor, for several extractors. It registers nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dpbench import resize_pixels

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

Mode = Literal["stored", "RGB", "L"]


def convert_image_to_tensor(image: Image, size: int | None, mode: Mode) -> Tensor:
    """Return an image as (channels, height, width) float32 in [0, 1].

    With mode `stored`, a grey image has one channel and any other becomes RGB. With a `size`, the image is resized to
    size x size (bilinear).
    """
    import numpy as np
    import torch
    from PIL.Image import Resampling

    mode = mode if mode != "stored" else "L" if image.mode == "L" else "RGB"
    if size:
        return resize_pixels(
            image, mode, (size, size), Resampling.BILINEAR, make_unit_value_table(1 if mode == "L" else 3)
        )
    image = image if image.mode == mode else image.convert(mode)
    pixels = torch.from_numpy(np.array(image)).float() / 255  # (h, w) or (h, w, 3)
    return pixels.unsqueeze(0) if pixels.ndim == 2 else pixels.permute(2, 0, 1)


def make_unit_value_table(channels: int) -> Tensor:
    """Return the numbers in [0, 1] that stand for 8-bit ones, (channels, 256) float32."""
    import torch

    return torch.arange(256).float().div_(255).repeat(channels, 1)
