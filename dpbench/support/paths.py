"""Find the folders where dpbench looks for data and keeps its cache."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import platformdirs

PACKAGE = Path(__file__).parents[1]
"""The folder of dpbench itself."""
_ONLY_FOLDER: ContextVar[Path | None] = ContextVar("only", default=None)


def is_installed_package(name: str) -> bool:
    """Return whether a package is installed; a folder without code, left by an old installation, does not count."""
    found = find_spec(name)
    return found is not None and found.origin is not None


@contextmanager
def restrict_data_search(folder: Path) -> Iterator[None]:
    """While the block runs, search for data in this folder only; used to check data before it is imported."""
    token = _ONLY_FOLDER.set(folder)
    try:
        yield
    finally:
        _ONLY_FOLDER.reset(token)


def is_data_search_restricted() -> bool:
    """Return whether dpbench searches for data in one folder only; see `restrict_data_search`."""
    return _ONLY_FOLDER.get() is not None


def user_data_folder() -> Path:
    """Return the user's data folder, where dpbench puts data by default."""
    return Path(platformdirs.user_data_dir("dpbench"))


def data_folders() -> tuple[Path, ...]:
    """Return the folders to search for data: the folders in `DPBENCH_DATA`, then the user's data folder.

    Inside `restrict_data_search`, return the one folder that it allows.
    """
    only = _ONLY_FOLDER.get()
    if only is not None:
        return (only,)
    named = os.environ.get("DPBENCH_DATA", "")
    folders = [Path(part).expanduser() for part in named.split(os.pathsep) if part]
    return (*folders, user_data_folder())


def cache_folder() -> Path:
    """Return the folder for features and calibrations: `DPBENCH_CACHE`, or the user's cache folder.

    If the user's cache folder cannot be written, as in a read-only home, return a folder that this process deletes when
    it ends.
    """
    named = os.environ.get("DPBENCH_CACHE")
    if named:
        return Path(named).expanduser()
    folder = Path(platformdirs.user_cache_dir("dpbench"))
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    return folder if nearest.is_dir() and os.access(nearest, os.W_OK) else _make_temporary_cache(folder)


@cache
def _make_temporary_cache(folder: Path) -> Path:
    from dpbench.support import progress

    try:
        made = tempfile.mkdtemp(prefix="dpbench-cache-")
    except OSError:  # whoever writes to the folder says what is wrong
        return folder
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    os.environ["DPBENCH_CACHE"] = made  # of processes that this one starts as well
    progress.print_progress_line(
        f"Cannot write to {folder}, so what is cached is deleted at the end. Name another folder in DPBENCH_CACHE."
    )
    return Path(made)
