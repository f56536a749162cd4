"""Whose each of the user's own images is: a CSV file says it, or the file names do."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from dpbench import DataError, DataMissing, SpecError
from dpbench_plugins.datasets.image_trees import ImageFile

TABLE = ".csv"


def is_table(units: str) -> bool:
    """Return whether the option names a table, and not a pattern."""
    return units.endswith(TABLE)


def check_options(units: str, unit: str) -> None:
    """Refuse a pattern that names no unit, and a word for units that nobody states.

    Raises:
        SpecError: says what to write.
    """
    if not units and unit != "unit":
        raise SpecError(
            f"Expected units beside unit={unit}: a {TABLE} file or a pattern that says whose each image is."
        )
    if not units or is_table(units):
        return
    try:
        groups = re.compile(units).groups
    except re.error as error:
        raise SpecError(f"Expected units={units} to be a {TABLE} file or a regular expression: {error}.") from error
    if not groups:
        raise SpecError(
            f"Expected a group in the pattern units={units} that names the unit, as in (person[0-9]+)_, or a {TABLE} "
            "file with the columns file and unit."
        )


def owners_of(units: str, files: Sequence[ImageFile]) -> dict[str, str]:
    """Return whose each image is, by its place: what the table has, or the groups of the pattern in its file name.

    Raises:
        DataMissing: there is no such table.
        DataError: the table does not name every image once, or the pattern is not in every name.
    """
    return _in_table(Path(units).expanduser(), files) if is_table(units) else _in_names(units, files)


def place_of(file: ImageFile) -> str:
    """Return split, class and file name, as in the folder: images of val stay there."""
    return "/".join([*file.below.split("/")[-3:-1], file.file])


def _in_names(pattern: str, files: Sequence[ImageFile]) -> dict[str, str]:
    owners = {place_of(file): _owner(pattern, file.file) for file in files}
    if missing := sorted(place for place, owner in owners.items() if not owner):
        raise DataError(
            f"Expected the pattern units={pattern} to find a unit in every file name, got none in {missing[0]} "
            f"({len(missing):,} of {len(files):,}). Correct it, or give a {TABLE} file with the columns file and unit."
        )
    return owners


def _owner(pattern: str, name: str) -> str:
    found = re.search(pattern, name)
    return "/".join(filter(None, found.groups())) if found else ""


def _in_table(table: Path, files: Sequence[ImageFile]) -> dict[str, str]:
    rows = _rows(table)
    owners, places = dict(rows), {place_of(file) for file in files}
    faults = {
        "names images that are not there": owners.keys() - places,
        "misses images": places - owners.keys(),
        "names images more than once": {name for name, count in Counter(name for name, _ in rows).items() if count > 1},
        "has no unit for images": {name for name, owner in rows if not owner},
    }
    for fault, names in faults.items():
        if names:
            raise DataError(
                f"Expected {table} to name every image once, as train/CLASS/IMAGE, and its unit, but it {fault}: "
                f"{min(names)} ({len(names):,} in all). Correct the table."
            )
    return owners


def _rows(table: Path) -> list[tuple[str, str]]:
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, strict=True)
            if not {"file", "unit"} <= {*(rows.fieldnames or ())}:
                raise DataError(
                    f"Expected a CSV file whose first line is file,unit in {table}, got "
                    f"{','.join(rows.fieldnames or ())[:80] or 'an empty file'}."
                )
            return [(row["file"], (row["unit"] or "").strip()) for row in rows]
    except FileNotFoundError:
        raise DataMissing(
            f"Expected a table of file and unit in {table}, which does not exist. Check the path."
        ) from None
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(
            f"Expected a CSV file with the columns file and unit in {table}: {type(error).__name__}: {error}."
        ) from error
