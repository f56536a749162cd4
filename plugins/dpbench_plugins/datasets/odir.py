"""ODIR-5K: fundus photographs of both eyes of patients, split into training and test images by patient."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpbench import DataError, Dataset, Source, Splits, hookimpl, locate
from dpbench_plugins.datasets.extractors import NETWORK
from dpbench_plugins.datasets.hash_cut import is_in_test_split
from dpbench_plugins.datasets.image_trees import (
    ANYWHERE,
    ImageFile,
    Layout,
    add_checksums,
    add_groups,
    add_units,
    age_band,
    check_one_line_per_image,
    digest_images,
    list_images,
    open_splits,
    read_rows,
    table_name,
)

KINDS = "NDGCAHMO"
FOLDER = "odir"
IMAGES = "preprocessed_images"
ARCHIVE = "ocular-disease-recognition-odir5k.zip"
TABLES: Mapping[str, tuple[str, ...]] = {  # file name, patient, age, sex and label of an image, as each table has them
    "full_df.csv": ("filename", "ID", "Patient Age", "Patient Sex", "labels"),
    "odir.csv": ("image_id", "patient_id", "age", "sex", "label"),
}
COUNT = 6_392
UNKNOWN_AGE = "1"  # of 28 images, most of them of adults' diseases; the next age is 14
SAME_PERSON: Mapping[str, str] = {"973": "352", "3185": "2487", "668": "398", "1043": "321"}
"""Patient numbers whose photographs are those of a patient with a smaller number."""
PAGE = "https://www.kaggle.com/datasets/andrewmvd/ocular-disease-recognition-odir5k"
ADVICE = f"Copy the data again from {PAGE}."
LAYOUT = Layout(
    re.compile(rf"{ANYWHERE}{IMAGES}/(?P<kind>)(?P<file>\d+_(?:left|right)\.jpg)"),
    split=lambda _: "train",
    advice=ADVICE,
    top=f"{IMAGES}/",
)


@dataclass(frozen=True)
class TableRow:
    """The metadata of one image: its row of the table."""

    person: str
    age: str
    sex: str
    kind: str


@dataclass(frozen=True)
class Odir(Dataset):
    """Fundus photographs of ODIR-5K: 6,392 images of the eyes of 3,354 people, RGB, 8 classes.

    Read from a data folder: odir/preprocessed_images/ID_{left,right}.jpg and odir/full_df.csv, or a table odir.csv with
    the columns image_id, patient_id, age, sex and label; or Kaggle's archive with the same, unpacked or as downloaded
    (odir/ocular-disease-recognition-odir5k.zip). Each image has the label of its eye. The table must name exactly the
    existing images; a copy with fewer images is accepted, and every result states their number and the digest.

    Units are patients: 3,034 of the 3,358 published ones have images of both eyes. Four people have two patient numbers
    each (their photographs are the same); both numbers count as the same patient: 352 and 973, 2487 and 3185, 398 and
    668, 321 and 1043.

    The labels of the challenge's test split are not published, so this split is dpbench's own: a patient belongs to the
    test split if the SHA-256 of the patient number (the smaller of two) is divisible by five, regardless of other
    patients. Groups of the test split are sex and age (in bands of ten years; age 1 means unknown).

    The digest covers split, class, file name, size and CRC-32 of every image, and the table's lines. Resized copies
    have other digests. A zip and its unpacked folder have the same digest; a folder is read in full to compute it.
    """

    name = "odir"
    default_extractor = NETWORK
    classes = (
        "normal", "diabetes", "glaucoma", "cataract", "age-related macular degeneration", "hypertension",
        "pathological myopia", "other abnormalities",
    )  # fmt: skip
    licence = "none stated; research use"
    citation = (
        "Li, Li, Hu, Wang and Kang, A Benchmark of Ocular Disease Intelligent Recognition: One Shot for Multi-disease "
        "Detection, 2021; arXiv:2102.07978"
    )

    def source(self) -> Source:
        """Return where the images come from (a login is needed) and where they are kept."""
        folders = [(f"{FOLDER}/{IMAGES}", f"{FOLDER}/{table}") for table in TABLES]
        return Source(homes=[*folders, (f"{FOLDER}/{ARCHIVE}",)], page=PAGE)

    def default_unit(self) -> str:
        """Return the unit that a run states epsilon for: the patient."""
        return "patient"

    def load(self) -> Splits:
        """Open the two splits, sorted by class and file name.

        Raises:
            DataError: the table does not parse or does not match the images, or the zip is damaged.
        """
        paths = locate(self).paths
        images, table = paths[0], paths[-1]
        lines, listed = _read_table(table), list_images(images, LAYOUT)
        check_one_line_per_image(
            [file.file for file in listed], list(lines), images, table_name(table, _table_name(table)), ADVICE
        )

        def assign_split(file: ImageFile) -> ImageFile:
            line = lines[file.file]
            return file._replace(kind=line.kind, split="test" if is_in_test_split(line.person.encode()) else "train")

        files = sorted(map(assign_split, add_checksums(listed)))
        told = "\n".join(f"{name} {line.person} {line.sex} {line.age}" for name, line in sorted(lines.items()))
        of_all = hashlib.sha256(f"{digest_images(files)}\n{told}".encode()).hexdigest()
        splits = open_splits(files, KINDS, "RGB", of_all, ADVICE)
        splits = add_groups(splits, files, lambda file: _describe_groups(lines[file.file]))
        splits = add_units(splits, files, "patient", lambda file: lines[file.file].person)
        return dataclasses.replace(splits, edition=_format_edition(len(files), of_all))


def _table_name(table: Path) -> str:
    """Return the file name of this table; for a zip, the first name of `TABLES`."""
    return table.name if table.name in TABLES else next(iter(TABLES))


def _read_table(table: Path) -> dict[str, TableRow]:
    """Return each image's row of the table, by file name."""
    name = _table_name(table)
    where, rows = table_name(table, name), read_rows(table, name, TABLES[name], ADVICE)
    lines = dict(_parse_row(tuple(row.values()), where) for row in rows)
    if len(lines) < len(rows):
        raise DataError(
            f"Expected every image once in {where}, got {len(rows):,} lines for {len(lines):,} images. {ADVICE}"
        )
    return lines


def _parse_row(row: tuple[str, ...], where: str) -> tuple[str, TableRow]:
    """Return an image's file name and its `TableRow`, from cells in the order of `TABLES`."""
    image, patient, age, sex, label = row
    kind = label.strip("[]'")
    if len(kind) != 1 or kind not in KINDS:
        raise DataError(
            f"Expected one of the labels {', '.join(KINDS)} for every image in {where}, got {label!r} for {image}. "
            f"{ADVICE}"
        )
    if not patient.isdecimal():
        raise DataError(
            f"Expected the number of a patient for every image in {where}, got {patient!r} for {image}. {ADVICE}"
        )
    patient = str(int(patient))
    return f"{image.removesuffix('.jpg')}.jpg", TableRow(SAME_PERSON.get(patient, patient), age, sex, kind)


def _describe_groups(line: TableRow) -> dict[str, str]:
    return {"sex": line.sex.lower(), "age": "" if line.age == UNKNOWN_AGE else age_band(line.age)}


def _format_edition(count: int, digest: str) -> str:
    return (
        f"{count:,} of the {COUNT:,} photographs of Kaggle's ODIR-5K, digest {digest[:12]}; no split is published, so "
        "the fifth of the patients whose SHA-256 of the number is divisible by five is the test split"
    )


@hookimpl
def dpbench_datasets() -> Sequence[type[Dataset]]:
    """Register the datasets of this module."""
    return [Odir]
