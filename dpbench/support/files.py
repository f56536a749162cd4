"""Write files atomically: complete or not at all. dpbench writes all its files through this module."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from dpbench.errors import OutputError

MODEL_ENDINGS = {"onnx": ".onnx", "torch": ".safetensors"}
"""File endings of models, by format; version 0.2 wrote `torch`."""
IMAGE_ENDINGS = frozenset(
    {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".pbm", ".pgm", ".ppm", ".tif", ".tiff", ".webp", ".dcm"}
)
"""File endings of the images that the dataset `imagefolder` reads."""


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that readers see either the old or the new content, never a part of the new content.

    Raises:
        OutputError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                write(file)
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).chmod(0o644)
                Path(file.name).replace(path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror}. Choose a writable folder.") from error


def check_writable_folder(folder: Path) -> None:
    """Create a folder if it is missing, and check that files can be written to it.

    Raises:
        OutputError: the folder cannot be created or written.
    """
    check_folder_path(folder)
    probe = folder / ".dpbench-probe"
    write_atomically(probe, lambda file: file.write(b""))
    probe.unlink(missing_ok=True)  # another command may check the same folder


def check_folder_path(folder: Path) -> None:
    """Check that the path of a results folder is not a file; the folder may not exist yet.

    Raises:
        OutputError: the path is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"Expected a folder, got {folder}, which is a file. Name another one.")


def open_append_file(path: Path) -> IO[str]:
    """Open a text file for appending; refuse a link, because it could point outside the folder.

    Raises:
        OSError: the file is a link, or cannot be written.
    """
    return open(path, "a", encoding="utf-8", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o644))


def write_json(path: Path, content: object) -> None:
    """Write `content` as indented JSON, atomically."""
    write_atomically(path, lambda file: file.write((json.dumps(content, indent=2, sort_keys=True) + "\n").encode()))


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file; the file is read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical_digest(content: Any) -> str:
    """Return the SHA-256 of `content` as JSON with sorted keys and no spaces.

    >>> canonical_digest({"b": 1, "a": 2}) == canonical_digest({"a": 2, "b": 1})
    True
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
