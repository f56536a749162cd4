"""Small private worlds for tests."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from dpbench.api import Release, Task
from dpbench.privacy.binding import bind
from dpbench.privacy.curator import LedgerCurator
from dpbench.privacy.randomness import Randomness
from dpbench.privacy.rows import PrivateRows


def private_rows(n: int = 40, d: int = 5, classes: int = 3, seed: int = 0) -> PrivateRows:
    """Return n normal rows in d dimensions with labels."""
    draw = torch.Generator().manual_seed(seed)
    x, y = torch.randn(n, d, generator=draw), torch.randint(classes, (n,), generator=draw)
    return PrivateRows(x, y, torch.arange(n))


def curator_over(
    rows: PrivateRows, plan: Sequence[Release], sigma: float = 0.0, classes: int = 3, seed: int = 0
) -> LedgerCurator:
    """Return a curator over the rows, `sigma` the base noise multiplier."""
    task = Task(rows.example_shape, classes, len(rows), torch.device("cpu"))
    return bind(rows, task, plan, sigma, Randomness.research(seed, "a test"))


def note(thing: Any) -> None:
    """Remember something from inside a row function, where the harness does not look: in a library's module."""
    vars(sys).setdefault("dpbench_notes", []).append(thing)


def noted() -> list[Any]:
    """Return what was noted since the last call."""
    notes: list[Any] = vars(sys).pop("dpbench_notes", [])
    return notes
