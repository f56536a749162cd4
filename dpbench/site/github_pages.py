"""The site in a folder, as GitHub Pages serves it: whole or not at all, and never over what others wrote."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dpbench.errors import DataError, OutputError
from dpbench.support.files import sha256, write_atomically, write_json
from dpbench.support.folders import replace_folder
from dpbench.support.untrusted import parse_json, read_regular

MARKER = ".dpbench-published.json"
"""The digests of all that was published beside it: what is not among them is somebody else's."""
NOJEKYLL = ".nojekyll"  # GitHub serves the files as they are
KEPT = (".git", "CNAME")


@dataclass(frozen=True)
class Changes:
    """Paths that publishing adds, changes and deletes; each sorted, relative to the place."""

    place: str  # an address or a folder, for people
    added: tuple[str, ...]
    changed: tuple[str, ...]
    deleted: tuple[str, ...]

    @classmethod
    def between(cls, place: str, before: Mapping[str, str], after: Mapping[str, str]) -> Self:
        """Compare two states of a place, each as digests by path.

        >>> Changes.between("there", {"a": "1", "b": "1"}, {"b": "2", "c": "1"}).lines
        ['add c', 'change b', 'delete a']
        """
        changed = (path for path in after.keys() & before.keys() if after[path] != before[path])
        added, deleted = after.keys() - before.keys(), before.keys() - after.keys()
        return cls(place, tuple(sorted(added)), tuple(sorted(changed)), tuple(sorted(deleted)))

    @property
    def lines(self) -> list[str]:
        """One line a file, as `--dry-run` prints them."""
        kinds = {"add": self.added, "change": self.changed, "delete": self.deleted}
        return [f"{kind} {path}" for kind, paths in kinds.items() for path in paths]


def put(site: Path, folder: Path, *, dry_run: bool) -> Changes:
    """Make a folder hold the files of `site`, `.nojekyll` and what it had of `KEPT`.

    Raises:
        OutputError: the folder holds what dpbench did not publish, or cannot be written.
    """
    folder = folder.resolve()
    if Path.cwd().is_relative_to(folder):
        raise OutputError(f"Expected to run outside {folder}, which is replaced as a whole: change to another folder.")
    before = read_published_digests(folder)
    after = {path: digest for path, digest in digests(site).items() if "/." not in f"/{path}"}
    after[NOJEKYLL] = hashlib.sha256(b"").hexdigest()
    changes = Changes.between(str(folder), before, after)
    if changes.lines and not dry_run:
        try:
            _replace(site, folder, after)
        except OSError as error:
            raise OutputError(
                f"Cannot write {folder}: {error.strerror}. Choose a folder that you can write to, inside one "
                "that you can write to."
            ) from error
    return changes


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder by its path; a link or the like is never anything published."""
    found = {}
    for place, folders, files in os.walk(folder):
        kept = KEPT if Path(place) == folder else ()
        folders[:] = [name for name in folders if name not in kept]
        for file in (Path(place) / name for name in (*files, *folders) if name not in kept):
            if file.is_symlink() or not file.is_dir():
                usual = file.is_file() and not file.is_symlink()
                found[file.relative_to(folder).as_posix()] = sha256(file) if usual else "no plain file"
    return found


def read_published_digests(folder: Path) -> dict[str, str]:
    """Return the digests of what is published in a folder already."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"Expected a folder to publish to, got the file {folder}. Name another place.")
    found = digests(folder)
    found.pop(MARKER, None)
    recorded = _recorded(folder / MARKER)
    others = sorted(path for path, digest in found.items() if recorded.get(path) != digest)
    if others:
        what = "was edited since" if others[0] in recorded else "dpbench did not publish"
        raise OutputError(
            f"Expected nothing in {folder} but what dpbench published there, got {others[0]!r}, which {what}. "
            "Move it away, or name another folder."
        )
    return found


def _recorded(marker: Path) -> dict[str, str]:
    try:
        recorded = parse_json(read_regular(marker), marker)
    except (OSError, DataError):
        return {}
    return recorded if isinstance(recorded, dict) else {}


def _replace(site: Path, folder: Path, after: dict[str, str]) -> None:
    with replace_folder(folder, KEPT) as new:
        shutil.copytree(site, new, dirs_exist_ok=True, ignore=_hidden)
        write_atomically(new / NOJEKYLL, lambda file: file.write(b""))
        write_json(new / MARKER, after)


def _hidden(folder: str, names: list[str]) -> list[str]:
    """Name what is of the build and not of the page: its own marker would let it replace a published folder."""
    return [name for name in names if name.startswith(".")]
