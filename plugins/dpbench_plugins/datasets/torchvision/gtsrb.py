"""The German Traffic Sign Recognition Benchmark, unpacked as torchvision unpacks it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from dpbench import DataError, Dataset, Download, Records, Source, Split, Splits, locate
from dpbench_plugins.datasets.torchvision.image_files import digest_of, fingerprint, read_colour

PAGE = "https://benchmark.ini.rub.de/gtsrb_dataset.html"
ARCHIVES = "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370"
FOLDER = "gtsrb"
PLACES = {
    "online": f"{FOLDER}/GTSRB/Training",
    "final": f"{FOLDER}/GTSRB/Final_Training/Images",
    "test": f"{FOLDER}/GTSRB/Final_Test/Images",
    "truth": f"{FOLDER}/GT-final_test.csv",
}
PACKED = {  # archive, its MD5, its bytes; torchvision states every MD5 but the second
    "online": ("GTSRB-Training_fixed.zip", "513f3c79a4c5141765e10e952eaa2478", 187_490_228),
    "final": ("GTSRB_Final_Training_Images.zip", "f33fd80ac59bff73c82d25ab499e03a3", 276_294_756),
    "test": ("GTSRB_Final_Test_Images.zip", "c7e4e6327067d32654124b0fe9e82185", 88_978_620),
    "truth": ("GTSRB_Final_Test_GT.zip", "fe31e9c9270bbcd7b84b7f21a9d9d9e5", 99_620),
}
Listed = list[tuple[Path, int]]


@dataclass(frozen=True)
class Gtsrb(Dataset):
    """German traffic signs: 26,640 or 39,209 training and 12,630 test images of many sizes, RGB, 43 classes.

    Read from a data folder as torchvision unpacks it: gtsrb/GTSRB/Training/000NN/*.ppm,
    gtsrb/GTSRB/Final_Test/Images/*.ppm and gtsrb/GT-final_test.csv. `training=online` is that training set, of the
    competition's first stage; `training=final` is the larger one of its last stage, in gtsrb/GTSRB/Final_Training.
    Counts are checked. The digest covers every file's name and size, the labels, and the bytes of 256 images a split.

    Neighbouring datasets differ by one image: the guarantee is per image, not per sign, of which there are tracks of
    about 30 images.
    """

    name: ClassVar[str] = "gtsrb"
    classes: ClassVar[tuple[str, ...]] = (
        "speed limit 20", "speed limit 30", "speed limit 50", "speed limit 60", "speed limit 70", "speed limit 80",
        "end of speed limit 80", "speed limit 100", "speed limit 120", "no overtaking", "no overtaking by lorries",
        "priority at the next crossing", "priority road", "give way", "stop", "no vehicles", "no lorries", "no entry",
        "danger", "bend to the left", "bend to the right", "double bend", "uneven road", "slippery road",
        "road narrows on the right", "road works", "traffic lights", "pedestrians", "children", "bicycles",
        "ice or snow", "wild animals", "end of all limits", "turn right", "turn left", "ahead only",
        "ahead or right", "ahead or left", "keep right", "keep left", "roundabout", "end of no overtaking",
        "end of no overtaking by lorries",
    )  # fmt: skip
    licence: ClassVar[str] = "unknown"
    citation: ClassVar[str] = (
        "Stallkamp, Schlipsing, Salmen and Igel, Man vs. Computer: Benchmarking Machine Learning Algorithms for "
        "Traffic Sign Recognition, Neural Networks 2012"
    )
    counts: ClassVar[Mapping[str, int]] = {"online": 26_640, "final": 39_209, "test": 12_630}
    training: Literal["online", "final"] = "online"

    def source(self) -> Source:
        """Return where this training set and the test images come from and where they are kept."""
        parts = (self.training, "test", "truth")
        downloads = [
            Download(f"{ARCHIVES}/{name}", f"md5:{md5}", size, FOLDER, unpack=True)
            for name, md5, size in map(PACKED.__getitem__, parts)
        ]
        home = tuple(PLACES[part] for part in parts)
        return Source(homes=(home,), page=PAGE, size=sum(one.size for one in downloads), downloads=downloads)

    def load(self) -> Splits:
        """Open the two splits, training images sorted by class and file name.

        Raises:
            DataError: a class folder or an image is missing, or the labels of the test images do not parse.
        """
        found = locate(self)
        root = found.folder
        train_folder, test_folder, table = found.paths
        train = _in_folders(train_folder, len(self.classes))
        test = _in_table(table, test_folder)
        for split, files in ((self.training, train), ("test", test)):
            _check_count(split, len(files), self.counts[split], root)
        parts = [fingerprint([path for path, _ in files], root) for files in (train, test)]
        labels = ",".join(str(label) for _, label in train + test).encode()
        return Splits(_split(train), _split(test), digest_of(*parts, labels))


def _in_folders(folder: Path, classes: int) -> Listed:
    """List class by class; torchvision numbers the folders it finds, so that a missing one shifts every label after."""
    found = []
    for label in range(classes):
        images = sorted((folder / f"{label:05d}").glob("*.ppm"))
        if not images:
            raise DataError(
                f"Expected .ppm images of class {label} in {folder / f'{label:05d}'}, got none. "
                f"Unpack the archive again, see {PAGE}."
            )
        found += [(image, label) for image in images]
    return found


def _in_table(table: Path, folder: Path) -> Listed:
    try:
        rows = list(
            csv.DictReader(io.StringIO(table.read_text(encoding="utf-8")), delimiter=";", skipinitialspace=True)
        )
        return [(folder / Path(row["Filename"]).name, int(row["ClassId"])) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise DataError(
            f"Expected a table with Filename;...;ClassId in {table}: {type(error).__name__}: {error}. "
            f"Unpack {PACKED['truth'][0]} again, from {ARCHIVES}."
        ) from error


def _check_count(split: str, got: int, expected: int, root: Path) -> None:
    if got != expected:
        raise DataError(
            f"Expected {expected:,} images of GTSRB ({split}) below {root / FOLDER}, got {got:,}. "
            f"Unpack the archive again, see {PAGE}."
        )


def _split(files: Listed) -> Split:
    import numpy as np

    return Split(
        Records(tuple(path for path, _ in files), read_colour), np.array([label for _, label in files], dtype=np.int64)
    )
