"""Where the site's files go: a fresh folder that replaces the one before it, and names that are safe as paths."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dpbench.board.index import Entry, Index, Standing
from dpbench.errors import DataError, OutputError

MARKER = ".dpbench-site"
_MARK = b"Made by `dpbench leaderboard build`, which replaces this folder as a whole.\n"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@contextmanager
def replace_site(out: Path) -> Iterator[Path]:
    """Yield a new folder beside `out` that takes its place when the block ends well, and vanishes when it does not.

    Raises:
        OutputError: `out` is something that no build made, or its place cannot be written.
    """
    out = out.resolve()
    if out.exists() and not (out / MARKER).is_file() and not (out.is_dir() and not any(out.iterdir())):
        raise OutputError(
            f"Expected {out} to be absent, empty or a site that dpbench built, as it is replaced as a whole: it has no "
            f"{MARKER}. Choose another folder."
        )
    try:
        with replace_folder(out) as new:
            (new / MARKER).write_bytes(_MARK)
            yield new
    except OSError as error:
        raise OutputError(
            f"Cannot write the site {out}: {error.strerror}. Choose a folder that can be written."
        ) from error


@contextmanager
def replace_folder(folder: Path, kept: Sequence[str] = ()) -> Iterator[Path]:
    """Yield a new folder beside `folder` that takes its place when the block ends well, with what is `kept` of it.

    Whatever interrupts it, the old folder is there or the new one.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))  # same disk: renaming is enough
    try:
        yield new
        new.chmod(0o755)  # a temporary folder is its owner's alone
        _swap(new, folder, kept)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _swap(new: Path, folder: Path, kept: Sequence[str]) -> None:
    old = new.with_name(f"{new.name}.old")
    moved = [name for name in kept if os.path.lexists(folder / name)]
    try:
        for name in moved:
            (folder / name).rename(new / name)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    except BaseException:
        if new.exists():
            if old.exists():
                old.rename(folder)
            for name in moved:
                if os.path.lexists(new / name):
                    (new / name).rename(folder / name)
        raise
    finally:
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)


def check_names(index: Index) -> None:
    """Refuse names that would be paths to elsewhere, or that two files would share.

    Raises:
        DataError: names the board and the entry.
    """
    boards: set[str] = set()
    for standing in index.standings:
        _check(standing.board.name, boards, "a board")
        taken: set[str] = set()
        for entry in standing.entries:
            _check(entry.id, taken, f"an entry of board {standing.board.name!r}")
            if entry.file != f"results/{standing.board.name}/{entry.id}.json":
                raise DataError(
                    f"Expected entry {entry.id!r} to be the file results/{standing.board.name}/{entry.id}.json, got "
                    f"{entry.file[:200]!r}. Build the index again."
                )


def _check(name: str, taken: set[str], whose: str) -> None:
    if not NAME.fullmatch(name):
        raise DataError(
            f"Expected the name of {whose} to be up to 200 letters, digits, dots, dashes and underscores that do not "
            f"begin with a dot, got {name[:200]!r}. Rename the file."
        )
    if name.casefold() in taken:
        raise DataError(f"Expected the name of {whose} once, whatever its case, got {name!r} twice. Rename one file.")
    taken.add(name.casefold())


def source(root: Path, entry: Entry) -> Path:
    """Return the file of a result, which lies within the leaderboard's folder.

    Raises:
        DataError: it is a link to elsewhere.
    """
    file = (root / entry.file).resolve()
    if not file.is_relative_to(root.resolve()):
        raise DataError(
            f"Expected {root / entry.file} to lie in {root}, got a link to {file}. Put the file itself there."
        )
    return file


def page(standing: Standing, entry: Entry) -> str:
    """Return the path of an entry's page within the site."""
    return f"entries/{standing.board.name}/{entry.id}.html"
