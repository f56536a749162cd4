"""Read feature packs: features of named images, computed on another machine, with one digest for each image.

A pack is a safetensors file. Its metadata hold the card (`records.pack`); its tensors are `digests` (n, 32) uint8,
the sorted `digest_pixels` of the images, and `features` (n, *example_shape) float16. It holds no code.

Covered: an image gets the features that the pack has for exactly its pixels, or the pack refuses it. Not covered: how
the features were computed. A row may be computed from several images, and no digest can show that.
"""

from __future__ import annotations

import bisect
import hashlib
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from dpbench.data.keys import KEY_SIZE, digest_pixels
from dpbench.errors import DataError
from dpbench.support.untrusted import open_regular_file, parse_json

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

    from dpbench.records.pack import PackCard

MAX_HEADER = 1_000_000  # bytes of a card and the description of two tensors
MOST_AXES = 8  # of the features of all images
BLOCK = 1 << 24  # bytes that are read at once
FileState = tuple[int, int, int, int, int]
"""Device, inode and size of a file, and the times of the last change of its content and of its metadata."""


@dataclass(frozen=True)
class FeaturePack:
    """A pack of features on the disk; only the digests of its images are in memory."""

    file: Path
    card: PackCard
    digest: str  # SHA-256 of the file
    example_shape: tuple[int, ...]
    digests: bytes  # those of the images, sorted
    start: int  # of the features, in bytes
    state: FileState  # of the file that was read

    @classmethod
    def read(cls, file: Path) -> FeaturePack:
        """Read an untrusted pack and check its card, layout and digest.

        Raises:
            DataError: the file is not a pack, names no network, or was damaged, cut off or changed.
        """
        try:
            with open_regular_file(file) as content:
                return cls._read_open_file(file, content)
        except OSError as error:
            raise DataError(f"Cannot read feature pack {file}: {error.strerror}.") from error

    @classmethod
    def _read_open_file(cls, file: Path, content: BinaryIO) -> Self:
        state, whole = _read_file_state(content), hashlib.sha256()
        whole.update(prefix := content.read(8))
        size = int.from_bytes(prefix, "little")
        whole.update(header := content.read(min(size, MAX_HEADER)))
        layout = parse_json(header, f"the header of {file}") if 0 < len(header) == size else None
        if not isinstance(layout, dict) or not isinstance(layout.get("__metadata__"), dict):
            raise DataError(f"Expected a feature pack, got {file}: `dpbench features pack` writes packs.")
        card, start = _read_card(file, layout), 8 + size
        shape, digests = _read_layout(file, layout, state[2] - start)
        tail = _read_image_digests(file, card, content, whole, digests)
        pack = cls(file, card, whole.hexdigest(), shape, tail, start, state)
        pack._check_unchanged(content)
        return pack

    def find(self, image: Image) -> np.ndarray:
        """Return the features (*example_shape) float16 of an image.

        Raises:
            DataError: the pack has no image with these pixels.
        """
        import numpy as np

        wanted, rows = digest_pixels(image), range(len(self.digests) // KEY_SIZE)
        row = bisect.bisect_left(rows, wanted, key=self._digest)
        if row == len(rows) or self._digest(row) != wanted:
            raise DataError(
                f"Feature pack {self.file} has no features of this image ({image.mode}, {image.width} x "
                f"{image.height} pixels): it holds {len(rows):,} images of {self.card.dataset}, and this one differs "
                "from all of them. Use the pack with that dataset, unchanged, or extract features here."
            )
        numbers = math.prod(self.example_shape)
        try:
            with open_regular_file(self.file) as content:
                content.seek(self.start + 2 * numbers * row)
                found = content.read(2 * numbers)
                self._check_unchanged(content)
        except OSError as error:
            raise DataError(f"Feature pack {self.file} cannot be read: {error}.") from None
        return np.frombuffer(found, "<f2").reshape(self.example_shape).copy()

    def _check_unchanged(self, content: BinaryIO) -> None:
        """Refuse a file that was changed since it was read, so that the digest covers the bytes in use."""
        if _read_file_state(content) != self.state:
            raise DataError(f"Feature pack {self.file} was changed while it was in use. Run again.")

    def _digest(self, row: int) -> bytes:
        return self.digests[KEY_SIZE * row : KEY_SIZE * (row + 1)]


def _read_file_state(content: BinaryIO) -> FileState:
    found = os.fstat(content.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read_card(file: Path, layout: dict[str, Any]) -> PackCard:
    from pydantic import ValidationError

    from dpbench.records.pack import PackCard
    from dpbench.support.validation import first_schema_violation

    try:
        return PackCard.model_validate_json(layout["__metadata__"].get("card", "{}"))
    except ValidationError as error:
        found = first_schema_violation(error)
        unknown = found.field == "network"
        raise DataError(
            f"Expected feature pack {file} to name the network of its features, which is unknown."
            if unknown
            else f"Feature pack {file} has a card that dpbench cannot read: {found}."
        ) from None


def _read_layout(file: Path, layout: dict[str, Any], length: int) -> tuple[tuple[int, ...], int]:
    """Return the shape of a row of features and the bytes of the digests; check that both fill `length` bytes."""
    try:
        digests, features = layout["digests"], layout["features"]
        sizes = features["shape"]
        if not (2 <= len(sizes) <= MOST_AXES and all(type(size) is int and 0 < size < 2**40 for size in sizes)):
            raise ValueError(sizes)
        rows, shape = sizes[0], tuple(sizes[1:])
        first, second = KEY_SIZE * rows, 2 * rows * math.prod(shape)
        fits = (
            (digests["dtype"], digests["shape"], features["dtype"]) == ("U8", [rows, KEY_SIZE], "F16")
            and (digests["data_offsets"], features["data_offsets"]) == ([second, first + second], [0, second])
            and length == first + second
        )
    except (KeyError, TypeError, IndexError, ValueError):
        fits = False
    if not fits:
        raise DataError(f"Feature pack {file} is damaged or was cut off: its size does not fit. Copy it again.")
    return shape, first


def _read_image_digests(file: Path, card: PackCard, content: BinaryIO, joint_digest: hashlib._Hash, size: int) -> bytes:
    """Return the last `size` bytes, the images' digests; check the joint digest of features and digests.

    All bytes are added to `joint_digest`, the digest of the file.
    """
    found, tail = hashlib.sha256(), b""
    while block := content.read(BLOCK):
        joint_digest.update(block)
        found.update(block)
        tail = (tail + block)[-size:] if size else b""
    if found.hexdigest() != card.content:
        raise DataError(f"Feature pack {file} is damaged or was changed: its digest does not fit. Copy it again.")
    return tail
