"""Paths of the site's files, and checks that names are safe as paths."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from dpbench.board.index import Entry, Index, Standing
from dpbench.board.rows import EntryRow
from dpbench.errors import DataError


@dataclass(frozen=True)
class PageSection:
    """A section of the site, with its first page."""

    key: str  # what a page of it calls itself
    title: str
    path: str  # of its first page
    summary: str = ""  # what the page shows, as a sentence


SECTIONS = (
    PageSection("home", "Leaderboard", "index.html"), PageSection("learners", "Learners", "learners.html"),
    PageSection("data", "Data", "data.html"), PageSection("evidence", "Evidence", "audits.html"),
)  # fmt: skip
"""The sections that the header links to. The documentation is the fifth link; more would not fit on a phone."""
SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def check_names(index: Index) -> None:
    """Check that the names of boards and entries are distinct and safe as file names, and match the entries' files.

    Raises:
        DataError: a name is unsafe or used twice, or an entry has another file; the message names the board or entry.
    """
    boards: set[str] = set()
    for standing in index.standings:
        _check_name(standing.board.name, boards, "a board")
        taken: set[str] = set()
        for entry in standing.entries:
            _check_name(entry.id, taken, f"an entry of board {standing.board.name!r}")
            if entry.file != f"results/{standing.board.name}/{entry.id}.json":
                raise DataError(
                    f"Expected entry {entry.id!r} to be the file results/{standing.board.name}/{entry.id}.json, got "
                    f"{entry.file[:200]!r}. Build the index again."
                )


def _check_name(name: str, taken: set[str], whose: str) -> None:
    if not SAFE_NAME.fullmatch(name):
        raise DataError(
            f"Expected the name of {whose} to be up to 200 letters, digits, dots, dashes and underscores that do not "
            f"begin with a dot, got {name[:200]!r}. Rename the file."
        )
    if name.casefold() in taken:
        raise DataError(f"Expected the name of {whose} once, whatever its case, got {name!r} twice. Rename one file.")
    taken.add(name.casefold())


def result_path(root: Path, entry: Entry) -> Path:
    """Return the path of a result's file, after checking that it lies within the leaderboard's folder.

    Raises:
        DataError: the file is a link to a place outside the folder.
    """
    file = (root / entry.file).resolve()
    if not file.is_relative_to(root.resolve()):
        raise DataError(
            f"Expected {root / entry.file} to lie in {root}, got a link to {file}. Put the file itself there."
        )
    return file


def entry_page_path(standing: Standing, entry: Entry) -> str:
    """Return the path of an entry's page within the site."""
    return f"entries/{standing.board.name}/{entry.id}.html"


def row_page_path(row: EntryRow) -> str:
    """Return the path of a row's page within the site."""
    return f"entries/{row.protocol.name}/{row.entry.id}.html"
