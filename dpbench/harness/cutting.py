"""Cut a training split into public and private examples. Imports no torch, because sizes are needed before a run."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from dpbench.api import Splits
from dpbench.data.units import split_rows_by_unit
from dpbench.errors import SpecError
from dpbench.records.protocol import SplitRule


def select_rows_of_split(splits: Splits, name: Literal["train", "test"], classes: int, rule: SplitRule) -> np.ndarray:
    """Return the indices of the rows that a split keeps, ascending. It keeps all rows unless the rule sets `imbalance`.

    Raises:
        SpecError: a class with examples would lose all of them.
    """
    labels = (splits.train if name == "train" else splits.test).labels
    return _subsample_classes(labels, classes, rule.imbalance, rule.seed, 1 if name == "train" else 2)


def cut_rows(rows: np.ndarray, rule: SplitRule, units: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Divide training rows into public and private rows, each ascending, without dividing a unit.

    Raises:
        SpecError: no private row is left.
    """
    random = np.random.default_rng(np.random.SeedSequence(rule.seed))
    public, private = split_rows_by_unit(rows, units, lambda size: _count_public_and_private(size, rule), random)
    return public, private


def count_private_units(splits: Splits, classes: int, rule: SplitRule) -> int:
    """Return the number of private units of a run on these splits, before copies of public images are left out.

    Raises:
        SpecError: no private row is left.
    """
    units = splits.train.units
    _, private = cut_rows(select_rows_of_split(splits, "train", classes, rule), rule, units)
    return len(private) if units is None or rule.unit is None else len(np.unique(units[private]))


def _subsample_classes(
    labels: np.ndarray, classes: int, imbalance: float | None, split_seed: int, part: int
) -> np.ndarray:
    """Return the rows (n,) of a split that are kept, ascending; of class c, the share imbalance^-f is kept.

    f = c / (classes - 1) is 0 for the first class, which is kept whole, and 1 for the last (Cao et al. 2019, section 4,
    "long-tailed"). The test split is subsampled like the training split, so accuracy refers to a population with these
    class shares; balanced accuracy is reported beside it. A public dataset stays whole; its classes may differ.

    Covered: the guarantee is about the kept rows, as with `train_fraction`.
    Not covered: which rows are kept depends on the labels of all rows.

    Args:
        labels: (n,) int64 in [0, classes).
        classes: number of classes.
        imbalance: kept share of the first class divided by the kept share of the last; None keeps all rows.
        split_seed: decides which examples of a class are kept.
        part: number of the split (1 train, 2 test), which gives each split its own random stream.

    Raises:
        SpecError: a class with examples would lose all of them.
    """
    if imbalance is None:
        return np.arange(len(labels))
    random = np.random.default_rng(np.random.SeedSequence(split_seed, spawn_key=(part,)))
    falls = [label / max(1, classes - 1) for label in range(classes)]
    found = [random.permutation(np.flatnonzero(labels == label)) for label in range(classes)]
    left = [rows[: round(imbalance**-fall * len(rows))] for rows, fall in zip(found, falls, strict=True)]
    if any(len(rows) and not len(some) for rows, some in zip(found, left, strict=True)):
        limits = [math.log(2 * len(rows)) / fall for rows, fall in zip(found, falls, strict=True) if len(rows) and fall]
        raise SpecError(
            f"Expected imbalance={imbalance:g} below {math.exp(min(limits)):.4g}, so that every class that has "
            "examples keeps at least one. Use a smaller value."
        )
    return np.sort(np.concatenate(left))


def _count_public_and_private(size: int, rule: SplitRule) -> tuple[int, int]:
    public = round(rule.public_fraction * size)
    private = round(rule.train_fraction * (size - public))
    if private < 1:
        raise SpecError(
            f"No private example is left of {size} with public_fraction={rule.public_fraction} and "
            f"train_fraction={rule.train_fraction}. Lower the first or raise the second."
        )
    return public, private
