"""Tables beside the images of a tree: CSV files, in a folder or in a zip."""

from __future__ import annotations

import csv
import zipfile
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from dpbench import DataError
from dpbench_plugins.datasets.image_trees.listing import HIDDEN


def read_rows(path: Path, name: str, columns: Sequence[str], advice: str) -> list[dict[str, str]]:
    """Return these columns of each line of a table: of the file `path`, or of its member `name` if it is a zip.

    Raises:
        DataError: there is no such table, it lacks a column, or a line ends early.
    """
    try:
        text = _member(path, name) if path.suffix == ".zip" else path.read_bytes()
        rows = list(csv.DictReader(text.decode("utf-8-sig").splitlines()))
    except (OSError, ValueError, KeyError, NotImplementedError, zipfile.BadZipFile, csv.Error) as error:
        raise DataError(f"Expected the table {name} in {path}: {error}. {advice}") from error
    table = table_name(path, name)
    named = [column or "" for column in (rows[0] if rows else ())]
    if not set(columns) <= set(named):
        there = ", ".join(named) or "no line"
        raise DataError(f"Expected a table with the columns {', '.join(columns)} in {table}, got {there}. {advice}")
    for number, row in enumerate(rows, 2):
        if any(row[column] is None for column in columns):
            raise DataError(
                f"Expected {', '.join(columns)} in every line of {table}, line {number} ends early. {advice}"
            )
    return [{column: row[column].strip() for column in columns} for row in rows]


def table_name(path: Path, name: str) -> str:
    """Return what messages call a table: the file, or which member of which zip."""
    return f"{name} of {path}" if path.suffix == ".zip" else str(path)


def check_names(listed: Sequence[str], named: Sequence[str], images: Path, table: str, advice: str) -> None:
    """Refuse a table and images that do not name each other, one line an image.

    Args:
        listed: the names of the images that are there.
        named: those in the table, a line each.
        images: where the images are.
        table: what the table is called in messages.
        advice: one sentence.

    Raises:
        DataError: says how many are wrong, and the first of them.
    """
    known = set(named)
    if len(known) < len(named):
        (name, count), *_ = Counter(named).most_common(1)
        raise DataError(f"Expected every image once in {table}, got {name} {count} times. {advice}")
    if lacking := known - set(listed):
        raise DataError(
            f"Expected an image in {images} for every line of {table}, got none for {_first(lacking, known)}. {advice}"
        )
    if unnamed := set(listed) - known:
        raise DataError(
            f"Expected a line of {table} for every image in {images}, got none for {_first(unnamed, listed)}. {advice}"
        )


def _first(wrong: Collection[str], of: Collection[str]) -> str:
    return f"{len(wrong):,} of {len(of):,} (such as {min(wrong)})"


def _member(path: Path, name: str) -> bytes:
    """Return a table of a zip, of several the outermost."""
    with zipfile.ZipFile(path) as archive:
        found = [one for one in archive.namelist() if Path(one).name == name and not HIDDEN.search(one)]
        if not found:
            raise ValueError("the archive has none")
        return archive.read(min(found, key=lambda one: (one.count("/"), one)))
