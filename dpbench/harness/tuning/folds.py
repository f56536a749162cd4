"""Make the folds of a search: training and validation data, never from the test split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Learner, PublicData
from dpbench.data.units import renumber_units, split_rows_by_unit
from dpbench.errors import SpecError
from dpbench.harness.roles import ExamplesByRole, select_declared_public_data
from dpbench.privacy.core.rows import PrivacyUnits, PrivateRows
from dpbench.records.search import Search


@dataclass(frozen=True)
class Fold:
    """The training and validation data of a search."""

    rows: PrivateRows  # what it is trained on
    public: PublicData  # what the learner sees of the public split
    x: Tensor  # (m, *example_shape), what it is scored on
    y: np.ndarray  # (m,)
    weight: float  # private units that one of the units stands for: 1 where they are the private ones


def make_folds(roles: ExamplesByRole, learner: Learner, search: Search) -> list[Fold]:
    """Return the folds of a search; no fold divides a unit.

    public-validation: the public split is cut into `folds` parts, and each part in turn is the validation data. The
    other parts are the public data and also stand in for the private split, weighted to the size of the private split.

    Other searches: one fold trains on the private rows and validates on the public split. If the learner reads public
    labels, it sees all parts but the first, and the first is the validation data.

    Raises:
        SpecError: too few labelled public examples to hold some out.
    """
    public, units = roles.public, roles.public_units
    labels = public.y
    count = 0 if labels is None else len(labels if units is None else np.unique(units))
    if labels is None or count < 2 * search.folds:
        counted = "examples" if units is None else "units"
        raise SpecError(
            f"Expected at least {2 * search.folds} labelled public {counted} to choose settings with, got {count}. Add "
            "--public-fraction, or run with the default settings."
        )
    parts = lambda size: [len(part) for part in np.array_split(np.arange(size), search.folds)]
    held_out = split_rows_by_unit(np.arange(len(labels)), units, parts, np.random.default_rng(search.seed))
    if search.rule == "public-validation":
        return [_make_public_fold(part, roles, learner) for part in held_out]
    private = roles.private
    if learner.public != "labelled":
        return [Fold(private, select_declared_public_data(public, learner), public.x, labels.cpu().numpy(), 1.0)]
    held, kept = _split_rows(held_out[0], len(labels))
    shown = select_declared_public_data(public.take(kept), learner)
    return [Fold(private, shown, public.x[held], labels[held].cpu().numpy(), 1.0)]


def _make_public_fold(part: np.ndarray, roles: ExamplesByRole, learner: Learner) -> Fold:
    public, units = roles.public, roles.public_units
    assert public.y is not None
    held, kept = _split_rows(part, len(public.y))
    rest = public.take(kept)
    assert rest.y is not None
    own = None if units is None or roles.private.units is None else renumber_units(units[kept.numpy()])
    rows = PrivateRows(
        rest.x.cpu(), rest.y.cpu(), torch.arange(len(rest.y)), None if own is None else PrivacyUnits(own)
    )
    x, y = public.x[held], public.y[held].cpu().numpy()
    return Fold(rows, select_declared_public_data(rest, learner), x, y, roles.private.count / rows.count)


def _split_rows(part: np.ndarray, size: int) -> tuple[Tensor, Tensor]:
    held = torch.from_numpy(part)
    mask = torch.ones(size, dtype=torch.bool)
    mask[held] = False
    return held, mask.nonzero().squeeze(1)
