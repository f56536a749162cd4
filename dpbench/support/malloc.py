"""Choose whether glibc keeps freed memory, which a fit reuses at every step, or returns it to other workers."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # what malloc.h calls them
MAX_KEPT_BYTES = 2**27  # bytes: what may lie free at the end of the heap
MAX_BLOCK_BYTES = 2**25  # bytes: a larger block goes back at once; glibc takes no more
MIN_RETURNED_BYTES = 2**22


def keep_freed_memory() -> None:
    """Make glibc keep up to `MAX_KEPT_BYTES` of freed memory; do nothing for other C libraries.

    By default glibc returns the end of its heap to the system after every step. A full batch then spends more than half
    of its time in the kernel, which clears pages.
    """
    _set_thresholds(MAX_BLOCK_BYTES, MAX_KEPT_BYTES)


def return_freed_memory() -> None:
    """Make glibc return each freed block of `MIN_RETURNED_BYTES` at once; do nothing for other C libraries.

    By default glibc keeps freed blocks of up to 32 MiB once it has seen such a block. After an accountant has run, the
    process would hold hundreds of megabytes that it no longer needs.
    """
    _set_thresholds(MIN_RETURNED_BYTES, MIN_RETURNED_BYTES)


def _set_thresholds(block: int, kept: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, block)
        mallopt(_TRIM_THRESHOLD, kept)
