"""Datasets of MedMNIST, from the .npz files that the medmnist package downloads.

The package itself is not imported: that takes seconds, brings in torch, and creates a folder in the user's home. Its
classes, counts, licences and checksums are repeated here, and a test compares them with the package's.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from dpbench import (
    DataError,
    Dataset,
    DeclaredImages,
    Download,
    Source,
    Split,
    Splits,
    hookimpl,
    locate,
    setting,
)
from dpbench_plugins.datasets.extractors import NETWORK

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

PAPER = "Yang et al., MedMNIST v2, Scientific Data 2023, doi:10.1038/s41597-022-01721-8; "
RECORD = "https://zenodo.org/records/10519652"
SIZES = (28, 64, 128, 224)
PROCESSING = "a row of the published file, as it is"
LARGE = 300_000_000  # bytes; the files of 28 pixels are smaller


@dataclass(frozen=True)
class ArchiveImages:
    """Images of published splits, read from the archive on first access and then kept in memory."""

    path: Path
    arrays: Mapping[str, tuple[int, ...]]  # name -> (n, size, size), or (n, size, size, 3) in colour

    def __len__(self) -> int:
        return sum(shape[0] for shape in self.arrays.values())

    def __getitem__(self, index: int, /) -> Image:
        from PIL import Image

        return Image.fromarray(self._pixels[index])

    @cached_property
    def _pixels(self) -> np.ndarray:
        import numpy as np

        read = [_read_array(self.path, name, shape) for name, shape in self.arrays.items()]
        return read[0] if len(read) == 1 else np.concatenate(read)


@dataclass(frozen=True)
class _MedMnist(Dataset):
    """Base class of the MedMNIST datasets; `size` is the width and height of the images: 28, 64, 128 or 224.

    The splits are the published train and test. The validation split is left out, neither private nor public, unless
    `val=train` adds it to the training split. The file is NAME.npz (28 pixels) or NAME_SIZE.npz, in a data folder or
    else in ~/.medmnist, where the package puts its downloads.

    Files up to 300 MB must have the published MD5; larger ones are protected by the archive's CRC-32 of each array. The
    digest covers name, size and CRC-32 of every array, so no image is read to compute it; `val=train` changes the
    digest.
    """

    default_extractor = NETWORK
    counts: ClassVar[tuple[int, int]]  # of train and test
    val_count: ClassVar[int]
    colour: ClassVar[bool]
    md5: ClassVar[Mapping[int, str]]  # of the file, by the images' size
    file_sizes: ClassVar[Mapping[int, int]]  # bytes; those that end in 00,000 are rounded
    size: int = setting(28, choices=SIZES, says="side of the images in pixels")
    val: Literal["leave-out", "train"] = setting(
        "leave-out", added=True, says="what happens to the published validation split"
    )

    def source(self) -> Source:
        """Return where the file of this size comes from and where it is kept."""
        file = f"{self.name}.npz" if self.size == 28 else f"{self.name}_{self.size}.npz"
        download = Download(
            url=f"{RECORD}/files/{file}?download=1",
            checksum=f"md5:{self.md5[self.size]}",
            size=self.file_sizes[self.size],
            path=file,
        )
        homes = ((file,),)
        return Source(
            homes=homes,
            page=RECORD,
            size=download.size,
            downloads=(download,),
            elsewhere=(("~/.medmnist", homes),),
        )

    def load(self) -> Splits:
        """Open the two splits.

        Raises:
            DataError: the file is damaged or not the published one.
        """
        (path,) = locate(self).paths
        _check_md5(path, self.md5[self.size])
        digest = _digest_archive(path)
        training, tested = self.counts
        parts = {"train": training, **({"val": self.val_count} if self.val == "train" else {})}
        if self.val == "train":  # other training images need a name of their own for their features
            digest = hashlib.sha256(f"{digest}/val".encode()).hexdigest()
        return Splits(self._split(path, parts), self._split(path, {"test": tested}), digest)

    def _split(self, path: Path, parts: Mapping[str, int]) -> Split:
        """Return the images and labels of the published splits in `parts`, in order, as one split."""
        import numpy as np

        pixels = (self.size, self.size, *([3] if self.colour else []))
        arrays = {f"{name}_images": (count, *pixels) for name, count in parts.items()}
        labels = [_read_array(path, f"{name}_labels", (count, 1)) for name, count in parts.items()]
        images = DeclaredImages(ArchiveImages(path, arrays), PROCESSING)
        return Split(images, np.concatenate(labels)[:, 0].astype("int64"))


@dataclass(frozen=True)
class DermaMnist(_MedMnist):
    """DermaMNIST: 7,007 training and 2,005 test images of skin lesions (HAM10000), RGB, 7 classes."""

    name = "dermamnist"
    classes = (
        "actinic keratoses and intraepithelial carcinoma", "basal cell carcinoma", "benign keratosis-like lesions",
        "dermatofibroma", "melanoma", "melanocytic nevi", "vascular lesions",
    )  # fmt: skip
    licence = "CC BY-NC 4.0"
    citation = PAPER + "Tschandl et al., The HAM10000 dataset, Scientific Data 2018"
    counts = (7007, 2005)
    val_count = 1003
    colour = True
    md5 = {
        28: "0744692d530f8e62ec473284d019b0c7",
        64: "b70a2f5635c6199aeaa28c31d7202e1f",
        128: "2defd784463fa5243564e855ed717de1",
        224: "8974907d8e169bef5f5b96bc506ae45d",
    }
    file_sizes = {28: 19_700_000, 64: 100_100_000, 128: 370_000_000, 224: 1_100_000_000}


@dataclass(frozen=True)
class PneumoniaMnist(_MedMnist):
    """PneumoniaMNIST: 4,708 training and 624 test chest X-rays of children (Kermany), grey, 2 classes."""

    name = "pneumoniamnist"
    classes = ("normal", "pneumonia")
    licence = "CC BY 4.0"
    citation = (
        PAPER + "Kermany et al., Identifying Medical Diagnoses and Treatable "
        "Diseases by Image-Based Deep Learning, Cell 2018"
    )
    counts = (4708, 624)
    val_count = 524
    colour = False
    md5 = {
        28: "28209eda62fecd6e6a2d98b1501bb15f",
        64: "8f4eceb4ccffa70c672198ea285246c6",
        128: "05b46931834c231683c68f40c47b2971",
        224: "d6a3c71de1b945ea11211b03746c1fe1",
    }
    file_sizes = {28: 4_170_669, 64: 20_606_998, 128: 75_506_212, 224: 214_384_716}


@dataclass(frozen=True)
class PathMnist(_MedMnist):
    """PathMNIST: 89,996 training and 7,180 test patches of colorectal tissue (NCT-CRC-HE), RGB, 9 classes.

    The test patches come from another clinical centre than the training patches.
    """

    name = "pathmnist"
    classes = (
        "adipose", "background", "debris", "lymphocytes", "mucus", "smooth muscle", "normal colon mucosa",
        "cancer-associated stroma", "colorectal adenocarcinoma epithelium",
    )  # fmt: skip
    licence = "CC BY 4.0"
    citation = (
        PAPER + "Kather et al., Predicting survival from colorectal cancer "
        "histology slides using deep learning, PLOS Medicine 2019"
    )
    counts = (89_996, 7180)
    val_count = 10_004
    colour = True
    md5 = {
        28: "a8b06965200029087d5bd730944a56c1",
        64: "55aa9c1e0525abe5a6b9d8343a507616",
        128: "ac42d08fb904d92c244187169d1fd1d9",
        224: "2c51a510bcdc9cf8ddb2af93af1eadec",
    }
    file_sizes = {
        28: 205_615_438,
        64: 1_100_000_000,
        128: 4_257_786_775,
        224: 12_600_000_000,
    }


def _check_md5(path: Path, expected: str) -> None:
    try:
        if path.stat().st_size > LARGE:
            return
        got = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    except OSError as error:
        raise _make_broken_file_error(path, str(error)) from error
    if got != expected:
        raise _make_broken_file_error(path, f"its MD5 is {got}, published is {expected}")


def _digest_archive(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            listed = sorted(f"{info.filename}\0{info.file_size}\0{info.CRC:08x}\n" for info in archive.infolist())
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise _make_broken_file_error(path, str(error)) from error
    return hashlib.sha256("".join(listed).encode()).hexdigest()


def _read_array(path: Path, key: str, shape: tuple[int, ...]) -> np.ndarray:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as arrays:
            array: np.ndarray = arrays[key]
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise _make_broken_file_error(path, f"{key}: {error}") from error
    if array.shape != shape or array.dtype != np.uint8:
        raise _make_broken_file_error(path, f"{key} is {array.dtype} {array.shape}, expected uint8 {shape}")
    return array


def _make_broken_file_error(path: Path, why: str) -> DataError:
    return DataError(f"Expected the arrays of MedMNIST in {path}: {why}. Download it again from {RECORD}.")


@hookimpl
def dpbench_datasets() -> Sequence[type[Dataset]]:
    """Register the datasets of this module."""
    return [DermaMnist, PneumoniaMnist, PathMnist]
