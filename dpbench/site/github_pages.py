"""Deprecated, to be removed in 0.4: replace a folder with the site if dpbench published all files of the folder.

The workflow `pages` builds the site with `dpbench leaderboard build --site` and leaves publishing to GitHub's actions.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from dpbench.errors import DataError, OutputError
from dpbench.site.upload import MARKER, describe_changes
from dpbench.support.files import file_sha256, write_json
from dpbench.support.folders import replace_folder
from dpbench.support.untrusted import parse_json, read_regular_file

NOJEKYLL = ".nojekyll"  # GitHub serves the files as they are
KEPT_FILES = (".git", "CNAME")


def publish_to_folder(site: Path, folder: Path, *, dry_run: bool) -> list[str]:
    """Replace a folder's files, except `KEPT_FILES`, with the files of `site`; return a line per change.

    With `dry_run`, the folder is not changed.

    Raises:
        OutputError: the folder holds files that dpbench did not publish, or cannot be written.
    """
    folder = folder.resolve()
    if Path.cwd().is_relative_to(folder):
        raise OutputError(f"Expected to run outside {folder}, which is replaced as a whole: change to another folder.")
    for hidden in site.glob(".*"):  # the marker of the build would let a build replace a published folder
        hidden.unlink()
    (site / NOJEKYLL).touch()
    after = _digest_files(site)
    lines = describe_changes(read_published_digests(folder), after)
    if lines and not dry_run:
        try:
            with replace_folder(folder, KEPT_FILES) as new:
                shutil.copytree(site, new, dirs_exist_ok=True)
                write_json(new / MARKER, after)
        except OSError as error:
            raise OutputError(
                f"Cannot write {folder}: {error.strerror}. Choose a folder that you can write to, inside one "
                "that you can write to."
            ) from error
    return lines


def read_published_digests(folder: Path) -> dict[str, str]:
    """Return the digests of the files that are already published in a folder.

    Raises:
        OutputError: the path is a file, or holds a file that dpbench did not publish or that was edited since.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"Expected a folder to publish to, got the file {folder}. Name another place.")
    found, recorded = _digest_files(folder), _read_recorded_digests(folder / MARKER)
    others = sorted(path for path, digest in found.items() if recorded.get(path) != digest)
    if others:
        what = "was edited since" if others[0] in recorded else "dpbench did not publish"
        raise OutputError(
            f"Expected nothing in {folder} but what dpbench published there, got {others[0]!r}, which {what}. "
            "Move it away, or name another folder."
        )
    return found


def _digest_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder, by path.

    A link has the text "no plain file" instead, which equals no digest, because dpbench publishes no links.
    """
    files = {file.relative_to(folder): file for file in folder.rglob("*") if file.is_symlink() or not file.is_dir()}
    return {
        path.as_posix(): file_sha256(file) if file.is_file() and not file.is_symlink() else "no plain file"
        for path, file in files.items()
        if path.parts[0] not in (*KEPT_FILES, MARKER)
    }


def _read_recorded_digests(marker: Path) -> dict[str, str]:
    try:
        recorded = parse_json(read_regular_file(marker), marker)
    except (OSError, DataError):
        return {}
    return recorded if isinstance(recorded, dict) else {}
