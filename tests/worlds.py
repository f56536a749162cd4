"""Small private worlds for tests."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dpbench.api import Curator, Planned, RowFn, Task, Teacher
from dpbench.privacy.core.binding import bind
from dpbench.privacy.core.curator import LedgerCurator
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows


class Sums(Curator):
    """Answers sums alone."""

    def noisy_choice(
        self, losses: RowFn, *, release: str, project: Tensor | None = None, chunk_size: int | None = None
    ) -> int:
        raise NotImplementedError

    def noisy_choices(self, votes: RowFn, *, release: str, chunk_size: int | None = None) -> Tensor:
        raise NotImplementedError

    def noisy_votes(
        self, teacher: Teacher, queries: Tensor, *, release: str, shards: int, confident: str | None = None,
        threshold: float = 0.0,
    ) -> Tensor:  # fmt: skip
        raise NotImplementedError


def private_rows(n: int = 40, d: int = 5, classes: int = 3, seed: int = 0) -> PrivateRows:
    """Return n normal rows in d dimensions with labels."""
    draw = torch.Generator().manual_seed(seed)
    x, y = torch.randn(n, d, generator=draw), torch.randint(classes, (n,), generator=draw)
    return PrivateRows(x, y, torch.arange(n))


def curator_over(
    rows: PrivateRows, plan: Sequence[Planned], sigma: float = 0.0, classes: int = 3, seed: int = 0
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
