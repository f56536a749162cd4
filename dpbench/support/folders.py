"""Replace a whole folder, such as a built site, atomically."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dpbench.errors import OutputError

MARKER = ".dpbench-site"
_MARKER_TEXT = b"Made by `dpbench leaderboard build`, which replaces this folder as a whole.\n"


@contextmanager
def replace_site(out: Path) -> Iterator[Path]:
    """Yield a new folder that replaces the site `out` if the block succeeds and is deleted otherwise.

    Raises:
        OutputError: `out` exists and is not a built site, or it cannot be written.
    """
    out = out.resolve()
    if out.exists() and not (out / MARKER).is_file() and not (out.is_dir() and not any(out.iterdir())):
        raise OutputError(
            f"Expected {out} to be absent, empty or a site that dpbench built, as it is replaced as a whole: it has no "
            f"{MARKER}. Choose another folder."
        )
    try:
        with replace_folder(out) as new:
            (new / MARKER).write_bytes(_MARKER_TEXT)
            yield new
    except OSError as error:
        raise OutputError(
            f"Cannot write the site {out}: {error.strerror}. Choose a folder that can be written."
        ) from error


@contextmanager
def lock_folder(folder: Path, wait: bool = False) -> Iterator[None]:
    """Hold a lock on a folder while the block runs. The lock creates no file.

    Raises:
        BlockingIOError: another process holds the lock, and `wait` is not set.
        OSError: the folder cannot be opened or locked.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)  # a forked child may hold the folder open
    finally:
        os.close(handle)


@contextmanager
def replace_folder(folder: Path, kept: Sequence[str] = ()) -> Iterator[Path]:
    """Yield a new folder that replaces `folder` if the block succeeds and is deleted otherwise.

    The files and folders in `folder` whose names are in `kept` are moved to the new folder. After any interruption,
    either the old folder or the new folder exists.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))  # same disk: renaming is enough
    try:
        yield new
        new.chmod(0o755)  # a temporary folder is its owner's alone
        _swap_folders(new, folder, kept)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _swap_folders(new: Path, folder: Path, kept_names: Sequence[str]) -> None:
    old = new.with_name(f"{new.name}.old")
    moved = [name for name in kept_names if os.path.lexists(folder / name)]
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
