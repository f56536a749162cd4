"""What a search trains on and what it scores on: the test split is never part of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Curator, Learner, PublicData, RowFn, Task
from dpbench.errors import SpecError
from dpbench.privacy.curator import LedgerCurator
from dpbench.privacy.rows import PrivateRows
from dpbench.records.search import Search


@dataclass(frozen=True)
class View:
    """One way to try a setting."""

    rows: PrivateRows  # what it is trained on
    public: PublicData  # what the learner sees of the public split
    x: Tensor  # (m, *example_shape), what it is scored on
    y: np.ndarray  # (m,)
    weight: float  # private examples that one of the rows stands for: 1 where they are the private ones


def views(private: PrivateRows, public: PublicData, learner: Learner, search: Search) -> list[View]:
    """Return the views of a search; `public` is the whole public split, with labels.

    public-validation: the public split in `folds` parts; each in turn is scored on, the others stand in for the private
    split, each row for as many private ones as make up its size, and are the public data too.
    Otherwise: one view of the private rows, scored on the public split; a learner that reads public labels sees
    all but the first fold, and is scored on that.

    Raises:
        SpecError: too few labelled public examples to hold some out.
    """
    labels = public.y
    if labels is None or len(labels) < 2 * search.folds:
        raise SpecError(
            f"Expected at least {2 * search.folds} labelled public examples to choose settings by, got "
            f"{0 if labels is None else len(labels)}. Add --public-fraction, or run with the default settings."
        )
    folds = np.array_split(np.random.default_rng(search.seed).permutation(len(labels)), search.folds)
    if search.rule == "public-validation":
        return [_stand_in(np.sort(fold), public, learner, len(private)) for fold in folds]
    if learner.public != "labelled":
        return [View(private, seen(public, learner), public.x, labels.cpu().numpy(), 1.0)]
    held, kept = _both(np.sort(folds[0]), len(labels))
    return [View(private, seen(_rows(public, kept), learner), public.x[held], labels[held].cpu().numpy(), 1.0)]


def seen(public: PublicData, learner: Learner) -> PublicData:
    """Return the part of public data that a learner declares to read."""
    return PublicData(
        public.x if learner.public != "none" else public.x[:0], public.y if learner.public == "labelled" else None
    )


def own_copy(public: PublicData) -> PublicData:
    """Return a copy for one fit: what a learner writes into it reaches no other."""
    return PublicData(public.x.clone(), None if public.y is None else public.y.clone())


def _stand_in(fold: np.ndarray, public: PublicData, learner: Learner, size: int) -> View:
    assert public.y is not None
    held, kept = _both(fold, len(public.y))
    rest = _rows(public, kept)
    assert rest.y is not None
    rows = PrivateRows(rest.x.cpu(), rest.y.cpu(), torch.arange(len(rest.y)))
    return View(rows, seen(rest, learner), public.x[held], public.y[held].cpu().numpy(), size / len(rows))


def _both(fold: np.ndarray, size: int) -> tuple[Tensor, Tensor]:
    held = torch.from_numpy(fold)
    mask = torch.ones(size, dtype=torch.bool)
    mask[held] = False
    return held, mask.nonzero().squeeze(1)


def _rows(public: PublicData, index: Tensor) -> PublicData:
    return PublicData(public.x[index], None if public.y is None else public.y[index])


class Rehearsal(Curator):
    """A curator over public stand-ins that answers as one over the private rows would.

    Each row counts `weight` times, so that sums have the size of the real run, and noise its share of them: the learner
    sees its real task, sigma and plan. Nothing private is behind it.
    """

    def __init__(self, curator: LedgerCurator, sigma: Mapping[str, float], weight: float) -> None:
        self._curator, self._sigma, self._weight = curator, dict(sigma), weight

    @property
    def task(self) -> Task:
        """The real task."""
        return self._curator.task

    @property
    def sigma(self) -> Mapping[str, float]:
        """The real noise multipliers."""
        return self._sigma

    def noisy_sum(
        self, rows: RowFn, *, release: str, clip: float | Sequence[float], chunk_size: int | None = None
    ) -> Any:
        """Answer for the stand-ins, each counted `weight` times."""
        answer = self._curator.noisy_sum(rows, release=release, clip=clip, chunk_size=chunk_size)
        return tuple(part * self._weight for part in answer) if isinstance(answer, tuple) else answer * self._weight

    def map(self, transform: Callable[[Tensor], Tensor]) -> Curator:
        """Map the stand-ins."""
        return Rehearsal(self._curator.map(transform), self._sigma, self._weight)

    def reveal(self, *, release: str) -> tuple[Tensor, Tensor]:
        """Reveal the stand-ins where the real run would reveal the rows."""
        return self._curator.reveal(release=release)


def scaled_noise(curator: LedgerCurator, weight: float) -> LedgerCurator:
    """Return the curator with its noise divided by `weight`: multiplied by it, answers have the real run's noise."""
    return dataclasses.replace(curator, sigma={name: value / weight for name, value in curator.sigma.items()})
