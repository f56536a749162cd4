"""The public part of a folder of images: names are listed, and only images that are public are opened."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dpbench.api import Extractor, Records, Split, Task
from dpbench.data import cache
from dpbench.data.concat import Concat
from dpbench.errors import DataError, DataMissing, SpecError
from dpbench.harness.raw_pixels import refuse_raw_pixels
from dpbench.harness.roles import cut
from dpbench.records.protocol import SplitRule
from dpbench.support.files import IMAGES

WANTED = "train/CLASS/IMAGE, with two or more class folders"


@dataclass(frozen=True)
class PublicPart:
    """The public images as features, and what is public about the private ones: how many, and of which classes."""

    x: Tensor  # (m, *example_shape) float32
    y: Tensor  # (m,) int64
    private: int  # private images
    classes: tuple[str, ...]

    @property
    def task(self) -> Task:
        """The task of the real run."""
        shape, device = tuple(self.x.shape[1:]), self.x.device
        return Task(shape, len(self.classes), self.private, device, public=len(self.x), same_source=True)


def open_public(
    folder: Path, rule: SplitRule, extractor: Extractor | Concat, device: torch.device, *, named: bool = True
) -> PublicPart:
    """Return the public images of a folder, cut as `dpbench run --dataset imagefolder:FOLDER` cuts them.

    Covered: no private image is opened and no test image is looked for; names of files and class folders are read.

    Args:
        folder: with train/CLASS/IMAGE.
        rule: how training images are cut into public and private.
        extractor: makes features of the public images; they are cached.
        device: where the extractor computes.
        named: whether somebody named the extractor: without one, large images are refused as raw pixels.

    Raises:
        DataMissing: there is no such folder.
        DataError: no class folders, or an image that cannot be read.
        SpecError: nothing is public, or nothing private; or images are too large for raw pixels.
    """
    files, labels, classes = list_training(folder)
    public, private = cut(np.arange(len(files)), rule, None)
    if not len(public):
        raise SpecError("Expected public images, got none: advice is made from them. Raise --public-fraction.")
    places = [files[row] for row in public.tolist()]
    split = Split(Records([str(place) for place in places], read_image), labels[public.numpy()])
    if not named:
        refuse_raw_pixels(split.images, extractor)
    source = cache.source_of(digest_of(places, folder), "public", len(places), extractor)
    x = cache.load_features(split, source, extractor, device).to(device, torch.float32)
    return PublicPart(x, torch.from_numpy(split.labels).to(device), len(private), classes)


def list_training(folder: Path) -> tuple[list[Path], np.ndarray, tuple[str, ...]]:
    """Return the training images sorted by class and name, their labels (n,) int64, and the classes; none is opened.

    Raises:
        DataMissing: there is no such folder.
        DataError: fewer than two class folders with images.
    """
    train = folder / "train"
    if not folder.is_dir():
        raise DataMissing(f"Expected a folder of images in {folder}, which is not a folder. The layout is {WANTED}.")
    try:
        kinds = sorted(one.name for one in train.iterdir() if one.is_dir() and not one.name.startswith("."))
        of = {kind: sorted(one for one in (train / kind).iterdir() if _is_image(one)) for kind in kinds}
    except OSError as error:
        raise DataError(f"Expected {WANTED} in {folder}: {error.strerror} ({error.filename}).") from error
    classes = tuple(kind for kind in kinds if of[kind])
    if len(classes) < 2:
        raise DataError(f"Expected {WANTED} in {folder}, got {len(classes)} class folders with images in {train}.")
    files = [file for kind in classes for file in of[kind]]
    labels = np.repeat(np.arange(len(classes)), [len(of[kind]) for kind in classes])
    return files, labels.astype(np.int64), classes


def read_image(place: str) -> Image.Image:
    """Open one image as RGB.

    Raises:
        DataError: it has more than 8 bits per channel, which conversion would clip.
    """
    with Image.open(place) as image:
        if image.mode[0] in "IF":
            raise DataError(f"Expected 8 bits per channel in {place}, got more (mode {image.mode}). Convert the image.")
        whole = image.convert("RGBA") if image.mode == "P" and "transparency" in image.info else image
        return whole.convert("RGB")


def digest_of(files: list[Path], folder: Path) -> str:
    """Identify public images by their names and bytes.

    Raises:
        DataError: one cannot be read.
    """
    total = hashlib.sha256()
    for file in files:
        try:
            total.update(f"{file.relative_to(folder)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
        except OSError as error:
            raise DataError(f"Cannot read the public image {file}: {error.strerror}.") from error
    return total.hexdigest()


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in IMAGES and not file.name.startswith(".")
