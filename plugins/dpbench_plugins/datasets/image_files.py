"""Check and digest files, and decode images on access."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpbench import DataError, Records

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

AS_PUBLISHED = "a row of the published file, as it is"
READ_FULLY = 256  # files, out of thousands, whose bytes are part of a fingerprint


@dataclass(frozen=True)
class RawImageReader:
    """Reads an image from its pixel bytes in a published array."""

    shape: tuple[int, ...]  # (height, width), or (height, width, 3)

    def __call__(self, pixels: bytes) -> Image:
        """Return the grey or RGB image of these bytes."""
        import numpy as np
        from PIL import Image

        return Image.fromarray(np.frombuffer(pixels, np.uint8).reshape(self.shape))


def make_array_records(array: np.ndarray) -> Records[bytes]:
    """Return a published array of images, (n, height, width) or (n, height, width, 3) uint8, as records."""
    shape = array.shape[1:]
    return Records([row.tobytes() for row in array], RawImageReader(shape), AS_PUBLISHED, reader=f"raw-{shape}-1")


def read_rgb_image(path: Path) -> Image:
    """Decode an image file to RGB, so that all images have three channels.

    Raises:
        DataError: the file cannot be read.
    """
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except Exception as error:  # decoders raise many kinds
        raise DataError(f"Expected a readable image {path}: {error}. Unpack the archive again.") from error


def read_verified_file(path: Path, md5: str, page: str) -> bytes:
    """Return the bytes of a file after checking its published MD5, which detects accidents but not forgery.

    Raises:
        DataError: the file cannot be read, or is not the published one.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"Expected a readable file {path}: {error.strerror}. Check its permissions.") from error
    got = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if got != md5:
        raise DataError(f"Expected MD5 {md5} of {path}, got {got}. Download it again from {page}.")
    return content


def digest_byte_strings(*parts: bytes) -> str:
    """Return one SHA-256 of all parts, in order."""
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def fingerprint_files(paths: Sequence[Path], root: Path) -> bytes:
    """Return a hash of the names and sizes of all files, and of the bytes of 256 files.

    The 256 files are evenly spaced in the given order. A change in another file goes unnoticed if its size stays the
    same.

    Raises:
        DataError: a file is missing or cannot be read.
    """
    total, step = hashlib.sha256(), max(1, len(paths) // READ_FULLY)
    for index, path in enumerate(paths):
        try:
            total.update(f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\n".encode())
            if index % step == 0:
                total.update(path.read_bytes())
        except OSError as error:
            raise DataError(f"Expected an image {path}: {error.strerror}. Unpack the archive again.") from error
    return total.digest()
