"""How a training split is cut into public and private examples. No torch here: sizes are needed before a run starts."""

from __future__ import annotations

from typing import Literal

import numpy as np

from dpbench.api import Splits
from dpbench.data.units import deal_units
from dpbench.errors import SpecError
from dpbench.harness.imbalance import subsample
from dpbench.records.protocol import SplitRule


def kept_rows(splits: Splits, name: Literal["train", "test"], classes: int, rule: SplitRule) -> np.ndarray:
    """Return which examples of a split are kept, ascending: all of them, unless the rule makes classes unequal.

    Raises:
        SpecError: a class that has examples would be left without.
    """
    labels = (splits.train if name == "train" else splits.test).labels
    return subsample(labels, classes, rule.imbalance, rule.seed, 1 if name == "train" else 2)


def cut_rows(rows: np.ndarray, rule: SplitRule, units: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return which of these training rows are public and which are private, each ascending; whole units go to one side.

    Raises:
        SpecError: nothing private is left.
    """
    random = np.random.default_rng(np.random.SeedSequence(rule.seed))
    public, private = deal_units(rows, units, lambda size: _sizes(size, rule), random)
    return public, private


def count_private_units(splits: Splits, classes: int, rule: SplitRule) -> int:
    """Return of how many private units a run on these splits states epsilon, copies of public images included.

    Raises:
        SpecError: nothing private is left.
    """
    units = splits.train.units
    _, private = cut_rows(kept_rows(splits, "train", classes, rule), rule, units)
    return len(private) if units is None or rule.unit is None else len(np.unique(units[private]))


def _sizes(size: int, rule: SplitRule) -> tuple[int, int]:
    public = round(rule.public_fraction * size)
    private = round(rule.train_fraction * (size - public))
    if private < 1:
        raise SpecError(
            f"No private example is left of {size} with public_fraction={rule.public_fraction} and "
            f"train_fraction={rule.train_fraction}. Lower the first or raise the second."
        )
    return public, private
