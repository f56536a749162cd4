"""Photographs of 16 kinds of flowers, as Kaggle ships them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from dpbench import Dataset, Source, Splits, locate
from dpbench_plugins.datasets.extractors import NETWORK
from dpbench_plugins.datasets.image_trees import (
    ANYWHERE,
    FILE,
    Layout,
    add_checksums,
    check_class_names,
    digest_images,
    list_images,
    open_splits,
)

PAGE = "https://www.kaggle.com/datasets/l3llff/flowers"


def _choose_split(found: re.Match[str]) -> str:
    name = f"{found['kind']}/{found['file']}"
    hashed = hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
    return "test" if int.from_bytes(hashed) % 5 == 0 else "train"


LAYOUT = Layout(
    re.compile(rf"{ANYWHERE}(?P<kind>[^/]+)/{FILE}"),
    split=_choose_split,
    advice=f"Download the data again from {PAGE}, and do not add or remove anything.",
)


@dataclass(frozen=True)
class Flower16(Dataset):
    """Photographs of 16 kinds of flowers: about 15,700 images of many sizes, RGB, a fifth of them for testing.

    Read from a data folder: from `flower16.zip` (Kaggle's download, renamed), else from an unpacked folder `flower16`;
    inside, CLASS/*.jpg at any depth, with the class folders that `classes` names. Nothing is unpacked.

    No split is published, so this one is dpbench's own: an image belongs to the test split if the SHA-256 of
    CLASS/FILE, read as a big-endian number, is divisible by five, regardless of other images. The number of images is
    not checked, because Kaggle has had several versions; the digest tells copies apart. It covers split, class, file
    name, size and CRC-32 of every image, and is the same for the zip and the folder; a folder is read in full to
    compute it.

    dpbench assumes that this is the "Flower-16" of PILLAR (Pinto et al. 2023). The paper's split is unknown, so its
    numbers are only roughly comparable. Neighbouring datasets differ by one image.
    """

    name = "flower16"
    default_extractor = NETWORK
    classes = (
        "astilbe", "bellflower", "black_eyed_susan", "calendula", "california_poppy", "carnation", "common_daisy",
        "coreopsis", "daffodil", "dandelion", "iris", "magnolia", "rose", "sunflower", "tulip", "water_lily",
    )  # fmt: skip
    licence = "unknown"
    citation = f"Flowers, photographs of 16 kinds of flowers, collected on Kaggle; {PAGE}"

    def source(self) -> Source:
        """Return where the images come from (a login is needed) and where they are kept."""
        return Source(homes=[["flower16.zip"], ["flower16"]], page=PAGE)

    def load(self) -> Splits:
        """Open the two splits, sorted by class and file name.

        Raises:
            DataError: a class folder is missing or unknown, or the zip is damaged.
        """
        (path,) = locate(self).paths
        listed = list_images(path, LAYOUT)
        check_class_names(listed, self.classes, path, LAYOUT.advice)
        files = add_checksums(listed)
        return open_splits(files, self.classes, "RGB", digest_images(files), LAYOUT.advice)
