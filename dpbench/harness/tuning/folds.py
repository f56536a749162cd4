"""What a search trains on and what it scores on: the test split is never part of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Learner, PublicData
from dpbench.errors import SpecError
from dpbench.harness.roles import select_public
from dpbench.privacy.core.rows import PrivateRows
from dpbench.records.search import Search


@dataclass(frozen=True)
class Fold:
    """What a setting is trained on, and what it is scored on."""

    rows: PrivateRows  # what it is trained on
    public: PublicData  # what the learner sees of the public split
    x: Tensor  # (m, *example_shape), what it is scored on
    y: np.ndarray  # (m,)
    weight: float  # private examples that one of the rows stands for: 1 where they are the private ones


def folds_of(private: PrivateRows, public: PublicData, learner: Learner, search: Search) -> list[Fold]:
    """Return the folds of a search; `public` is the whole public split, with labels.

    public-validation: the public split in `folds` parts; each in turn is scored on, the others stand in for the private
    split, each row for as many private ones as make up its size, and are the public data too.
    Otherwise: one fold of the private rows, scored on the public split; a learner that reads public labels sees
    all but the first part, and is scored on that.

    Raises:
        SpecError: too few labelled public examples to hold some out.
    """
    labels = public.y
    if labels is None or len(labels) < 2 * search.folds:
        raise SpecError(
            f"Expected at least {2 * search.folds} labelled public examples to choose settings by, got "
            f"{0 if labels is None else len(labels)}. Add --public-fraction, or run with the default settings."
        )
    held_out = np.array_split(np.random.default_rng(search.seed).permutation(len(labels)), search.folds)
    if search.rule == "public-validation":
        return [_stand_in(np.sort(part), public, learner, len(private)) for part in held_out]
    if learner.public != "labelled":
        return [Fold(private, select_public(public, learner), public.x, labels.cpu().numpy(), 1.0)]
    held, kept = _both(np.sort(held_out[0]), len(labels))
    return [Fold(private, select_public(_rows(public, kept), learner), public.x[held], labels[held].cpu().numpy(), 1.0)]


def _stand_in(part: np.ndarray, public: PublicData, learner: Learner, size: int) -> Fold:
    assert public.y is not None
    held, kept = _both(part, len(public.y))
    rest = _rows(public, kept)
    assert rest.y is not None
    rows = PrivateRows(rest.x.cpu(), rest.y.cpu(), torch.arange(len(rest.y)))
    return Fold(rows, select_public(rest, learner), public.x[held], public.y[held].cpu().numpy(), size / len(rows))


def _both(part: np.ndarray, size: int) -> tuple[Tensor, Tensor]:
    held = torch.from_numpy(part)
    mask = torch.ones(size, dtype=torch.bool)
    mask[held] = False
    return held, mask.nonzero().squeeze(1)


def _rows(public: PublicData, index: Tensor) -> PublicData:
    return PublicData(public.x[index], None if public.y is None else public.y[index])
