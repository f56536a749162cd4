"""Groups of the user's own test images, such as sex or age: columns of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpbench import DataError, SpecError
from dpbench_plugins.datasets.image_folders.owners import is_table_name, make_image_name
from dpbench_plugins.datasets.image_folders.tables import TABLE, find_repeated_names, raise_for_table_faults, read_table
from dpbench_plugins.datasets.image_trees import ImageFile

if TYPE_CHECKING:
    import numpy as np

MAX_VALUES = 50  # values of a column
KEYS = ("file", "unit")
Line = Mapping[str, str]
"""A line of a table: the text in each column."""


def check_group_options(groups: str, table: str, units: str) -> None:
    """Check that `table` comes with `groups`, `groups` with a CSV table, and that column names are distinct.

    Raises:
        SpecError: an option is missing or malformed; the message states what to write.
    """
    if table and not groups:
        raise SpecError(
            f"Expected groups beside table={table}: the columns to state accuracy by, as in groups=sex+site."
        )
    if not groups:
        return
    if not (table or is_table_name(units)):
        raise SpecError(
            f"Expected a table beside groups={groups}, as in table=patients{TABLE}: a CSV file with a column file, or "
            "unit, and these columns."
        )
    if table and not is_table_name(table):
        raise SpecError(f"Expected table={table} to be a CSV file, whose name ends in {TABLE}.")
    columns = groups.split("+")
    if not all(columns) or find_repeated_names(column.lower() for column in columns) or {*columns} & {*KEYS}:
        raise SpecError(
            f"Expected different columns joined by + in groups={groups}, as in sex+site, none of them "
            f"{' or '.join(KEYS)}."
        )


def read_groups(
    groups: str, table: Path, files: Sequence[ImageFile], owners: Mapping[str, str]
) -> dict[str, np.ndarray]:
    """Return each column's values for the n test images, (n,) text, by the column's name in lower case.

    An empty text means unknown. If the table has a column `file`, its lines describe images, otherwise units.

    Args:
        groups: the columns, joined by +.
        table: the file of the table.
        files: the images of both splits.
        owners: the owner of each image, by image name; empty if unknown.

    Raises:
        DataMissing: the table does not exist.
        DataError: the table lacks a column, does not name each test image or its unit once, or has a column with too
            many values.
    """
    import numpy as np

    columns, lines = groups.split("+"), read_table(table, groups.split("+"))
    for column in columns:
        _check_value_count({line[column].strip() for line in lines}, column, table)
    named, tested = (
        _map_files_to_lines(lines, table, files)
        if _has_column(lines, "file")
        else _map_units_to_lines(lines, table, files, owners)
    )
    return {column.lower(): np.array([named[name][column].strip() for name in tested], dtype=str) for column in columns}


def _map_files_to_lines(
    lines: Sequence[Line], table: Path, files: Sequence[ImageFile]
) -> tuple[dict[str, Line], list[str]]:
    """Return the table's lines by image name, and the names of the test images."""
    named, tested = (
        {line["file"]: line for line in lines},
        [make_image_name(file) for file in files if file.split == "test"],
    )
    faults = {
        "names images that are not there": named.keys() - set(map(make_image_name, files)),
        "misses test images": {*tested} - named.keys(),
        "names images more than once": find_repeated_names(line["file"] for line in lines),
    }
    raise_for_table_faults(faults, f"Expected {table} to name every test image once, as test/CLASS/IMAGE")
    return named, tested


def _map_units_to_lines(
    lines: Sequence[Line], table: Path, files: Sequence[ImageFile], owners: Mapping[str, str]
) -> tuple[dict[str, Line], list[str]]:
    """Return the table's lines by unit, and the unit of each test image; units without images are allowed."""
    if not (owners and _has_column(lines, "unit")):
        raise DataError(
            f"Expected a column file in {table}, which names images, or a column unit and the option units, got "
            f"{','.join(next(iter(lines), {}))[:80] or 'no lines'}."
        )
    named = {line["unit"].strip(): line for line in lines}
    tested = [owners[make_image_name(file)] for file in files if file.split == "test"]
    faults = {
        "misses units of test images": {*tested} - named.keys(),
        "names units more than once": find_repeated_names(line["unit"].strip() for line in lines),
    }
    raise_for_table_faults(faults, f"Expected {table} to name the unit of every test image once")
    return named, tested


def _has_column(lines: Sequence[Line], column: str) -> bool:
    return bool(lines) and column in lines[0]


def _check_value_count(values: set[str], column: str, table: Path) -> None:
    if (count := len(values - {""})) > MAX_VALUES:
        raise DataError(
            f"Expected at most {MAX_VALUES} different values in the column {column} of {table}, got {count:,}: "
            "accuracy is stated for each. Write bands such as 40-59 in place of numbers."
        )
