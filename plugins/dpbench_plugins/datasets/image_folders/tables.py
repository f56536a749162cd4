"""Tables of the user: CSV files with a line for every image or unit."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path

from dpbench import DataError, DataMissing
from dpbench_plugins.datasets.image_trees import parse_rows

TABLE = ".csv"


def read_table(table: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Return all lines of a CSV file, whose first line names the columns; a missing cell is empty.

    Args:
        table: the file.
        columns: the columns that it must have.

    Raises:
        DataMissing: there is no such file.
        DataError: the file is not a CSV file, or lacks a column.
    """
    try:
        names, rows = parse_rows(table.read_bytes(), ",", strict=True)
    except FileNotFoundError:
        said = " and ".join(columns) or "groups"
        raise DataMissing(f"Expected a table of {said} in {table}, which does not exist. Check the path.") from None
    except (OSError, ValueError, csv.Error) as error:
        wanted = f" with the columns {' and '.join(columns)}" if columns else ""
        raise DataError(f"Expected a CSV file{wanted} in {table}: {type(error).__name__}: {error}.") from error
    if not {*columns} <= {*names}:
        got = ",".join(names)[:80] or "an empty file"
        raise DataError(f"Expected a CSV file whose first line is {','.join(columns)} in {table}, got {got}.")
    return [{name: row[name] or "" for name in names} for row in rows]


def find_repeated_names(names: Iterable[str]) -> set[str]:
    """Return the names that occur more than once."""
    return {name for name, count in Counter(names).items() if count > 1}


def raise_for_table_faults(names_by_fault: Mapping[str, Set[str]], expected: str) -> None:
    """Refuse a table that has any of these faults, and report the first.

    Args:
        names_by_fault: each possible fault, with the images or units that have it.
        expected: the beginning of the message.

    Raises:
        DataError: there is a fault; the message names an image or unit that has it.
    """
    for fault, names in names_by_fault.items():
        if names:
            raise DataError(f"{expected}, but it {fault}: {min(names)} ({len(names):,} in all). Correct the table.")
