"""The public part of a folder of images: all names are listed, but only public images are opened."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dpbench.api import Extractor, Records, Split, Task
from dpbench.data import cache
from dpbench.data.concat import Concat
from dpbench.data.decoding import decode_image
from dpbench.data.ignored import report_ignored_names
from dpbench.data.keys import identify_images
from dpbench.data.units import renumber_units
from dpbench.errors import DataError, DataMissing, SpecError
from dpbench.harness.cutting import cut_rows
from dpbench.harness.raw_pixels import refuse_raw_pixels
from dpbench.records.protocol import SplitRule
from dpbench.support.files import IMAGE_ENDINGS

READER = "image-file-RGB-1"
"""The name of `read_image` in cache keys. The dataset `imagefolder` decodes files in the same way and uses this name
too, so advice and runs share cached features."""
WANTED = "train/CLASS/IMAGE, with two or more class folders"


class ImageOwners(Protocol):
    """The part of the dataset `imagefolder` that advice uses: the owner of each image, by its name."""

    def find_owners(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the owner of each image, by its name below the folder; empty if images have no units."""


@dataclass(frozen=True)
class PublicFolderData:
    """The public images as features, and public facts about the private images: their number, classes and unit."""

    x: Tensor  # (m, *example_shape) float32
    y: Tensor  # (m,) int64
    private: int  # private images, or units where epsilon is stated for one
    classes: tuple[str, ...]
    unit: str = "image"  # whose epsilon is stated
    units: np.ndarray | None = None  # (m,) int64, whose each public image is; None where each is its own

    @property
    def public_units(self) -> int:
        """The number of public images, or of public units if epsilon is stated for units."""
        return len(self.y) if self.units is None else len(np.unique(self.units))

    @property
    def task(self) -> Task:
        """The task of a run on this folder with the same split."""
        shape, device = tuple(self.x.shape[1:]), self.x.device
        return Task(shape, len(self.classes), self.private, device, public=len(self.x), same_source=True)


def open_public_folder_data(
    folder: Path,
    rule: SplitRule,
    extractor: Extractor | Concat,
    device: torch.device,
    *,
    named: bool = True,
    dataset: ImageOwners | None = None,
) -> PublicFolderData:
    """Open the public images of a folder, with the same split as `dpbench run --dataset imagefolder:FOLDER`.

    Guarantee: no private or test image is opened. The names of all files and class folders are read.
    Cached features of public images are looked up by the digests of these images. A cache file may also hold private
    rows; they are read only to compute the checksum of the file.

    Args:
        folder: holds train/CLASS/IMAGE; images may also be in folders below their class.
        rule: how training images are split into public and private.
        extractor: makes features of the public images; they are cached.
        device: where the extractor computes.
        named: whether the user named the extractor; if not, large images are refused as raw pixels.
        dataset: finds the owner of each image; None if images have no units.

    Raises:
        DataMissing: there is no such folder.
        DataError: no class folders, or an image that cannot be read.
        SpecError: nothing is public, or nothing private; or images are too large for raw pixels.
    """
    files, labels, classes = list_training_images(folder)
    units = None if dataset is None else assign_unit_numbers(folder, files, dataset)
    public, private = cut_rows(np.arange(len(files)), rule, units)
    if not len(public):
        raise SpecError("Expected public images, got none: advice is made from them. Raise --public-fraction.")
    places = [files[row] for row in public.tolist()]
    records = Records([str(place) for place in places], read_image, keys=compute_file_digests(places), reader=READER)
    split = Split(records, labels[public])
    if not named:
        refuse_raw_pixels(split.images, extractor, 0)
    images = identify_images(split, "", "public")
    x = cache.load_features(split, images, extractor, device).to(device, torch.float32)
    y = torch.from_numpy(split.labels).to(device)
    if units is None or rule.unit is None:
        return PublicFolderData(x, y, len(private), classes)
    count = len(np.unique(units[private]))
    return PublicFolderData(x, y, count, classes, rule.unit, renumber_units(units[public]))


