"""Resize images as Pillow does, bit for bit and three to five times as fast; crop them and look up their values."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Literal

from dpbench.support import progress

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image, Resampling
    from torch import Tensor

Box = tuple[int, int, int, int]
TRIED = ((40, 30, 17, 23), (9, 14, 31, 20))  # (width, height) before and after, of images that are compared


def resize_pixels(
    image: Image,
    mode: Literal["RGB", "L"],
    size: tuple[int, int],
    resample: Resampling,
    values: Tensor,
    crop: Box | None = None,
) -> Tensor:
    """Return the values of a resized image's pixels, (channels, height, width) float32.

    The pixels are those of `image.convert(mode).resize(size, resample).crop(crop)`.

    Args:
        image: the image.
        mode: the colours that it is converted to.
        size: width and height of the resized image.
        resample: Pillow's filter; `BILINEAR` and `BICUBIC` are fast, and Pillow computes all others.
        values: (channels, 256) float32, the value of each 8-bit number.
        crop: left, top, right and bottom, inside the resized image; None: all of it.
    """
    import numpy as np
    import torch

    image = image if image.mode == mode else image.convert(mode)
    crop = crop or (0, 0, *size)
    table = np.ascontiguousarray(values.numpy(), np.float32)
    if _is_supported_by_loops(image.size, size, resample, crop) and _agrees_with_pillow():
        found = _resize_with_compiled_loops(image, size, resample, crop, table)
    else:
        pixels = _read_bytes(image.resize(size, resample).crop(crop))
        found = np.stack([table[channel][pixels[:, :, channel]] for channel in range(len(table))])
    return torch.from_numpy(found)


def _is_supported_by_loops(
    source_size: tuple[int, int], target_size: tuple[int, int], resample: Resampling, crop: Box
) -> bool:
    """Return whether the loops know the filter, the crop is inside, and all versions of Pillow start with the rows.

    Pillow 13 starts with the columns if an image loses many more rows than columns, which gives other bits.
    """
    from PIL.Image import Resampling

    (columns, rows), (width, height) = source_size, target_size
    inside = 0 <= crop[0] < crop[2] <= width and 0 <= crop[1] < crop[3] <= height
    columns_first = rows > height and rows - height > 2 * (columns - width)
    return resample in {Resampling.BILINEAR, Resampling.BICUBIC} and inside and not columns_first and bool(rows)


def _resize_with_compiled_loops(
    image: Image, size: tuple[int, int], resample: Resampling, crop: Box, table: np.ndarray
) -> np.ndarray:
    from PIL.Image import Resampling

    from dpbench.data.resizing import kernels
    from dpbench.data.resizing.memory import allocate_image_array

    kernels.compile_resize_kernel()
    left, top, right, bottom = crop
    found = allocate_image_array((len(table), bottom - top, right - left))
    reach = kernels.CUBIC if resample == Resampling.BICUBIC else kernels.LINEAR
    address, _owner = _locate_pixels(image)
    kernels.resize(address, *image.size, *size, left, top, reach, table, found)
    return found


def _locate_pixels(image: Image) -> tuple[int, object]:
    """Return the address of an image's pixels, and the object that holds them there.

    From version 11.2, Pillow gives the memory of an image to others as an Arrow array, unless the image is very large.
    """
    import numpy as np

    from dpbench.data.resizing import kernels

    image.load()
    width, height = image.size
    if export := getattr(image, "__arrow_c_array__", None):
        with suppress(ValueError):  # an image in several blocks
            _, array = export()
            address = kernels.find_buffer(_get_pointer(array, b"arrow_array"), width * height, len(image.getbands()))
            if address:
                return address, array
    content = np.frombuffer(image.tobytes("raw", "RGBX" if image.mode == "RGB" else "L"), np.uint8)
    return content.ctypes.data, content


_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _read_bytes(image: Image) -> np.ndarray:
    """Return an image's pixels, (height, width, channels) uint8, read-only."""
    import numpy as np

    width, height = image.size
    return np.frombuffer(image.tobytes(), np.uint8).reshape(height, width, -1)


@cache
def _agrees_with_pillow() -> bool:
    """Return whether the loops give the bits of the installed Pillow on this processor; if not, Pillow is used."""
    import numpy as np
    from PIL import Image

    draws, table = np.random.default_rng(0), np.tile(np.arange(256, dtype=np.float32), (3, 1))
    for columns, rows, width, height in TRIED:
        image = Image.fromarray(draws.integers(0, 2, (rows, columns, 3), dtype=np.uint8) * 255)
        for resample in (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC):
            found = _resize_with_compiled_loops(image, (width, height), resample, (0, 0, width, height), table)
            if not np.array_equal(found, _read_bytes(image.resize((width, height), resample)).transpose(2, 0, 1)):
                progress.print_progress_line(
                    "Pillow resizes images itself, because dpbench's loops give other bits here."
                )
                return False
    return True
