"""Keep the memory that a step frees for the next step, because fresh pages cost more than the computation."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # what malloc.h calls them
MAX_KEPT_BYTES = 2**27  # bytes: what may lie free at the end of the heap
MAX_BLOCK_BYTES = 2**25  # bytes: a larger block goes back at once; glibc takes no more


def keep_freed_memory() -> None:
    """Make glibc keep up to `MAX_KEPT_BYTES` of freed memory; do nothing for other C libraries.

    By default glibc returns the end of its heap to the system after every step. A full batch then spends more than half
    of its time in the kernel, which clears pages.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, MAX_BLOCK_BYTES)
        mallopt(_TRIM_THRESHOLD, MAX_KEPT_BYTES)
