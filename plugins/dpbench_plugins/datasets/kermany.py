"""Chest X-rays of Kermany et al. 2018, read from the zip as downloaded or from its unpacked folder."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from dpbench import DataError, Dataset, Source, Splits, hookimpl, locate
from dpbench_plugins.datasets.extractors import NETWORK
from dpbench_plugins.datasets.image_trees import (
    ImageFile,
    Layout,
    add_checksums,
    add_units,
    digest_images,
    list_images,
    open_splits,
)

Counts = tuple[tuple[int, int], tuple[int, int]]
"""Numbers of (normal, pneumonia) images in the training split, then in the test split."""

KINDS = ("NORMAL", "PNEUMONIA")
FOLDER = "chest_xray"
ARCHIVES = ("chest_xray.zip", "chest-xray-pneumonia.zip", "ChestXRay2017.zip")  # plain name, Kaggle's, Mendeley's
PAGE = "https://doi.org/10.17632/rscbjbr9sj.2"
ADVICE = f"Download the data again from {PAGE}."
LAYOUT = Layout(
    re.compile(
        rf"(?P<root>(?:[^/]+/)*{FOLDER}/)(?P<split>train|val|test)/(?P<kind>NORMAL|PNEUMONIA)/"
        r"(?P<file>[^/]+\.(?i:jpe?g))"
    ),
    split=lambda found: "test" if found["split"] == "test" else "train",
    advice=ADVICE,
    top=f"{FOLDER}/",
)
PATIENT = re.compile(  # in Kaggle's names, then in Mendeley's
    r"(person\d+_(?:bacteria|virus))_\d+\..*|((?:NORMAL2-)?IM-\d+)-\d+.*|((?:NORMAL|BACTERIA|VIRUS)-\d+)-\d+\..*"
)


@dataclass(frozen=True)
class Pneumonia(Dataset):
    """Chest X-rays of children, normal or pneumonia: 5,232 training and 624 test images of many sizes, grey or RGB.

    Read from a data folder: from `chest_xray.zip` (or `chest-xray-pneumonia.zip`, `ChestXRay2017.zip`), else from an
    unpacked folder `chest_xray`; inside, chest_xray/{train,val,test}/{NORMAL,PNEUMONIA}/*.jpeg. Nothing is
    unpacked. Kaggle (https://www.kaggle.com/datasets/paultimothymooney/chest-xray-pneumonia) moved 16 of the published
    training images to `val`; here they are training images again, as published.

    A copy without the 26 duplicate training images is accepted too (5,206 left; the test split keeps its 6 duplicates).
    The digest tells copies apart, including resized ones: it covers split, class, file name, size and CRC-32 of every
    image, and is the same for a zip and its unpacked folder; a folder is read in full to compute it. A CRC-32 protects
    against accidents, not forgery.

    Units are patients if files have their published names (person1_virus_6, NORMAL2-IM-0383-0001), which contain
    patient numbers: the 5,206 images come from 3,669 patients, 2,179 images share their patient with another image, one
    patient has 30, and no patient is in both splits. A copy with other names has no units, because its patients are
    unknown.
    """

    name = "pneumonia"
    default_extractor = NETWORK
    classes = ("normal", "pneumonia")
    licence = "CC BY 4.0"
    test_differs = (
        "test images come from other patients, and 38% of them are normal where 26% of the training images are"
    )
    citation = (
        "Kermany et al., Identifying Medical Diagnoses and Treatable Diseases by Image-Based Deep Learning, Cell 2018; "
        "doi:10.17632/rscbjbr9sj.2"
    )
    accepted: ClassVar[tuple[Counts, ...]] = (((1349, 3883), (234, 390)), ((1348, 3858), (234, 390)))

    def source(self) -> Source:
        """Return where the images come from and where they are kept."""
        return Source(homes=[[name] for name in (*ARCHIVES, FOLDER)], page=PAGE, size=1_200_000_000)

    def default_unit(self) -> str:
        """Return the unit that a run states epsilon for: the patient."""
        return "patient"

    def load(self) -> Splits:
        """Open the two splits, sorted by class and file name.

        Raises:
            DataError: a class does not have the published number of images, or the archive is damaged.
        """
        (path,) = locate(self).paths
        listed = list_images(path, LAYOUT)
        _check_counts(listed, path, self.accepted)
        files = add_checksums(listed)
        return add_units(open_splits(files, KINDS, None, digest_images(files), ADVICE), files, "patient", _find_patient)


def _find_patient(file: ImageFile) -> str | None:
    found = PATIENT.fullmatch(file.file)
    return next(filter(None, found.groups())) if found else None


def _check_counts(files: Sequence[ImageFile], path: Path, accepted: Sequence[Counts]) -> None:
    counted = Counter((file.split, file.kind) for file in files)
    train, test = (tuple(counted[split, kind] for kind in KINDS) for split in ("train", "test"))
    if (train, test) not in accepted:
        expected = "; or ".join(_format_counts(*counts) for counts in accepted)
        raise DataError(
            f"Expected in {path}, as {FOLDER}/{{train,val,test}}/{{NORMAL,PNEUMONIA}}/*.jpeg: {expected}; got "
            f"{_format_counts(train, test)}. Download the data again from {PAGE}, and do not add or remove anything."
        )


def _format_counts(train: Sequence[int], test: Sequence[int]) -> str:
    splits = (("training", train), ("test", test))
    return " and ".join(
        f"{normal:,} normal + {pneumonia:,} pneumonia {name} images" for name, (normal, pneumonia) in splits
    )


@hookimpl
def dpbench_datasets() -> Sequence[type[Dataset]]:
    """Register the datasets of this module."""
    return [Pneumonia]
