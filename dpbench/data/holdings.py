"""List and clear the cache (features, image hashes, calibrations, documentation) without importing torch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dpbench.errors import OutputError, SpecError
from dpbench.support.messages import format_unknown_name_message
from dpbench.support.paths import cache_folder

OTHER_FOLDERS = {
    "hashes": "hashes of images, to find copies",
    "builds": "digests of the leaderboards that were built",
    "calibrations": "noise multipliers that were found",
    "networks": "networks that were exported for onnxruntime",
    "kernels": "loops that numba compiled for this processor",
    "docs": "the documentation, as `dpbench docs` built it",
}


@dataclass(frozen=True)
class CacheEntry:
    """An entry of the cache, with its content, size and last use."""

    name: str  # by which it is cleared: a prefix of the key, or the folder's name
    what: str
    size: int  # in bytes
    used: float  # seconds since the epoch, of the newest file
    folder: Path


def list_cache_entries() -> list[CacheEntry]:
    """Return all entries of the cache, the largest first."""
    return sorted([*_list_feature_entries(), *_list_folder_entries()], key=lambda entry: (-entry.size, entry.name))


def clear_cache(names: Sequence[str]) -> list[CacheEntry]:
    """Delete the named cache entries, or all entries if there are no names, and return the deleted entries.

    Raises:
        SpecError: a name belongs to no entry; nothing is deleted then.
        OutputError: an entry is being extracted, or cannot be deleted.
    """
    held = list_cache_entries()
    known = {entry.name: entry for entry in held}
    for name in names:
        if name not in known:
            raise SpecError(format_unknown_name_message("cache entry", name, known))
    chosen = [known[name] for name in names] if names else held
    for entry in chosen:
        _delete_cache_entry(entry)
    return chosen


def _delete_cache_entry(entry: CacheEntry) -> None:
    try:
        with FileLock(entry.folder.with_suffix(".lock"), timeout=0):
            shutil.rmtree(entry.folder)
    except Timeout:
        raise OutputError(
            f"{entry.name} ({entry.what}) is being used by another process. Wait until it finishes."
        ) from None
    except OSError as error:
        raise OutputError(f"Cannot delete {entry.folder}: {error.strerror}.") from error
    entry.folder.with_suffix(".lock").unlink(missing_ok=True)


def _list_feature_entries() -> Iterator[CacheEntry]:
    folder = cache_folder() / "features"
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if entry.is_dir():
            yield _make_cache_entry(entry.name[:12], _describe_cache_entry(entry), entry)


def _describe_cache_entry(entry: Path) -> str:
    """Describe a feature entry from its manifest, or as unfinished or unreadable if the manifest cannot be read."""
    try:
        made = json.loads((entry / "manifest.json").read_bytes())
        unused = "" if "images" in made else " (not used: of an earlier version)"
        return f"{made['rows']:,} {made['split']} examples by {_format_extractor(made)}{unused}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "an extraction that did not end" if entry.suffix == ".partial" else "not readable"


def _format_extractor(provenance: Mapping[str, Any]) -> str:
    if "parts" in provenance["options"]:
        return "+".join(map(_format_extractor, provenance["options"]["parts"]))
    options = ",".join(f"{key}={value}" for key, value in provenance["options"].items())
    return f"{provenance['extractor']}:{options}" if options else str(provenance["extractor"])


def _list_folder_entries() -> Iterator[CacheEntry]:
    for name, what in OTHER_FOLDERS.items():
        folder = cache_folder() / name
        if folder.is_dir() and any(folder.iterdir()):
            yield _make_cache_entry(name, what, folder)


def _make_cache_entry(name: str, description: str, folder: Path) -> CacheEntry:
    facts = [file.stat() for file in folder.rglob("*") if file.is_file()]
    used = max((fact.st_mtime for fact in facts), default=folder.stat().st_mtime)
    return CacheEntry(name, description, sum(fact.st_size for fact in facts), used, folder)
