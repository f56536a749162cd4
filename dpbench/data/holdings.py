"""What the cache folder holds: features, image hashes and calibrations. No torch here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dpbench.errors import OutputError, SpecError
from dpbench.support.messages import unknown_name
from dpbench.support.paths import cache_folder

OTHERS = {
    "hashes": "hashes of images, to find copies",
    "calibrations": "noise multipliers that were found",
    "kernels": "loops that numba compiled for this processor",
    "docs": "the documentation, as `dpbench docs` built it",
}


@dataclass(frozen=True)
class Holding:
    """One entry of the cache."""

    name: str  # by which it is cleared: a prefix of the key, or the folder's name
    what: str
    size: int  # in bytes
    used: float  # seconds since the epoch, of the newest file
    folder: Path


def holdings() -> list[Holding]:
    """Return all entries, the largest first."""
    return sorted([*_features(), *_others()], key=lambda one: (-one.size, one.name))


def clear(names: Sequence[str]) -> list[Holding]:
    """Delete the entries of these names, all for none, and return them.

    Raises:
        SpecError: no entry has such a name; nothing is deleted then.
        OutputError: an entry is being extracted, or cannot be deleted.
    """
    held = holdings()
    known = {one.name: one for one in held}
    for name in names:
        if name not in known:
            raise SpecError(unknown_name("cache entry", name, known))
    chosen = [known[name] for name in names] if names else held
    for one in chosen:
        _delete(one)
    return chosen


def _delete(one: Holding) -> None:
    try:
        with FileLock(one.folder.with_suffix(".lock"), timeout=0):
            shutil.rmtree(one.folder)
    except Timeout:
        raise OutputError(
            f"{one.name} ({one.what}) is being used by another process. Wait until it finishes."
        ) from None
    except OSError as error:
        raise OutputError(f"Cannot delete {one.folder}: {error.strerror}.") from error
    one.folder.with_suffix(".lock").unlink(missing_ok=True)


def _features() -> Iterator[Holding]:
    folder = cache_folder() / "features"
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if entry.is_dir():
            yield _holding(entry.name[:12], _described(entry), entry)


def _described(entry: Path) -> str:
    """Say what an entry was made of; one whose manifest cannot be read is unfinished or damaged."""
    try:
        made = json.loads((entry / "manifest.json").read_bytes())
        unused = "" if "images" in made else " (not used: of an earlier version)"
        return f"{made['rows']:,} {made['split']} examples by {_extractor(made)}{unused}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "an extraction that did not end" if entry.suffix == ".partial" else "not readable"


def _extractor(made: Mapping[str, Any]) -> str:
    if "parts" in made["options"]:
        return "+".join(map(_extractor, made["options"]["parts"]))
    options = ",".join(f"{key}={value}" for key, value in made["options"].items())
    return f"{made['extractor']}:{options}" if options else str(made["extractor"])


def _others() -> Iterator[Holding]:
    for name, what in OTHERS.items():
        folder = cache_folder() / name
        if folder.is_dir() and any(folder.iterdir()):
            yield _holding(name, what, folder)


def _holding(name: str, what: str, folder: Path) -> Holding:
    facts = [file.stat() for file in folder.rglob("*") if file.is_file()]
    used = max((one.st_mtime for one in facts), default=folder.stat().st_mtime)
    return Holding(name, what, sum(one.st_size for one in facts), used, folder)
