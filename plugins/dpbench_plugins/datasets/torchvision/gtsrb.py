"""The German Traffic Sign Recognition Benchmark: its archives as downloaded, or as torchvision unpacks them."""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

from dpbench import DataError, Dataset, Download, Source, Split, Splits, locate, setting
from dpbench_plugins.datasets.extractors import NETWORK
from dpbench_plugins.datasets.image_files import READ_FULLY, digest_byte_strings
from dpbench_plugins.datasets.image_trees import (
    ImageFile,
    Layout,
    add_units,
    list_images,
    make_image_records,
    read_rows,
)

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
ADVICE = f"Download the archive again, see {PAGE}."
TRACK = re.compile(r"(\d+)_\d+\.ppm")


@dataclass(frozen=True)
class Gtsrb(Dataset):
    """German traffic signs: 26,640 or 39,209 training and 12,630 test images of many sizes, RGB, 43 classes.

    Read from a data folder: from the three archives in `gtsrb` as downloaded, or as torchvision unpacks them:
    gtsrb/GTSRB/Training/000NN/*.ppm, gtsrb/GTSRB/Final_Test/Images/*.ppm and gtsrb/GT-final_test.csv, which has the
    labels of the test images. `training=online` is the training set of the competition's first stage, 26,640 images in
    the folder above; `training=final` is the larger one of the last stage, in gtsrb/GTSRB/Final_Training.

    Counts and labels are checked, but no checksum: a copy with resized images is accepted, and has another digest. The
    digest covers every file's name and size, the labels, and the bytes of 256 images per split, and is the same for
    archives and unpacked folders.

    Units are tracks: 30 frames, or a few fewer, of one sign filmed from a passing car. File names give the track
    (000NN/TRACK_FRAME.ppm); `training=final` has 1,307 tracks. The test images are single frames whose tracks are
    unpublished.
    """

    name = "gtsrb"
    default_extractor = NETWORK
    classes = (
        "speed limit 20", "speed limit 30", "speed limit 50", "speed limit 60", "speed limit 70", "speed limit 80",
        "end of speed limit 80", "speed limit 100", "speed limit 120", "no overtaking", "no overtaking by lorries",
        "priority at the next crossing", "priority road", "give way", "stop", "no vehicles", "no lorries", "no entry",
        "danger", "bend to the left", "bend to the right", "double bend", "uneven road", "slippery road",
        "road narrows on the right", "road works", "traffic lights", "pedestrians", "children", "bicycles",
        "ice or snow", "wild animals", "end of all limits", "turn right", "turn left", "ahead only",
        "ahead or right", "ahead or left", "keep right", "keep left", "roundabout", "end of no overtaking",
        "end of no overtaking by lorries",
    )  # fmt: skip
    licence = "unknown"
    citation = (
        "Stallkamp, Schlipsing, Salmen and Igel, Man vs. Computer: Benchmarking Machine Learning Algorithms for "
        "Traffic Sign Recognition, Neural Networks 2012"
    )
    counts = {"online": 26_640, "final": 39_209, "test": 12_630}
    training: Literal["online", "final"] = setting("online", says="published version of the training split")

    def source(self) -> Source:
        """Return where this training set and the test images come from and where they are kept."""
        parts = (self.training, "test", "truth")
        downloads = [
            Download(f"{ARCHIVES}/{name}", f"md5:{md5}", size, FOLDER, unpack=True)
            for name, md5, size in map(PACKED.__getitem__, parts)
        ]
        homes = list(product(*((PLACES[part], f"{FOLDER}/{PACKED[part][0]}") for part in parts)))
        return Source(homes=homes, page=PAGE, size=sum(file.size for file in downloads), downloads=downloads)

    def default_unit(self) -> str:
        """Return the unit that a run states epsilon for: the track."""
        return "track"

    def load(self) -> Splits:
        """Open the two splits, training images sorted by class and file name.

        Raises:
            DataError: a class folder or an image is missing, an archive is damaged, or the labels of the test images do
                not parse.
        """
        train_place, test_place, table = locate(self).paths
        train = list_images(train_place, _make_part_layout(self.training))
        test, labels = _order_images_by_table(table, list_images(test_place, _make_part_layout("test")), test_place)
        _check_classes(train, len(self.classes), train_place)
        for split, files in ((self.training, train), ("test", test)):
            _check_image_count(split, len(files), self.counts[split], train_place.parent)
        every = [int(file.kind) for file in train] + labels
        if odd := [label for label in labels if not 0 <= label < len(self.classes)]:
            raise DataError(f"Expected labels in 0..{len(self.classes) - 1} in {table}, got {odd[0]}. {ADVICE}")
        parts = [_fingerprint_part(files, part) for files, part in ((train, self.training), (test, "test"))]
        digest = digest_byte_strings(*parts, ",".join(map(str, every)).encode())
        splits = Splits(_make_split(train, every[: len(train)]), _make_split(test, labels), digest)
        return add_units(splits, [*train, *test], "track", _find_track)


