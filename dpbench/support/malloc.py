"""Memory that a step frees is kept for the next one: faulting fresh pages in costs more than what is done in them."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # what malloc.h calls them
KEPT = 2**27  # bytes: what may lie free at the end of the heap
LARGEST = 2**25  # bytes: a larger block goes back at once; glibc takes no more


def keep_freed() -> None:
    """Have glibc keep what is freed, up to `KEPT` bytes; do nothing where the C library has no such setting.

    By default it hands the end of its heap back after every step. A full batch then spends more than half of its time
    in the kernel, which clears pages.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, LARGEST)
        mallopt(_TRIM_THRESHOLD, KEPT)
