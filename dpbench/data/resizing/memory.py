"""Memory of a batch: resized images are written to where the network reads them, and stacked without a copy."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

ALONE = 2  # references to an array that nobody else has: the attribute's and the argument's


class _BatchMemory(threading.local):
    """The arrays of this thread's batch; each thread prepares a batch of its own."""

    array: np.ndarray | None = None  # (images, *shape) float32
    images = 0  # of the batch that is being prepared; 0 outside
    taken = 0


_MEMORY = _BatchMemory()


@contextmanager
def use_batch_memory(images: int) -> Iterator[None]:
    """While the block runs, have `allocate_image_array` return parts of one array, in this thread.

    The array is used again for the next batch if no tensor of the batch before is left.
    """
    if _MEMORY.array is not None and sys.getrefcount(_MEMORY.array) > ALONE:
        _MEMORY.array = None
    _MEMORY.images, _MEMORY.taken = images, 0
    try:
        yield
    finally:
        _MEMORY.images = 0


def allocate_image_array(shape: tuple[int, ...]) -> np.ndarray:
    """Return an array for an image that is being prepared, float32 and not filled."""
    array, images, taken = _MEMORY.array, _MEMORY.images, _MEMORY.taken
    if images and not taken and (array is None or array.shape != (images, *shape)):
        array = _MEMORY.array = np.empty((images, *shape), np.float32)
    if array is None or taken >= images or array.shape[1:] != shape:
        return np.empty(shape, np.float32)
    _MEMORY.taken += 1
    return array[taken]  # type: ignore[no-any-return]


def stack_prepared_images(prepared: Sequence[Tensor]) -> Tensor:
    """Stack prepared images of one shape; do not copy them if they are consecutive parts of a batch's memory."""
    array, first = _MEMORY.array, prepared[0]
    if array is not None and len(prepared) <= len(array) and first.shape == array.shape[1:]:
        stacked = torch.from_numpy(array[: len(prepared)])
        if all(map(_starts_at_same_memory, prepared, stacked)):
            return stacked
    return torch.stack([*prepared])


def _starts_at_same_memory(first: Tensor, second: Tensor) -> bool:
    return first.data_ptr() == second.data_ptr() and first.dtype == second.dtype and first.stride() == second.stride()
