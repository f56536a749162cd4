"""Small private worlds for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dpbench.api import Budget, Curator, Learner, Planned, PublicData, Task
from dpbench.harness.fitting import FitInput
from dpbench.privacy.binding import bind
from dpbench.privacy.core.ledger_curator import LedgerCurator
from dpbench.privacy.core.map import MapQuestion
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.curator import make_learner_curator


class Bound:
    """A curator with a learner's words, and with all that is behind them."""

    def __init__(self, curator: LedgerCurator) -> None:
        self.curator = curator
        self.rows, self.task, self.sigma = curator.rows, curator.task, curator.sigma
        self.ledger, self.guard, self.randomness = curator.ledger, curator.guard, curator.randomness
        words = self.handle()
        self.noisy_sum, self.noisy_votes = words.noisy_sum, words.noisy_votes
        self.noisy_choice, self.noisy_choices = words.noisy_choice, words.noisy_choices

    def handle(self) -> Curator:
        """Return what a learner holds."""
        return make_learner_curator(self.curator)

    def map(self, transform: Callable[[Tensor], Tensor]) -> Bound:
        """Return the same over transformed rows."""
        return Bound(self.curator.answer(MapQuestion(transform)))


def private_rows(n: int = 40, d: int = 5, classes: int = 3, seed: int = 0) -> PrivateRows:
    """Return n normal rows in d dimensions with labels."""
    draw = torch.Generator().manual_seed(seed)
    x, y = torch.randn(n, d, generator=draw), torch.randint(classes, (n,), generator=draw)
    return PrivateRows(x, y, torch.arange(n))


def curator_over(
    rows: PrivateRows, plan: Sequence[Planned], sigma: float = 0.0, classes: int = 3, seed: int = 0
) -> Bound:
    """Return a curator over the rows, `sigma` the base noise multiplier."""
    task = Task(rows.example_shape, classes, len(rows), torch.device("cpu"))
    return Bound(bind(rows, task, plan, sigma, Randomness.research(seed, "a test")))


def fit_input(learner: Learner, sigma: float = 1.0, n: int = 40, seed: int = 0) -> FitInput:
    """Return what a fit of the learner over n small rows is made from."""
    rows = private_rows(n)
    task = Task(rows.example_shape, 3, n, torch.device("cpu"))
    plan = tuple(learner.plan(task, Budget(1.0, 1e-5)))
    public, randomness = PublicData(rows.x[:0], None), Randomness.research(seed, "a test")
    return FitInput(
        learner, lambda to: f"{to} of learner {learner.name!r}", rows, task, public, plan, sigma, randomness
    )


def note(thing: Any) -> None:
    """Remember something from inside a row function, where the harness does not look: on an object of Python's."""
    vars(threading.main_thread()).setdefault("dpbench_notes", []).append(thing)


def noted() -> list[Any]:
    """Return what was noted since the last call."""
    notes: list[Any] = vars(threading.main_thread()).pop("dpbench_notes", [])
    return notes
