"""How a training split is cut into public and private examples. No torch here: sizes are needed before a run starts."""

from __future__ import annotations

import numpy as np

from dpbench.api import Splits
from dpbench.data.units import deal_units
from dpbench.errors import SpecError
from dpbench.harness.imbalance import subsample
from dpbench.records.protocol import SplitRule


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
    labels, units = splits.train.labels, splits.train.units
    _, private = cut_rows(subsample(labels, classes, rule.imbalance, rule.seed, 1), rule, units)
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
