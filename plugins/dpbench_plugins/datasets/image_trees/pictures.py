"""Turn listed images into splits: check their classes, compute a digest, and decode images on access."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, overload

from dpbench import DataError, Records, Split, Splits, decode_image
from dpbench_plugins.datasets.image_trees.listing import ImageFile, read_unpacked

if TYPE_CHECKING:
    from PIL.Image import Image

SPLIT_NAMES = {"train": "training", "test": "test"}
READ_FULLY = 256  # images per split whose bytes are part of a fingerprint


@dataclass(frozen=True)
class PictureReader:
    """Reads an image file and converts it to `mode`, so that all images have the same channels; None keeps its mode."""

    advice: str
    mode: str | None  # None: as stored

    @property
    def version(self) -> str:
        """Name and version of the decoding; increase the number when the same bytes give other pixels."""
        return f"image-file-{self.mode or 'as-stored'}-1"

    def __call__(self, file: ImageFile) -> Image:
        """Decode an image file.

        Raises:
            DataError: the file cannot be read, is not what the archive lists, or does not decode.
        """
        content = self.read_stored_bytes(file)
        try:
            image = decode_image(content, file.file, _describe_file(file))
        except DataError as error:
            raise DataError(f"{error} {self.advice}") from error
        return image if self.mode is None else self._convert(image, file, self.mode)

    def read_stored_bytes(self, file: ImageFile) -> bytes:
        """Return the stored bytes of a file.

        Raises:
            DataError: the file cannot be read, or is not what the archive lists.
        """
        try:
            content = file.read()
        except (OSError, struct.error, zlib.error) as error:
            raise self._make_broken_image_error(file, str(error)) from error
        if file.crc is not None and zlib.crc32(content) != file.crc:
            raise self._make_broken_image_error(file, "its bytes do not match their checksum")
        return content

    def _convert(self, image: Image, file: ImageFile, mode: str) -> Image:
        if image.mode[0] in "IF":  # conversion would clip 16-bit values to white above 255
            raise self._make_broken_image_error(
                file, f"it has more than 8 bits per channel (mode {image.mode}), expected 8"
            )
        if image.mode == "P" and "transparency" in image.info:  # Pillow warns if converted directly
            image = image.convert("RGBA")
        try:
            return image.convert(mode)
        except ValueError as error:
            raise self._make_broken_image_error(file, str(error)) from error

    def _make_broken_image_error(self, file: ImageFile, why: str) -> DataError:
        return DataError(f"Expected a readable {_describe_file(file)}: {why}. {self.advice}")


def _describe_file(file: ImageFile) -> str:
    return f"{file.split} image {file.kind}/{file.file} in {file.path}"


@dataclass(frozen=True)
class LazyImageDigests(Sequence[bytes]):
    """The SHA-256 of each file's bytes, computed on first access because the listing of a zip has none.

    Hashing 5,206 X-rays (33 MB) in a zip takes a third of a second.
    """

    files: Sequence[ImageFile]
    picture: PictureReader

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, index: int, /) -> bytes: ...
    @overload
    def __getitem__(self, index: slice, /) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice, /) -> bytes | Sequence[bytes]:
        return self._all[index]

    @cached_property
    def _all(self) -> list[bytes]:
        return [bytes.fromhex(file.sha256) or self._compute_digest(file) for file in self.files]

    def _compute_digest(self, file: ImageFile) -> bytes:
        return hashlib.sha256(self.picture.read_stored_bytes(file)).digest()


def make_image_records(files: Sequence[ImageFile], mode: str | None, advice: str) -> Records[ImageFile]:
    """Return files as image records, with keys if every file is packed or already hashed."""
    picture, known = PictureReader(advice, mode), all(file.packed or file.sha256 for file in files)
    keys = LazyImageDigests(files, picture) if known else None
    return Records(tuple(files), picture, keys=keys, reader=picture.version if known else "")


def digest_images(files: Sequence[ImageFile]) -> str:
    """Return a hash of the split, class, file name, size and CRC-32 of every image.

    A CRC-32 protects against accidents, not forgery.
    """
    total = hashlib.sha256()
    for file in files:
        total.update(_format_digest_line(file, f"{file.size}\0{file.crc:08x}"))
    return total.hexdigest()


def fingerprint_images(files: Sequence[ImageFile]) -> str:
    """Return a hash of every image's split, class, name and size, and of the bytes of 256 images per split.

    The 256 images are evenly spaced. A change in another image goes unnoticed if its size stays the same.

    Raises:
        DataError: an image cannot be read.
    """
    total = hashlib.sha256()
    for split in SPLIT_NAMES:
        mine = [file for file in files if file.split == split]
        step = max(1, len(mine) // READ_FULLY)
        for number, file in enumerate(mine):
            total.update(_format_digest_line(file, str(file.size)))
            if number % step == 0:
                total.update(read_unpacked(file))
    return total.hexdigest()


def check_image_counts(files: Sequence[ImageFile], counts: Mapping[str, int], path: Path, advice: str) -> None:
    """Check that each split has the published number of images.

    Raises:
        DataError: a split has another number of images; the message gives the expected and the actual numbers.
    """
    got = {split: sum(file.split == split for file in files) for split in counts}
    if got != counts:
        raise DataError(f"Expected {_format_counts(counts)} images in {path}, got {_format_counts(got)}. {advice}")


def check_class_names(files: Sequence[ImageFile], classes: Sequence[str], path: Path, advice: str) -> None:
    """Check that the splits have exactly the expected classes.

    Raises:
        DataError: a class folder is missing, empty or unknown; the message names it.
    """
    for split, name in SPLIT_NAMES.items():
        found = {file.kind for file in files if file.split == split}
        faults = {"no image of": sorted(set(classes) - found), "the unknown": sorted(found - set(classes))}
        got = "; ".join(f"{what} {_format_names(kinds)}" for what, kinds in faults.items() if kinds)
        if got:
            raise DataError(
                f"Expected {name} images in {path} in one folder for each of {len(classes):,} classes, got {got}. "
                f"{advice}"
            )


def open_splits(files: Sequence[ImageFile], kinds: Sequence[str], mode: str | None, digest: str, advice: str) -> Splits:
    """Return the training and test splits; an image's label is the index of its class folder in `kinds`."""
    import numpy as np

    label_of = {kind: label for label, kind in enumerate(kinds)}

    def make_split(name: str) -> Split:
        mine = tuple(file for file in files if file.split == name)
        return Split(
            make_image_records(mine, mode, advice), np.array([label_of[file.kind] for file in mine], dtype=np.int64)
        )

    return Splits(make_split("train"), make_split("test"), digest)


def _format_digest_line(file: ImageFile, facts: str) -> bytes:
    return f"{file.split}/{file.kind}/{file.file}\0{facts}\n".encode("utf-8", "surrogateescape")


def _format_counts(counts: Mapping[str, int]) -> str:
    return " and ".join(f"{count:,} {SPLIT_NAMES[split]}" for split, count in counts.items())


def _format_names(kinds: Sequence[str]) -> str:
    return ", ".join(map(repr, kinds[:5])) + (f" and {len(kinds) - 5:,} more" if len(kinds) > 5 else "")