def _make_part_layout(part: str) -> Layout:
    """Return the layout of a part's images; names below the unpacked folder lack the prefix `top`."""
    top = PLACES[part].removeprefix(f"{FOLDER}/") + "/"
    kind = r"(?P<kind>)" if part == "test" else r"(?P<kind>\d{5})/"
    pattern = re.compile(rf"(?P<root>(?:[^/]+/)*{top}){kind}(?P<file>[^/]+\.ppm)")
    return Layout(pattern, lambda _: "test" if part == "test" else "train", ADVICE, top)


def _find_track(file: ImageFile) -> str | None:
    found = TRACK.fullmatch(file.file)
    return f"{file.kind}/{found[1]}" if found else None


def _check_classes(files: Sequence[ImageFile], classes: int, place: Path) -> None:
    """Check that all class folders exist and no others.

    torchvision numbers the folders that it finds, so its labels would shift.
    """
    found = {file.kind for file in files}
    for kind in (f"{label:05d}" for label in range(classes)):
        if kind not in found:
            raise DataError(f"Expected .ppm images of class {int(kind)} in {place}/{kind}, got none. {ADVICE}")
    if odd := sorted(kind for kind in found if int(kind) >= classes):
        raise DataError(f"Expected {classes} class folders in {place}, got {odd[0]} too. {ADVICE}")


def _order_images_by_table(table: Path, files: Sequence[ImageFile], place: Path) -> tuple[list[ImageFile], list[int]]:
    """Return the images in the order of the table, with their labels."""
    advice = f"Download {PACKED['truth'][0]} again, from {ARCHIVES}."
    rows = read_rows(table, Path(PLACES["truth"]).name, ("Filename", "ClassId"), advice)
    try:
        labelled = [(Path(row["Filename"]).name, int(row["ClassId"])) for row in rows]
    except ValueError as error:
        raise DataError(f"Expected a number as ClassId in every line of {table}: {error}. {advice}") from error
    by_name = {file.file: file for file in files}
    if missing := [name for name, _ in labelled if name not in by_name]:
        raise DataError(f"Expected an image {place / missing[0]}, which {table} names, and found none. {ADVICE}")
    return [by_name[name] for name, _ in labelled], [label for _, label in labelled]


def _check_image_count(split: str, got: int, expected: int, folder: Path) -> None:
    if got != expected:
        raise DataError(f"Expected {expected:,} images of GTSRB ({split}) in {folder}, got {got:,}. {ADVICE}")


def _fingerprint_part(files: Sequence[ImageFile], part: str) -> bytes:
    """Return a hash of all names and sizes, and of the bytes of 256 evenly spaced images.

    Raises:
        DataError: one of the 256 images cannot be read.
    """
    total, step = hashlib.sha256(), max(1, len(files) // READ_FULLY)
    for index, file in enumerate(files):
        name = "/".join(filter(None, (PLACES[part], file.kind, file.file)))
        total.update(f"{name}\0{file.size}\n".encode())
        if index % step == 0:
            try:
                total.update(file.read())
            except (OSError, struct.error, zlib.error) as error:
                raise DataError(f"Expected a readable {name} in {file.path}: {error}. {ADVICE}") from error
    return total.digest()


def _make_split(files: Sequence[ImageFile], labels: Sequence[int]) -> Split:
    import numpy as np

    return Split(make_image_records(files, "RGB", ADVICE), np.array(labels, dtype=np.int64))
