"""CIFAR-10.1: new images for the classes of CIFAR-10, as public data with a slight distribution shift."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dpbench import DataError, Dataset, Download, Source, Split, Splits, hookimpl, locate, setting
from dpbench_plugins.datasets.cifar10 import Cifar10
from dpbench_plugins.datasets.extractors import NETWORK
from dpbench_plugins.datasets.image_files import digest_byte_strings, make_array_records

if TYPE_CHECKING:
    import numpy as np

PAGE = "https://github.com/modestyachts/CIFAR-10.1"
RAW = "https://raw.githubusercontent.com/modestyachts/CIFAR-10.1/d9982abb0bfc4846b8d13a11e66b887d946205d0/"
FOLDER = "CIFAR-10.1/datasets"  # as in a clone of the repository
IMAGES = {"v4": 2021, "v6": 2000}


@dataclass(frozen=True)
class Cifar101(Dataset):
    """CIFAR-10.1: about 2,000 new images for the classes of CIFAR-10, collected the same way (Recht et al. 2018).

    It was published as a test set. Here it serves as public data (`--public-dataset cifar10.1`, as in Table 2a of
    PILLAR), so every image is in the training split and the test split is empty. `v6` has 200 images per class; `v4`
    is the first version (2,021 images). Read from `CIFAR-10.1/datasets/*.npy` below a data folder.
    """

    name = "cifar10.1"
    default_extractor = NETWORK
    classes = Cifar10.classes
    licence = "none stated; to be used as Tiny Images, which its authors withdrew in 2020"
    citation = (
        "Recht, Roelofs, Schmidt and Shankar, Do CIFAR-10 Classifiers Generalize to CIFAR-10?, 2018, arXiv:1806.00451"
    )
    # Bytes and SHA-256, as given by TensorFlow Datasets (url_checksums/cifar10_1.txt): the publisher gives none.
    published = {
        "v4_data": (6_208_640, "5aaedc268df8f4cffca2ac0cf9e608ae1897a8cddb630c7a850a2ea8f6558e75"),
        "v4_labels": (8_212, "1f9544300ded199539b6662364ce7fe6c2e1ea9f87408f06db4b1a6184cffb18"),
        "v6_data": (6_144_128, "2997188e5816f5bd545dc77771b6227828c28146049fcecf3fa10775474cacc6"),
        "v6_labels": (8_128, "ae40beda001693674edc94d925ee8268cfe68905f8f9aff800c8dcdfcd6c9448"),
    }

    version: Literal["v4", "v6"] = setting("v6", says="published version of the test split")

    def source(self) -> Source:
        """Return the image and label files of this version, with their checksums."""
        downloads = []
        for part in (f"{self.version}_data", f"{self.version}_labels"):
            (size, sha256), file = self.published[part], f"cifar10.1_{part}.npy"
            downloads.append(Download(f"{RAW}datasets/{file}", f"sha256:{sha256}", size, f"{FOLDER}/{file}"))
        home = [file.path for file in downloads]
        return Source(homes=[home], page=PAGE, size=sum(file.size for file in downloads), downloads=downloads)

    def load(self) -> Splits:
        """Open all images as the training split.

        Raises:
            DataError: the files are damaged or of another version.
        """
        import numpy as np

        paths = locate(self).paths
        contents = [path.read_bytes() for path in paths]
        images, labels = (_parse_array(content, path) for content, path in zip(contents, paths, strict=True))
        size = IMAGES[self.version]
        _check_array(paths[0], images, (size, 32, 32, 3), images.dtype == np.uint8, "of uint8")
        within = labels.dtype.kind in "iu" and bool(((labels >= 0) & (labels < 10)).all())
        _check_array(paths[1], labels, (size,), within, "of integers in 0..9")
        train = Split(make_array_records(images), labels.astype(np.int64))
        return Splits(train, Split(make_array_records(images[:0]), train.labels[:0]), digest_byte_strings(*contents))


def _parse_array(content: bytes, path: Path) -> np.ndarray:
    from numpy.lib import format as npy

    try:
        array: np.ndarray = npy.read_array(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(f"Expected a NumPy array in {path}: {error}. Download it again from {PAGE}.") from error
    return array


def _check_array(path: Path, array: np.ndarray, shape: tuple[int, ...], is_valid: bool, values: str) -> None:
    if array.shape != shape or not is_valid:
        raise DataError(
            f"Expected an array {shape} {values} in {path}, got {array.dtype} {array.shape}. Download it again from "
            f"{PAGE}."
        )


@hookimpl
def dpbench_datasets() -> Sequence[type[Dataset]]:
    """Register the datasets of this module."""
    return [Cifar101]
