"""Tables beside the images of a tree: CSV files, in a folder or in a zip."""

from __future__ import annotations

import csv
import io
import zipfile
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from dpbench import DataError
from dpbench_plugins.datasets.image_trees.listing import HIDDEN

Cell = str | None


def parse_rows(content: bytes, delimiters: str, *, strict: bool = False) -> tuple[list[str], list[dict[str, Cell]]]:
    """Parse a UTF-8 table; return its columns, named by the first line, and its rows, with None for missing cells.

    Args:
        content: the bytes of the file.
        delimiters: possible separators: the first of them that occurs in the first line is used, otherwise a comma.
        strict: whether to refuse unbalanced quotes.

    Raises:
        ValueError: the content is not UTF-8.
        csv.Error: the content is not a table.
    """
    text = content.decode("utf-8-sig")
    first = text.partition("\n")[0]
    delimiter = next((mark for mark in delimiters if mark in first), ",")
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=strict)
    names = [name or "" for name in rows.fieldnames or ()]
    return names, [{name: row[name] for name in names} for row in rows]


def read_rows(
    path: Path, name: str, columns: Sequence[str], advice: str, optional: Sequence[str] = ()
) -> list[dict[str, str]]:
    """Return some columns of each line of a table, which is the file `path` or, if that is a zip, its member `name`.

    Cells are separated by tabs, semicolons or commas. The columns are those in `columns` and `optional`; a column of
    `optional` that the table lacks is empty.

    Raises:
        DataError: there is no such table, it lacks one of `columns`, or a line ends before one of them.
    """
    try:
        names, rows = parse_rows(_read_member(path, name) if path.suffix == ".zip" else path.read_bytes(), "\t;")
    except (OSError, ValueError, KeyError, NotImplementedError, zipfile.BadZipFile, csv.Error) as error:
        raise DataError(f"Expected the table {name} in {path}: {error}. {advice}") from error
    table = table_name(path, name)
    if not set(columns) <= set(names):
        there = ", ".join(names) or "no line"
        raise DataError(f"Expected a table with the columns {', '.join(columns)} in {table}, got {there}. {advice}")
    for number, row in enumerate(rows, 2):
        if any(row[column] is None for column in columns):
            raise DataError(
                f"Expected {', '.join(columns)} in every line of {table}, line {number} ends early. {advice}"
            )
    return [{column: (row.get(column) or "").strip() for column in (*columns, *optional)} for row in rows]


def table_name(path: Path, name: str) -> str:
    """Return the name of a table in messages: the file, or the member and its zip."""
    return f"{name} of {path}" if path.suffix == ".zip" else str(path)


def check_one_line_per_image(
    listed: Sequence[str], named: Sequence[str], images: Path, table: str, advice: str
) -> None:
    """Check that a table has exactly one line for each image and no other lines.

    Args:
        listed: the names of the existing images.
        named: the names in the table, one per line.
        images: where the images are.
        table: the name of the table in messages.
        advice: a sentence to end messages with.

    Raises:
        DataError: an image or a line has no counterpart, or is repeated; the message gives one and the number.
    """
    known = set(named)
    if len(known) < len(named):
        (name, count), *_ = Counter(named).most_common(1)
        raise DataError(f"Expected every image once in {table}, got {name} {count} times. {advice}")
    if lacking := known - set(listed):
        raise DataError(
            f"Expected an image in {images} for every line of {table}, got none for "
            f"{_format_count_with_example(lacking, known)}. {advice}"
        )
    if unnamed := set(listed) - known:
        raise DataError(
            f"Expected a line of {table} for every image in {images}, got none for "
            f"{_format_count_with_example(unnamed, listed)}. {advice}"
        )


def _format_count_with_example(wrong: Collection[str], names: Collection[str]) -> str:
    return f"{len(wrong):,} of {len(names):,} (such as {min(wrong)})"


def _read_member(path: Path, name: str) -> bytes:
    """Return the bytes of a table in a zip; if there are several, the outermost."""
    with zipfile.ZipFile(path) as archive:
        found = [member for member in archive.namelist() if Path(member).name == name and not HIDDEN.search(member)]
        if not found:
            raise ValueError("the archive has none")
        return archive.read(min(found, key=lambda member: (member.count("/"), member)))
