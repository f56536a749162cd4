"""PatchCamelyon's HDF5 files, unpacked as torchvision unpacks them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpbench import DataError, Download, Records, Split, Splits
from dpbench_plugins.datasets.image_files import digest_byte_strings

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

PAGE = "https://github.com/basveeling/pcam"
RECORD = "https://zenodo.org/records/2546921"  # the authors' own; the page's links lead to Google Drive
PREFIX = "camelyonpatch_level_2_split_"
PACKED = {  # MD5 and bytes of the .h5.gz; the page has those of the validation and the test files the wrong way round
    "train_x": ("1571f514728f59376b705fc836ff4b63", 6_421_353_462),
    "train_y": ("35c2d7259d906cfc8143347bb8e05be7", 21_378),
    "valid_x": ("d5b63470df7cfa627aeec8b9dc0c066e", 805_965_320),
    "valid_y": ("2b85f58b927af9964a4c15b8f7e8f179", 3_038),
    "test_x": ("d8c2d60d490dbd479f8199bdfa0cf6ec", 800_875_929),
    "test_y": ("60a7035772fbdb7f34eb86d4420cf66a", 3_040),
}
SAMPLED = 256  # images whose bytes are part of the digest: the files have gigabytes


@dataclass(frozen=True)
class PatchReader:
    """Reads an image from HDF5 files, which are opened each time so that forked processes can read at once."""

    paths: tuple[Path, ...]
    sizes: tuple[int, ...]  # images in each

    def __call__(self, row: int) -> Image:
        """Return the image of a row; rows are numbered consecutively across the files."""
        from PIL import Image

        for path, size in zip(self.paths, self.sizes, strict=True):
            if row < size:
                return Image.fromarray(_read_rows(path, "x", row))
            row -= size
        raise IndexError(row)


@dataclass(frozen=True)
class PublishedSplit:
    """The image file and the labels of a published split."""

    images: Path
    labels: np.ndarray  # (n,) int64


def list_downloads(splits: Sequence[str]) -> list[Download]:
    """Return the downloads of these splits: an image file and a label file for each."""
    return [
        Download(
            f"{RECORD}/files/{PREFIX}{part}.h5.gz?download=1",
            f"md5:{md5}",
            size,
            f"pcam/{PREFIX}{part}.h5",
            unpack=True,
        )
        for part, (md5, size) in PACKED.items()
        if part.partition("_")[0] in splits
    ]


def open_published_split(images: Path, labels: Path, size: int) -> PublishedSplit:
    """Open a published split of `size` images.

    Raises:
        DataError: a file is damaged, has other keys or another number of images or labels, or h5py is not installed.
    """
    (x, pixel), (y, label) = _read_shape(images, "x"), _read_shape(labels, "y")
    if x[0] != y[0]:
        raise DataError(
            f"Expected one label an image, got {x[0]:,} images in {images} and {y[0]:,} labels in {labels}. Download "
            f"both again from {PAGE}."
        )
    for path, key, got, shape in (
        (images, "x", (x, pixel), (size, 96, 96, 3)),
        (labels, "y", (y, label), (size, 1, 1, 1)),
    ):
        if got != (shape, "uint8"):
            raise DataError(
                f"Expected uint8 {shape} as {key!r} in {path}, got {got[1]} {got[0]}. Download it again from {PAGE}."
            )
    values: np.ndarray = _read_rows(labels, "y", ...)
    if odd := sorted(set(values.reshape(-1).tolist()) - {0, 1}):
        raise DataError(f"Expected labels 0 and 1 in {labels}, got {odd[0]}. Download it again from {PAGE}.")
    return PublishedSplit(images, values.reshape(-1).astype("int64"))


def join_published_splits(training: Sequence[PublishedSplit], test: PublishedSplit, fraction: float) -> Splits:
    """Return the share `fraction` of the published training splits, in their order, and the published test split."""
    import numpy as np

    labels = np.concatenate([part.labels for part in training])
    kept = choose_rows_by_hash(len(labels), round(fraction * len(labels)))
    reader = PatchReader(tuple(part.images for part in training), tuple(len(part.labels) for part in training))
    digest = digest_byte_strings(*(piece for part in (*training, test) for piece in _collect_split_identity(part)))
    whole = Split(Records(range(len(test.labels)), PatchReader((test.images,), (len(test.labels),))), test.labels)
    return Splits(Split(Records(kept.tolist(), reader), labels[kept]), whole, digest)


def choose_rows_by_hash(size: int, kept: int) -> np.ndarray:
    """Return the `kept` row numbers with the smallest SHA-256, in ascending order."""
    import numpy as np

    if kept == size:
        return np.arange(size)
    order = sorted(range(size), key=lambda row: hashlib.sha256(str(row).encode()).digest())
    return np.array(sorted(order[: max(1, kept)]), dtype=np.int64)


def _read_shape(path: Path, key: str) -> tuple[tuple[int, ...], str]:
    """Return the shape and type of a dataset in an HDF5 file."""
    shape, dtype = _read_rows(path, key)
    if not shape:
        raise DataError(f"Expected an array as {key!r} in {path}, got a single {dtype}. Download it again from {PAGE}.")
    return shape, dtype


def _read_rows(path: Path, key: str, rows: Any = None) -> Any:
    """Return `rows` of a dataset in an HDF5 file, or its shape and type if `rows` is None."""
    try:
        import h5py
    except ImportError as error:
        raise DataError("Dataset 'pcam' is kept in HDF5 files. Install what reads them: pip install h5py.") from error
    try:
        with h5py.File(path, "r") as file:
            if key not in file:
                raise KeyError(f"its keys are {', '.join(file) or 'none'}")
            return (file[key].shape, str(file[key].dtype)) if rows is None else file[key][rows]
    except (OSError, KeyError, AttributeError) as error:
        said = error.args[0] if isinstance(error, KeyError) else error
        raise DataError(f"Expected {key!r} in HDF5 file {path}: {said}. Download it again from {PAGE}.") from error


def _collect_split_identity(part: PublishedSplit) -> tuple[bytes, bytes, bytes]:
    """Return the identity of a published split: its labels, the size of its file and the bytes of 256 images."""
    spaced = range(0, len(part.labels), max(1, len(part.labels) // SAMPLED))
    sampled = b"".join(_read_rows(part.images, "x", row).tobytes() for row in spaced)
    return part.labels.tobytes(), str(part.images.stat().st_size).encode(), sampled