def assign_unit_numbers(folder: Path, files: Sequence[Path], dataset: ImageOwners) -> np.ndarray | None:
    """Return the unit (n,) int64 of each training image, in the order of `files`; None if images have no units.

    Raises:
        DataMissing: the table of units does not exist.
        DataError: an image has no unit.
    """
    training = [file.relative_to(folder).as_posix() for file in files]
    other = "test" if (folder / "test").is_dir() else "val"
    found = dataset.find_owners([*training, *_list_images(folder, other)])
    return np.unique([found[name] for name in training], return_inverse=True)[1].astype(np.int64) if found else None


def list_training_images(folder: Path) -> tuple[list[Path], np.ndarray, tuple[str, ...]]:
    """Return the training images, sorted by class and path, their labels (n,) int64 and the classes; open no image.

    The number of files that are not images is reported on standard error.

    Raises:
        DataMissing: there is no such folder.
        DataError: fewer than two class folders with images.
    """
    train = folder / "train"
    if not folder.is_dir():
        raise DataMissing(f"Expected a folder of images in {folder}, which is not a folder. The layout is {WANTED}.")
    try:
        names = list(_list_file_names(train, "", frozenset({os.path.realpath(folder)})))
    except OSError as error:
        raise DataError(f"Expected {WANTED} in {folder}: {error.strerror} ({error.filename}).") from error
    images = sorted(name.partition("/")[::2] for name in names if _is_image(name))  # class, path below it
    report_ignored_names(str(train), (name for name in names if not _is_image(name)))
    classes = tuple(sorted({kind for kind, _ in images}))
    if len(classes) < 2:
        raise DataError(f"Expected {WANTED} in {folder}, got {len(classes)} class folders with images in {train}.")
    label_of = {kind: label for label, kind in enumerate(classes)}
    labels = np.array([label_of[kind] for kind, _ in images], dtype=np.int64)
    return [train / kind / name for kind, name in images], labels, classes


def _list_images(folder: Path, split: str) -> list[str]:
    """Return the names of the images in a split, which may be missing, without opening any."""
    if not (folder / split).is_dir():
        return []
    names = _list_file_names(folder / split, "", frozenset({os.path.realpath(folder)}))
    return sorted(f"{split}/{name}" for name in names if _is_image(name))


def read_image(path: str) -> Image.Image:
    """Open one image as RGB.

    Raises:
        DataError: it has more than 8 bits per channel, which conversion would clip.
    """
    image = decode_image(Path(path).read_bytes(), path)
    if image.mode[0] in "IF":
        raise DataError(f"Expected 8 bits per channel in {path}, got more (mode {image.mode}). Convert the image.")
    whole = image.convert("RGBA") if image.mode == "P" and "transparency" in image.info else image
    return whole.convert("RGB")


def compute_file_digests(files: list[Path]) -> list[bytes]:
    """Return the SHA-256 of each file.

    Raises:
        DataError: a file cannot be read.
    """
    keys = []
    for file in files:
        try:
            keys.append(hashlib.sha256(file.read_bytes()).digest())
        except OSError as error:
            why = "it points to nothing" if file.is_symlink() and not file.exists() else error.strerror
            raise DataError(f"Cannot read the public image {file}: {why}.") from error
    return keys


def _list_file_names(folder: Path, prefix: str, ancestors: frozenset[str]) -> Iterator[str]:
    """Yield the names of all files below a folder, as `imagefolder` walks it; hidden folders are named but not entered.

    Links are followed unless they lead back to a parent folder; no file is opened.
    """
    ancestors |= {os.path.realpath(folder)}
    with os.scandir(folder) as found:
        entries = list(found)
    for entry in entries:
        if _is_hidden(entry.name) or not entry.is_dir():
            yield f"{prefix}{entry.name}"
        elif os.path.realpath(entry.path) not in ancestors:
            yield from _list_file_names(Path(entry.path), f"{prefix}{entry.name}/", ancestors)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _is_image(name: str) -> bool:
    path = PurePosixPath(name)
    return len(path.parts) > 1 and path.suffix.lower() in IMAGE_ENDINGS and not _is_hidden(path.name)
