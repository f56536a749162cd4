"""Choose how much freed memory a process keeps: fits reuse it in the next step, and workers of a pool return it."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # what malloc.h calls them
MAX_KEPT_BYTES = 2**27  # bytes: what may lie free at the end of the heap
MAX_BLOCK_BYTES = 2**25  # bytes: a larger block goes back at once; glibc takes no more
MIN_RETURNED_BYTES = 2**22


def keep_freed_memory() -> None:
    """Make glibc keep up to `MAX_KEPT_BYTES` of freed memory; do nothing for other C libraries.

    By default glibc returns the end of its heap to the system after every step. Full-batch steps then spend more than
    half of their time in the kernel, because it clears the pages again.
    """
    _set_malloc_thresholds(MAX_BLOCK_BYTES, MAX_KEPT_BYTES)


def return_freed_memory() -> None:
    """Make glibc return each freed block of `MIN_RETURNED_BYTES` or more at once; do nothing for other C libraries.

    By default glibc keeps freed blocks of up to 32 MiB once it has freed a block of that size. After an accountant has
    run, a process would therefore keep hundreds of megabytes that it no longer needs.
    """
    _set_malloc_thresholds(MIN_RETURNED_BYTES, MIN_RETURNED_BYTES)


def evict_fft_plans() -> None:
    """Evict the plans of long Fourier transforms from scipy's caches, which keep the last 16 of each kind.

    The plans that an accountant leaves behind take up to 200 MB.
    """
    import numpy as np
    from scipy import fft

    for length in range(2, 18):
        for dtype in (np.float64, np.longdouble):
            short = np.zeros(length, dtype)
            fft.fft(short)
            fft.rfft(short)


def _set_malloc_thresholds(block_bytes: int, kept_bytes: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, block_bytes)
        mallopt(_TRIM_THRESHOLD, kept_bytes)
