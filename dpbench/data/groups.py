"""Check and count groups of the test split, such as sex or age band; training never sees groups."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

import numpy as np

from dpbench.api import Split, Splits
from dpbench.errors import DataError
from dpbench.records.group_counts import COLUMN_PATTERN, MAX_COLUMNS, MAX_VALUE_LENGTH, MAX_VALUES, UNKNOWN_VALUE

Groups = Mapping[str, np.ndarray]
"""Maps each group column to the values of its examples: (n,) text, empty if unknown."""


def keep_only_test_groups(splits: Splits, dataset_name: str) -> Splits:
    """Check the test split's groups, and return the splits with these groups only; other groups are dropped unread.

    Args:
        splits: the splits of one dataset.
        dataset_name: names the dataset in messages.

    Raises:
        DataError: see `check_group_columns`.
    """
    check_group_columns(splits.test, f"test split of {dataset_name}")
    return dataclasses.replace(
        splits,
        train=dataclasses.replace(splits.train, groups=None),
        public=splits.public and dataclasses.replace(splits.public, groups=None),
    )


def check_group_columns(split: Split, where: str) -> None:
    """Check that each example has a value in every group column, and that columns and values are few enough.

    Raises:
        DataError: a group column does not fit; the message is one sentence.
    """
    if split.groups is None:
        return
    if not isinstance(split.groups, Mapping):
        raise DataError(
            f"Expected groups of the {where} as a mapping from columns to arrays of text, got a "
            f"{type(split.groups).__name__}."
        )
    if len(split.groups) > MAX_COLUMNS:
        raise DataError(
            f"Expected at most {MAX_COLUMNS} group columns in the {where}, got {len(split.groups):,}. Leave some out."
        )
    for column, values in split.groups.items():
        if not isinstance(column, str) or not re.fullmatch(COLUMN_PATTERN, column):
            raise DataError(
                f"Expected names of group columns in the {where} such as 'age band': lower-case letters, digits, "
                f"blanks, - and _, at most 40, a letter first; got {column!r:.60}."
            )
        _check_group_values(values, len(split.images), f"group column {column!r} of the {where}")


def _check_group_values(values: object, size: int, where: str) -> None:
    if not isinstance(values, np.ndarray) or values.dtype.kind != "U" or values.shape != (size,):
        found = f"{values.dtype} {values.shape}" if isinstance(values, np.ndarray) else f"a {type(values).__name__}"
        raise DataError(f"Expected an array of {size} texts in {where}, one per image, got {found}.")
    known = np.setdiff1d(values, [UNKNOWN_VALUE])
    if len(known) > MAX_VALUES:
        raise DataError(
            f"Expected at most {MAX_VALUES} values in {where}, got {len(known):,}. Combine values, such as ages into "
            "bands, or leave out the column."
        )
    for value in known.tolist():
        if len(value) > MAX_VALUE_LENGTH or not value.isprintable() or value != value.strip():
            raise DataError(
                f"Expected values of at most {MAX_VALUE_LENGTH} printable characters in {where}, without blanks at the "
                f"ends, got {value!a:.80}."
            )


def select_group_values(groups: Groups | None, rows: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Return the groups of the examples in `rows`, or of all examples; an empty mapping if there are no groups."""
    return {column: values if rows is None else values[rows] for column, values in (groups or {}).items()}


def count_groups(
    groups: Groups, labels: np.ndarray, classes: int, correct: np.ndarray | None = None
) -> dict[str, dict[str, str]]:
    """Count the examples of each group by class, in the form of stored results; see `records.group_counts`.

    Args:
        groups: the groups of the n examples.
        labels: (n,) int64 in [0, classes).
        classes: the number of classes.
        correct: (n,) bool, which examples to count; all by default. Groups without any are listed as well.
    """
    counted = np.ones(len(labels), bool) if correct is None else correct
    return {
        column: {
            value: _format_class_counts(labels[(values == value) & counted], classes)
            for value in np.unique(values).tolist()
        }
        for column, values in sorted(groups.items())
    }


def _format_class_counts(labels: np.ndarray, classes: int) -> str:
    return " ".join(map(str, np.bincount(labels, minlength=classes).tolist()))
