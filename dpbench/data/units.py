"""Check units of examples, such as patients, and deal examples into parts without dividing a unit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dpbench.api import Splits
from dpbench.errors import DataError

IMAGE_UNIT = "image"
"""The unit of data without other units."""


def check_units(splits: Splits, classes: int, dataset_name: str) -> None:
    """Check that units match their examples, and that a guarantee can be stated for these units.

    Args:
        splits: the splits of one dataset; a unit has the same number in every split.
        classes: the number of classes.
        dataset_name: names the dataset in messages.

    Raises:
        DataError: the units do not fit; the message is one sentence.
    """
    for name, split in (("train", splits.train), ("test", splits.test), ("public", splits.public)):
        if split is not None and split.units is not None:
            _check_unit_array(split.units, len(split.images), f"{name} split of {dataset_name}")
    units = splits.train.units
    if (units is None) == bool(splits.unit) or splits.unit == IMAGE_UNIT:
        given = "no units" if units is None else "units"
        raise DataError(
            f"Expected units in the train split of {dataset_name} and a word for them, such as patient, or neither, "
            f"got {given} and the word {splits.unit!r}."
        )
    if units is None:
        return
    if (count := len(np.unique(units))) < max(2, classes):
        raise DataError(
            f"Expected at least as many {splits.unit}s in the train split of {dataset_name} as its {classes} classes, "
            f"got {count:,} for {len(units):,} examples. Give each {splits.unit} a number of its own."
        )


def _check_unit_array(units: object, size: int, where: str) -> None:
    if not isinstance(units, np.ndarray) or units.dtype != np.int64 or units.shape != (size,):
        found = f"{units.dtype} {units.shape}" if isinstance(units, np.ndarray) else f"a {type(units).__name__}"
        raise DataError(f"Expected an array of {size} int64 units in the {where}, one per example, got {found}.")


def split_rows_by_unit(
    rows: np.ndarray, units: np.ndarray | None, counts: Callable[[int], Sequence[int]], random: np.random.Generator
) -> list[np.ndarray]:
    """Divide examples into random parts, keeping units whole; leftover units are in no part.

    A part's size is counted in units, not in examples, so the part that a unit goes to does not depend on the size of
    another unit. In expectation, each part has its share of the examples. Without units, every example is its own unit.

    Args:
        rows: (n,) int64, the examples to deal out, ascending.
        units: (N,) int64, of all examples; `rows` are indices into them.
        counts: returns the number of units in each part, given the number of all units.
        random: draws the order of the units.

    Returns:
        The examples (m,) int64 of each part, ascending.
    """
    owners = rows if units is None else units[rows]  # (n,)
    order = np.unique(owners)
    order = order[random.permutation(len(order))]
    wanted = list(counts(len(order)))
    parts = np.split(order, np.cumsum(wanted))[: len(wanted)]
    return [rows[np.isin(owners, part)] for part in parts]


def renumber_units(units: np.ndarray | None) -> np.ndarray | None:
    """Renumber units (n,) int64 from 0 without gaps; None stays None."""
    return None if units is None else np.unique(units, return_inverse=True)[1].astype(np.int64)


def append_units(
    units: np.ndarray | None, new_units: np.ndarray | None, count: int, taken: np.ndarray | None
) -> np.ndarray | None:
    """Append the units of `count` more examples; return None if `units` is None.

    Args:
        units: (n,) int64, or None if units are unknown.
        new_units: (count,) int64, the units to append; None makes a new unit for each example.
        count: the number of examples.
        taken: numbers that other units have; new units get higher numbers.
    """
    if units is None:
        return None
    beyond = int(max(units.max(initial=-1), -1 if taken is None else taken.max(initial=-1))) + 1
    return np.concatenate([units, np.arange(beyond, beyond + count) if new_units is None else new_units])


def count_shared_units(units: np.ndarray | None, other_units: np.ndarray | None) -> int | None:
    """Count the examples in `units` whose unit is also in `other_units`; None if units are unknown in either."""
    return None if units is None or other_units is None else int(np.isin(units, other_units).sum())
