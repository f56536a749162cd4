"""Measure the seconds, processor time and peak memory of each phase of a run."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


class PhaseProfiler:
    """Measures seconds and peak resident bytes of each phase; the seconds of repeated phases add up.

    `cpu_seconds` counts the work of all threads of the process. Unlike `seconds`, it does not grow when other processes
    compete for the cores, and it does not include GPU time.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}
        self.peak_bytes: dict[str, int] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Measure the block as phase `name`: seconds, processor time and peak memory."""
        _reset_peak_bytes()
        begin, worked = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin
            self.cpu_seconds[name] = self.cpu_seconds.get(name, 0.0) + time.process_time() - worked
            self.peak_bytes[name] = max(self.peak_bytes.get(name, 0), peak_bytes())


def peak_bytes() -> int:
    """Return the peak resident size of the process: on Linux since the last phase began, elsewhere since process start.

    Returns 0 on Windows.
    """
    if _STATUS.exists():
        for line in _STATUS.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _reset_peak_bytes() -> None:
    try:
        _CLEAR.write_text("5", encoding="utf-8")
    except OSError:
        return  # not Linux, or not allowed: the peak then counts from the start of the process
