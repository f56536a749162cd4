"""What a person asked of the script, what it found, and its clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Asked:
    """The device, where files go, and how much is run."""

    device: torch.device
    out: Path
    quick: bool = False  # tiny sizes, to see that it works
    full: bool = False  # the papers' whole runs, which take hours
    minutes: float = 1.0  # for each measurement that could go on


@dataclass(frozen=True)
class Row:
    """A line of the report; `holds` is None of what is measured alone."""

    what: str
    found: str
    holds: bool | None = None

    def __str__(self) -> str:
        """Return the line of a Markdown table."""
        return f"| {self.what} | {self.found} | {'' if self.holds is None else 'yes' if self.holds else '**no**'} |"


def settle(device: torch.device) -> None:
    """Wait until a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(function: Callable[[], object], asked: Asked) -> float:
    """Return the median time of a call, after one that does not count."""
    times = []
    for _ in range(2 if asked.quick else 6):
        begin = time.perf_counter()
        function()
        settle(asked.device)
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])
