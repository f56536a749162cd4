"""CIFAR-100 in its Python version, unpacked as torchvision unpacks it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dpbench import DataError, Dataset, Download, Source, Split, Splits, locate, setting
from dpbench_plugins.datasets.extractors import NETWORK
from dpbench_plugins.datasets.image_files import digest_byte_strings, make_array_records, read_verified_file
from dpbench_plugins.datasets.torchvision.pickles import read_arrays

HOST = "https://www.cs.toronto.edu/~kriz"
PAGE = f"{HOST}/cifar.html"
FOLDER = "cifar-100-python"
ARCHIVE = Download(
    url=f"{HOST}/{FOLDER}.tar.gz",
    checksum="md5:eb9058c3a382ffc7106e4002c42a8d85",
    size=169_001_437,
    path=".",  # it holds the folder
    unpack=True,
)
FINE = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish", "forest",
    "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion", "lizard",
    "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange", "orchid",
    "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine", "possum",
    "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper",
    "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone",
    "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf",
    "woman", "worm",
)  # fmt: skip
COARSE = (
    "aquatic_mammals", "fish", "flowers", "food_containers", "fruit_and_vegetables", "household_electrical_devices",
    "household_furniture", "insects", "large_carnivores", "large_man-made_outdoor_things",
    "large_natural_outdoor_scenes", "large_omnivores_and_herbivores", "medium_mammals", "non-insect_invertebrates",
    "people", "reptiles", "small_mammals", "trees", "vehicles_1", "vehicles_2",
)  # fmt: skip


@dataclass(frozen=True)
class Cifar100(Dataset):
    """CIFAR-100: 50,000 training and 10,000 test images, 32x32 RGB, 100 fine or 20 coarse classes.

    Read from cifar-100-python/{train,test} below a data folder. These are the only pickles that dpbench reads: their
    MD5 must be the published one, and only arrays are rebuilt. The digest identifies the two files, so it is the same
    with fine and with coarse labels.
    """

    name = "cifar100"
    default_extractor = NETWORK
    classes = FINE
    licence = "none stated; research use"
    citation = "Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009"
    md5 = {
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    }
    labels: Literal["fine", "coarse"] = setting("fine", says="100 fine or 20 coarse classes")

    def __post_init__(self) -> None:
        """Set `classes` to the coarse classes if `labels` is coarse."""
        if self.labels == "coarse":
            object.__setattr__(self, "classes", COARSE)

    def source(self) -> Source:
        """Return where the two files come from and where they are kept."""
        home = tuple(f"{FOLDER}/{split}" for split in self.md5)
        return Source(homes=(home,), page=PAGE, size=ARCHIVE.size, downloads=(ARCHIVE,))

    def load(self) -> Splits:
        """Open the two splits.

        Raises:
            DataError: a file is not the published one.
        """
        paths = locate(self).paths
        contents = [read_verified_file(path, md5, PAGE) for path, md5 in zip(paths, self.md5.values(), strict=True)]
        train, test = (_parse_split(content, path, self.labels) for content, path in zip(contents, paths, strict=True))
        return Splits(train, test, digest_byte_strings(*contents))


def _parse_split(content: bytes, path: Path, labels: str) -> Split:
    import numpy as np

    held = read_arrays(content, path)
    try:
        rows, classes = held[b"data"], np.array(held[f"{labels}_labels".encode()], dtype=np.int64)
        if rows.dtype != np.uint8 or rows.shape != (len(classes), 3072):
            raise ValueError(f"got {rows.dtype} {rows.shape} for {len(classes)} labels")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"Expected in {path} a dictionary with uint8 data (n, 3072) and n {labels}_labels: {error}. "
            f"Download it again from {PAGE}."
        ) from error
    return Split(make_array_records(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), classes)
