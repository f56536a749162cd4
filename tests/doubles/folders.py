"""Doubles of datasets that are published as image files: in class folders, in archives, beside tables."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.doubles.arrays import Expected, md5_of, part
from tests.doubles.pictures import blocks, deal, encode, spread

PHOTOGRAPH = (384, 384)  # of many sizes where published; about the mean number of pixels
SIGN = (48, 48)  # published: 15 to 250 pixels a side
FULL_CLASSES, LARGEST, SMALLEST = 895, 1300, 732
FLOWERS = {"trnid": 1020, "valid": 1020, "tstid": 6149}
FLOWER16 = 15_740  # about: Kaggle has had several versions
FRAMES = 30  # of a traffic sign that a car passes


def imagenet(kind: Any, folder: Path, share: float) -> Expected:
    """Write imagenet/train/ID/*.JPEG and imagenet/val/ID/*.JPEG.

    The total and the extremes of the classes' sizes are the published ones: 895 classes have 1,300 training images, the
    smallest 732. Which class has how many is made up, and so are the WordNet IDs. A share below that of one image a
    class has fewer classes.
    """
    kinds = kind.kinds if share >= 1 / LARGEST else max(2, part(kind.kinds, LARGEST * share))
    names = [f"n{1_440_764 + 12_345 * label:08d}" for label in range(kinds)]
    sizes = imagenet_counts(kind.counts["train"], kind.kinds)[:kinds]
    train = np.array([part(count, share) for count in sizes])
    test = np.full(kinds, part(kind.counts["test"] // kind.kinds, share))
    for name in names:
        (folder / "imagenet/train" / name).mkdir(parents=True, exist_ok=True)
        (folder / "imagenet/val" / name).mkdir(parents=True, exist_ok=True)
    for number, label, content in _files(spread(train.tolist()), 0, PHOTOGRAPH):
        (folder / f"imagenet/train/{names[label]}/{names[label]}_{number}.JPEG").write_bytes(content)
    for number, label, content in _files(deal(int(test.sum()), kinds), int(train.sum()), PHOTOGRAPH):
        place = number - int(train.sum()) + 1
        (folder / f"imagenet/val/{names[label]}/ILSVRC2012_val_{place:08d}.JPEG").write_bytes(content)
    counts = {"train": int(train.sum()), "test": int(test.sum())}
    return {} if counts == dict(kind.counts) else {"counts": counts, "kinds": kinds}


def imagenet_counts(total: int, classes: int) -> list[int]:
    """Return how many training images each class has: see `imagenet`."""
    rest, step = classes - FULL_CLASSES, LARGEST - 1 - SMALLEST
    left = total - FULL_CLASSES * LARGEST
    power = step / (left / rest - SMALLEST) - 1
    counts = np.rint(SMALLEST + step * np.linspace(0, 1, rest) ** power).astype(int)
    over = int(counts.sum()) - left  # what rounding and the curve leave is shared out among those in the middle
    middle = np.arange(rest // 4, rest - rest // 4)
    np.subtract.at(counts, middle[np.arange(abs(over)) % len(middle)], int(np.sign(over)))
    return [*counts.tolist(), *[LARGEST] * FULL_CLASSES]


def dermnet(kind: Any, folder: Path, share: float) -> Expected:
    """Write dermnet.zip: {train,test}/CLASS/*.jpg."""
    classes, first = kind.classes, 0
    counts = {name: max(part(count, share), len(classes)) for name, count in kind.counts.items()}
    with zipfile.ZipFile(folder / "dermnet.zip", "w") as archive:
        for name, count in counts.items():
            for number, label, content in _files(deal(count, len(classes)), first, PHOTOGRAPH):
                archive.writestr(f"{name}/{classes[label]}/double-{number}.jpg", content)
            first += count
    return {"counts": counts} if share < 1 else {}


def flower16(kind: Any, folder: Path, share: float) -> Expected:
    """Write flower16.zip: flowers/CLASS/*.jpg."""
    count = max(part(FLOWER16, share), 24 * len(kind.classes))  # so that the hash of its name tests one of each class
    with zipfile.ZipFile(folder / "flower16.zip", "w") as archive:
        for number, label, content in _files(deal(count, len(kind.classes)), 0, PHOTOGRAPH):
            archive.writestr(f"flowers/{kind.classes[label]}/{number}_double.jpg", content)
    return {}


def flowers102(kind: Any, folder: Path, share: float) -> Expected:
    """Write flowers-102/jpg/image_NNNNN.jpg and the two MATLAB files, in which numbers count from 1."""
    from scipy.io import savemat

    classes, below = len(kind.classes), folder / "flowers-102"
    (below / "jpg").mkdir(parents=True, exist_ok=True)
    counts = {name: max(classes, part(count, share)) for name, count in FLOWERS.items()}
    labels = np.concatenate([deal(count, classes) for count in counts.values()])
    ends = np.cumsum([0, *counts.values()])
    setid = {name: np.arange(ends[at] + 1, ends[at + 1] + 1)[None] for at, name in enumerate(counts)}
    savemat(below / "setid.mat", setid)
    savemat(below / "imagelabels.mat", {"labels": (labels + 1)[None].astype(np.uint8)})
    for number, _, content in _files(labels, 0, PHOTOGRAPH):
        (below / f"jpg/image_{number + 1:05d}.jpg").write_bytes(content)
    return {"md5": {name: md5_of(below / name) for name in kind.md5}}


def gtsrb(kind: Any, folder: Path, share: float) -> Expected:
    """Write the three archives of the competition's first stage: tracks of 30 frames, and test images with a table."""
    (folder / "gtsrb").mkdir(parents=True, exist_ok=True)
    classes, test = len(kind.classes), part(kind.counts["test"], share)
    tracks = deal(max(classes, part(kind.counts["online"] // FRAMES, share)), classes)
    labels = tracks.repeat(FRAMES)
    training = folder / "gtsrb/GTSRB-Training_fixed.zip"
    with zipfile.ZipFile(training, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number, label, content in _files(labels, 0, SIGN, "PPM"):
            track, frame = divmod(number, FRAMES)
            archive.writestr(f"GTSRB/Training/{label:05d}/{track // classes:05d}_{frame:05d}.ppm", content)
    table = io.StringIO()
    rows = csv.writer(table, delimiter=";", lineterminator="\r\n")
    rows.writerow(["Filename", "Width", "Height", "Roi.X1", "Roi.Y1", "Roi.X2", "Roi.Y2", "ClassId"])
    archived = folder / "gtsrb/GTSRB_Final_Test_Images.zip"
    with zipfile.ZipFile(archived, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number, label, content in _files(deal(test, classes), len(labels), SIGN, "PPM"):
            name = f"{number - len(labels):05d}.ppm"
            archive.writestr(f"GTSRB/Final_Test/Images/{name}", content)
            rows.writerow([name, SIGN[1], SIGN[0], 5, 5, SIGN[1] - 6, SIGN[0] - 6, label])
    with zipfile.ZipFile(folder / "gtsrb/GTSRB_Final_Test_GT.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("GT-final_test.csv", table.getvalue())
    return {"counts": {**kind.counts, "online": len(labels), "test": test}} if share < 1 else {}


def _files(
    labels: np.ndarray, first: int, size: tuple[int, int], form: str = "JPEG"
) -> Iterator[tuple[int, int, bytes]]:
    """Yield each image's number, its class and its file."""
    number = first
    for block in blocks(labels, first, size):
        for image in block:
            yield number, int(labels[number - first]), encode(image, form)
            number += 1
