"""What a step frees is there for the next one; what an accountant leaves behind goes back."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_STEPS = """
import resource, torch
from dpbench.support.malloc import keep_freed_memory
{before}
def step():
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [torch.ones(2**20) for _ in range(4)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begin
print(sum([step() for _ in range(20)][10:]))
"""


_RESIDENT = """
import numpy as np
from dpbench.support.malloc import forget_transforms, return_freed_memory
def resident():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))
"""
_FREED = """
{before}
for _ in range(3):  # glibc raises its threshold by itself when it frees a block
    blocks, fences = [], []
    for _ in range(16):
        blocks.append(np.ones(2**20))  # 8 MiB
        fences.append(bytes(2**15))  # in the heap, which does not shrink below it
    del blocks
print(resident())
"""
_PLANNED = """
from scipy import fft
return_freed_memory()
for length in range(2**20, 2**20 + 4):
    fft.rfft(np.zeros(length, np.longdouble))
{before}
print(resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc keeps memory so")
@pytest.mark.slow
def test_blocks_that_a_worker_frees_go_back_at_once() -> None:
    kept, returned = (_kilobytes(_FREED, before) for before in ("", "return_freed_memory()"))
    assert kept - returned > 2**16  # KiB


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.slow
def test_plans_of_transforms_are_forgotten() -> None:
    kept, forgotten = (_kilobytes(_PLANNED, before) for before in ("", "forget_transforms()"))
    assert kept - forgotten > 2**14


def _kilobytes(code: str, before: str) -> int:
    """Return the resident memory that a process prints at its end."""
    command = [sys.executable, "-c", _RESIDENT + code.format(before=before)]
    return int(subprocess.run(command, capture_output=True, check=True).stdout)


def _faults(before: str) -> int:
    """Return the page faults of ten steps, each of which makes and frees 16 MiB, 4,096 pages.

    The C library's thresholds are those that it starts with: by itself it moves them, as luck has it.
    """
    start = {"MALLOC_MMAP_THRESHOLD_": str(2**17), "MALLOC_TRIM_THRESHOLD_": str(2**17)}
    command = [sys.executable, "-c", _STEPS.format(before=before)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | start).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc hands memory back")
@pytest.mark.slow
def test_pages_that_a_step_frees_are_not_faulted_in_again() -> None:
    handed_back, kept = _faults(""), _faults("keep_freed_memory()")
    assert kept < 1000 < handed_back
