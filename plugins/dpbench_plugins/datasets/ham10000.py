"""HAM10000: dermatoscopic images of Tschandl et al. 2018, split into training and test images by lesion."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

from dpbench import DataError, Dataset, Source, Splits, hookimpl, locate, setting
from dpbench_plugins.datasets.extractors import NETWORK
from dpbench_plugins.datasets.image_trees import (
    ANYWHERE,
    ImageFile,
    Layout,
    add_checksums,
    add_groups,
    add_units,
    age_band,
    digest_images,
    list_images,
    open_splits,
    read_rows,
)

KINDS = ("akiec", "bcc", "bkl", "df", "mel", "nv", "vasc")
FOLDER = "ham10000"
PARTS = ("HAM10000_images_part_1", "HAM10000_images_part_2")
TABLES = ("HAM10000_metadata.csv", "HAM10000_metadata", "HAM10000_metadata.tab")
COLUMNS = ("image_id", "lesion_id", "dx")
DESCRIBED = ("sex", "age", "dataset")  # for groups alone: a table may lack these columns
PAGE = "https://doi.org/10.7910/DVN/DBW86T"
ADVICE = f"Download the data again from {PAGE}, and do not add or remove anything."
LAYOUT = Layout(re.compile(rf"{ANYWHERE}(?P<kind>)(?P<file>ISIC_\d+\.jpg)"), split=lambda _: "train", advice=ADVICE)


@dataclass(frozen=True)
class TableRow:
    """The metadata of one image: its row of the table."""

    lesion: str
    kind: str
    sex: str = ""
    age: str = ""
    source: str = ""

    @property
    def groups(self) -> dict[str, str]:
        """Sex, age band and source of the image, for accuracy by group; empty where unknown."""
        sex = "" if self.sex == "unknown" else self.sex
        return {"sex": sex, "age": age_band(self.age), "source": self.source}


@dataclass(frozen=True)
class Ham10000(Dataset):
    """Dermatoscopic images of pigmented skin lesions: 10,015 images of 7,470 lesions, RGB, 7 classes.

    Read from a data folder: ham10000/HAM10000_images_part_{1,2}, folders or zips as downloaded, and
    ham10000/HAM10000_metadata.csv (or .tab). Nothing is unpacked. The table has exactly one line for each image.

    Units are lesions: 1,956 of them have 2 to 6 images, always in one class. No split is published, so this one is
    dpbench's own: the test split has the fifth of each class's lesions with the smallest SHA-256 of "SEED LESION_ID".
    No lesion is in both splits, and the split depends on the published table and SEED alone. Two thirds of the images
    are naevi. Patients are not published; a patient may have several lesions. Groups of the test split are the table's
    sex, age (in bands of ten years) and dataset (the source of an image).

    The digest covers split, class, lesion, file name, size and CRC-32 of every image, so resized copies have other
    digests. It is the same for zips and folders; folders are read in full to compute it.

    With `cut=image`, the test split is a fifth of each class's images instead of lesions, as in DermaMNIST, which has
    the same images. Then a lesion may be in both splits, and accuracy is higher than on unseen lesions: use it only to
    compare with results on DermaMNIST.
    """

    name = "ham10000"
    default_extractor = NETWORK
    classes = (
        "actinic keratoses and intraepithelial carcinoma", "basal cell carcinoma", "benign keratosis-like lesions",
        "dermatofibroma", "melanoma", "melanocytic nevi", "vascular lesions",
    )  # fmt: skip
    licence = "CC BY-NC-SA 4.0"
    citation = (
        "Tschandl, Rosendahl and Kittler, The HAM10000 dataset, a large collection of multi-source dermatoscopic "
        "images of common pigmented skin lesions, Scientific Data 2018; doi:10.7910/DVN/DBW86T"
    )
    count = 10_015
    seed: int = setting(0, says="seed of the split")
    cut: Literal["lesion", "image"] = setting("lesion", added=True, says="what the test split is a fifth of")

    def source(self) -> Source:
        """Return where the images come from and where they are kept."""
        names = product(*([part, f"{part}.zip"] for part in PARTS), TABLES)
        return Source(homes=[[f"{FOLDER}/{name}" for name in home] for home in names], page=PAGE, size=2_770_000_000)

    def default_unit(self) -> str:
        """Return the unit that a run states epsilon for: the lesion."""
        return "lesion"

    def load(self) -> Splits:
        """Open the two splits, sorted by class and file name.

        Raises:
            DataError: the table does not parse or does not match the images, their number is wrong, or a zip is
                damaged.
        """
        *parts, table = locate(self).paths
        lines = _read_table(table)
        listed = [file for part in parts for file in list_images(part, LAYOUT)]
        self._check_table(listed, lines, table)
        who = {name: line.lesion if self.cut == "lesion" else name for name, line in lines.items()}
        tested = _choose_test_names([(lines[name].kind, unit) for name, unit in who.items()], self.seed)

        def assign_split(file: ImageFile) -> ImageFile:
            name = _make_image_name(file)
            return file._replace(kind=lines[name].kind, split="test" if who[name] in tested else "train")

        files = sorted(map(assign_split, add_checksums(listed)))
        lesions = "\n".join(f"{name} {line.lesion}" for name, line in sorted(lines.items()))
        of_all = hashlib.sha256(f"{digest_images(files)}\n{lesions}".encode()).hexdigest()
        splits = open_splits(files, KINDS, "RGB", of_all, ADVICE)
        splits = add_groups(splits, files, lambda file: lines[_make_image_name(file)].groups)
        return add_units(splits, files, "lesion", lambda file: lines[_make_image_name(file)].lesion)

    def _check_table(self, files: Sequence[ImageFile], lines: Mapping[str, TableRow], table: Path) -> None:
        if (len(files), len(lines)) != (self.count, self.count):
            raise DataError(
                f"Expected {self.count:,} images in {table.parent} and in {table.name}, got {len(files):,} and "
                f"{len(lines):,}. {ADVICE}"
            )
        if odd := {_make_image_name(file) for file in files} ^ lines.keys():
            raise DataError(
                f"Expected the images that {table} names in {table.parent}, {min(odd)} is one alone. {ADVICE}"
            )
        if odd := {line.kind for line in lines.values()} ^ set(KINDS):
            raise DataError(
                f"Expected the classes {', '.join(KINDS)} in {table}, each of them; not so {min(odd)}. {ADVICE}"
            )


def _make_image_name(file: ImageFile) -> str:
    return file.file.removesuffix(".jpg")


def _read_table(table: Path) -> dict[str, TableRow]:
    """Return each image's row of the table, by image name."""
    rows = read_rows(table, table.name, COLUMNS, ADVICE, optional=DESCRIBED)
    lines = {row["image_id"]: TableRow(*(row[column] for column in (*COLUMNS[1:], *DESCRIBED))) for row in rows}
    if unowned := sorted(str(name) for name, line in lines.items() if not (name and line.lesion and line.kind)):
        raise DataError(
            f"Expected a lesion_id, an image_id and a dx in every line of {table}, got a line that lacks one: "
            f"{unowned[0]}. {ADVICE}"
        )
    kinds = defaultdict(set)
    for line in lines.values():
        kinds[line.lesion].add(line.kind)
    if several := sorted(lesion for lesion, found in kinds.items() if len(found) > 1):
        raise DataError(
            f"Expected one class a lesion in {table}, got {len(kinds[several[0]])} of {several[0]}. {ADVICE}"
        )
    return lines


def _choose_test_names(kinds_and_names: Iterable[tuple[str, str]], seed: int) -> set[str]:
    """Return the names (of lesions or images) in the test split: the fifth of each class with the smallest SHA-256."""
    of_kind = defaultdict(set)
    for kind, name in kinds_and_names:
        of_kind[kind].add(name)
    key = lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest()
    return {name for found in of_kind.values() for name in sorted(found, key=key)[: round(len(found) / 5)]}


@hookimpl
def dpbench_datasets() -> Sequence[type[Dataset]]:
    """Register the datasets of this module."""
    return [Ham10000]
