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
from dpbench.data.keys import identify_images
from dpbench.errors import DataError, DataMissing, SpecError
from dpbench.harness.hints import suggest_network
from dpbench.harness.roles import cut
from dpbench.records.protocol import SplitRule
from dpbench.support.files import IMAGES

READER = "image-file-RGB-1"
"""What `read_image` makes of a file: the same as the dataset `imagefolder`, which names it alike, so that features of
images that a run has extracted are found, and the other way round."""
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
    folder: Path, rule: SplitRule, extractor: Extractor | Concat, device: torch.device, *, hint: bool = False
) -> PublicPart:
    """Return the public images of a folder, cut as `dpbench run --dataset imagefolder:FOLDER` cuts them.

    Covered: no private image is opened and no test image is looked for; names of files and class folders are read.
    Cached features of public images are found by the bytes of those images, also in files that have private rows, of
    which only the checksum is computed.

    Args:
        folder: with train/CLASS/IMAGE.
        rule: how training images are cut into public and private.
        extractor: makes features of the public images; they are cached.
        device: where the extractor computes.
        hint: whether to suggest a network where images are large.

    Raises:
        DataMissing: there is no such folder.
        DataError: no class folders, or an image that cannot be read.
        SpecError: nothing is public, or nothing private.
    """
    files, labels, classes = list_training(folder)
    public, private = cut(np.arange(len(files)), rule, None)
    if not len(public):
        raise SpecError("Expected public images, got none: advice is made from them. Raise --public-fraction.")
    places = [files[row] for row in public.tolist()]
    records = Records([str(place) for place in places], read_image, keys=compute_keys(places), reader=READER)
    split = Split(records, labels[public.numpy()])
    if hint:
        suggest_network(split.images)
    images = identify_images(split, "", "public")
    x = cache.load_features(split, images, extractor, device).to(device, torch.float32)
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


def compute_keys(files: list[Path]) -> list[bytes]:
    """Return the SHA-256 of each file.

    Raises:
        DataError: one cannot be read.
    """
    try:
        return [hashlib.sha256(file.read_bytes()).digest() for file in files]
    except OSError as error:
        raise DataError(f"Cannot read the public image {error.filename}: {error.strerror}.") from error


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in IMAGES and not file.name.startswith(".")
