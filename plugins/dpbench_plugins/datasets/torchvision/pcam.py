"""PatchCamelyon from its HDF5 files, unpacked as torchvision unpacks them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpbench import DataError, Dataset, Download, Records, Source, SpecError, Split, Splits, locate
from dpbench_plugins.datasets.torchvision.image_files import digest_of

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

PAGE = "https://github.com/basveeling/pcam"
RECORD = "https://zenodo.org/records/2546921"  # the authors' own; the page's links lead to Google Drive
PREFIX = "camelyonpatch_level_2_split_"
PACKED = {  # MD5 and bytes of the .h5.gz; the page states those of the validation files for the test files
    "train_x": ("1571f514728f59376b705fc836ff4b63", 6_421_353_462),
    "train_y": ("35c2d7259d906cfc8143347bb8e05be7", 21_378),
    "test_x": ("d8c2d60d490dbd479f8199bdfa0cf6ec", 800_875_929),
    "test_y": ("60a7035772fbdb7f34eb86d4420cf66a", 3_040),
}
SAMPLED = 256  # images whose bytes are part of the digest: the files have gigabytes


@dataclass(frozen=True)
class Patch:
    """Reads one image of an HDF5 file, which is opened for each, so that forked processes may read at once."""

    path: Path

    def __call__(self, row: int) -> Image:
        """Return the image in this row of the file."""
        from PIL import Image

        return Image.fromarray(_read(self.path, "x", row))


@dataclass(frozen=True)
class Pcam(Dataset):
    """PatchCamelyon: 262,144 training and 32,768 test patches of lymph nodes, 96x96 RGB, with tumour or without.

    Read from a data folder as torchvision unpacks it: pcam/camelyonpatch_level_2_split_{train,test}_{x,y}.h5, 8 GB.
    The published validation split is left out. `fraction` keeps that share of the training split (PILLAR: 0.125): the
    patches whose row numbers have the smallest SHA-256, so that smaller fractions lie within larger ones and no random
    generator can move them. The digest covers all labels, the files' sizes and the bytes of 256 patches a split; it is
    that of the whole data whatever the fraction. Reading needs h5py.

    Neighbouring datasets differ by one patch: the guarantee is per patch, not per slide or patient, of whom there are
    many patches.
    """

    name: ClassVar[str] = "pcam"
    classes: ClassVar[tuple[str, ...]] = ("normal", "tumour")
    licence: ClassVar[str] = "CC0 1.0"
    citation: ClassVar[str] = (
        "Veeling, Linmans, Winkens, Cohen and Welling, Rotation Equivariant CNNs for Digital Pathology, MICCAI 2018; "
        "arXiv:1806.03962"
    )
    sizes: ClassVar[Mapping[str, int]] = {"train": 262_144, "test": 32_768}
    fraction: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a fraction outside (0, 1]."""
        if not 0 < self.fraction <= 1:
            raise SpecError(f"Expected fraction={self.fraction} of dataset 'pcam' in (0, 1]: a share of its training.")

    def source(self) -> Source:
        """Return where the four files come from and where they are kept."""
        paths = {part: f"pcam/{PREFIX}{part}.h5" for part in PACKED}
        downloads = [
            Download(f"{RECORD}/files/{PREFIX}{part}.h5.gz?download=1", f"md5:{md5}", size, paths[part], unpack=True)
            for part, (md5, size) in PACKED.items()
        ]
        size = sum(one.size for one in downloads)
        return Source(homes=(tuple(paths.values()),), page=PAGE, size=size, downloads=downloads)

    def load(self) -> Splits:
        """Open the two splits.

        Raises:
            DataError: files that are damaged or of other sizes, or h5py is not installed.
        """
        train_x, train_y, test_x, test_y = locate(self).paths
        train, test = _labels(train_x, train_y, self.sizes["train"]), _labels(test_x, test_y, self.sizes["test"])
        kept = _subset(len(train), round(self.fraction * len(train)))
        digest = digest_of(*_named(train_x, train), *_named(test_x, test))
        whole = Split(Records(range(len(test)), Patch(test_x)), test)
        return Splits(Split(Records(kept.tolist(), Patch(train_x)), train[kept]), whole, digest)


def _labels(images: Path, labels: Path, size: int) -> np.ndarray:
    for path, key, shape in ((images, "x", (size, 96, 96, 3)), (labels, "y", (size, 1, 1, 1))):
        got = _read(path, key)
        if got != (shape, "uint8"):
            raise DataError(
                f"Expected uint8 {shape} as {key!r} in {path}, got {got[1]} {got[0]}. Download it again from {PAGE}."
            )
    values: np.ndarray = _read(labels, "y", ...)
    return values.reshape(-1).astype("int64")


def _read(path: Path, key: str, rows: Any = None) -> Any:
    """Return some rows of a dataset in an HDF5 file, or its shape and type."""
    try:
        import h5py
    except ImportError as error:
        raise DataError("Dataset 'pcam' is kept in HDF5 files. Install what reads them: pip install h5py.") from error
    try:
        with h5py.File(path, "r") as file:
            return (file[key].shape, str(file[key].dtype)) if rows is None else file[key][rows]
    except (OSError, KeyError, AttributeError) as error:
        raise DataError(f"Expected {key!r} in HDF5 file {path}: {error}. Download it again from {PAGE}.") from error


def _named(path: Path, labels: np.ndarray) -> tuple[bytes, bytes, bytes]:
    spaced = range(0, len(labels), max(1, len(labels) // SAMPLED))
    sampled = b"".join(_read(path, "x", row).tobytes() for row in spaced)
    return labels.tobytes(), str(path.stat().st_size).encode(), sampled


def _subset(size: int, kept: int) -> np.ndarray:
    import numpy as np

    if kept == size:
        return np.arange(size)
    order = sorted(range(size), key=lambda row: hashlib.sha256(str(row).encode()).digest())
    return np.array(sorted(order[: max(1, kept)]), dtype=np.int64)
