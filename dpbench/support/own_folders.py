"""Store trusted files (compiled loops and exported networks) in folders that only the user can write to.

Anyone who can change such a file decides what is computed. So dpbench reads it only from a folder that belongs to the
user, that nobody else can write to, and whose files have the digests recorded when the folder was made.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dpbench.support.paths import cache_folder

DIGESTS = "digests.json"


def prepare_user_only_folder(name: str, what: str) -> tuple[Path | None, str]:
    """Return a folder in the cache that only the user can write to, and an empty text.

    If there can be no such folder, return None and the reason as a sentence.

    Args:
        name: the folder's name in the cache.
        what: the content of the folder, a plural noun for the sentence.
    """
    folder = cache_folder() / name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in (folder, folder.parent):
            found = each.stat()
            # In a folder with the sticky bit others may add entries, but not replace the folder that is kept there.
            shared = found.st_mode & 0o022 and not (each != folder and found.st_mode & stat.S_ISVTX)
            if os.name == "posix" and (not stat.S_ISDIR(found.st_mode) or shared or found.st_uid != os.getuid()):
                return None, f"Others may write to {each}, so {what} are not kept there. "
        if not os.access(folder, os.W_OK):
            return None, f"Cannot write to {folder}, so {what} are not kept. "
    except OSError as error:
        return None, f"Cannot keep {what} in {folder}: {error.strerror}. "
    return folder, ""


def is_cache_entry_intact(entry: Path) -> bool:
    """Return whether an entry holds exactly the files, by name and digest, that were recorded at its creation."""
    try:
        noted: object = json.loads((entry / DIGESTS).read_bytes())
        return noted == _digest_files(entry)
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def create_cache_entry(entry: Path) -> Iterator[Path]:
    """Yield an empty folder. After the block it becomes the entry, unless another process created the entry first."""
    with tempfile.TemporaryDirectory(dir=entry.parent, ignore_cleanup_errors=True) as made:
        new = Path(made) / "whole"
        new.mkdir(0o700)
        yield new
        (new / DIGESTS).write_text(json.dumps(_digest_files(new)), encoding="utf-8")
        with contextlib.suppress(OSError):
            new.rename(entry)


def _digest_files(folder: Path) -> dict[str, str]:
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != DIGESTS)
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
