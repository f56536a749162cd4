"""The user's own images, in class folders."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from dpbench import DataError, DataMissing, Dataset, Splits, setting
from dpbench_plugins.datasets.extractors import NETWORK
from dpbench_plugins.datasets.image_folders.groups import check_group_options, read_groups
from dpbench_plugins.datasets.image_folders.owners import (
    check_unit_options,
    find_owners,
    is_table_name,
    make_image_name,
)
from dpbench_plugins.datasets.image_trees import (
    ImageFile,
    Layout,
    add_checksums,
    add_units,
    check_class_names,
    digest_images,
    list_ignored_files,
    list_images,
    open_splits,
)

WANTED = "train/CLASS/IMAGE and test/CLASS/IMAGE (or val instead of test), with the same classes in both"
LAYOUT = Layout(
    re.compile(  # the first train, val or test of a path is the split: folders below a class may have any name
        r"(?P<root>(?:[^/]+/)*?)(?P<split>train|val|test)/(?P<kind>[^/]+)/"
        r"(?P<file>(?:[^/]+/)*[^/]+\.(?i:jpe?g|png|bmp|gif|p[bgp]m|tiff?|webp|dcm))"
    ),
    split=lambda found: found["split"],
    advice=f"Fix it at the source; the layout is {WANTED}.",
)


@dataclass(frozen=True)
class ImageFolder(Dataset):
    r"""Your own images in class folders: `imagefolder:PATH`, a folder or a zip of one.

    `path` contains train/CLASS and test/CLASS, with the same two or more class folders in both. Images may be in
    subfolders of their class. Without test, val is the test split; with test, it is ignored. Images are .jpg, .jpeg,
    .png, .bmp, .gif, .pbm, .pgm, .ppm, .tif, .tiff, .webp, and .dcm with the extra `dicom`; other files and hidden ones
    are ignored, and counted on standard error. All images are converted to RGB, or to grey with `mode=L`; EXIF
    orientation is ignored. More than 8 bits per channel are refused, except in DICOM files, whose own window is
    applied.

    The digest covers split, class, path below the class, size and CRC-32 of every image, and is the same for a zip and
    its folder; a folder is read in full to compute it. Class folders are public: their names appear in every result.

    If a person has several images, `units` determines the owner of each image. With `units=folder`, it is the folder
    directly below the class: train/CLASS/UNIT/IMAGE. With `units=patients.csv`, a CSV file with the columns file and
    unit, the file names every image once, as train/CLASS/IMAGE. With a regular expression (`units=(person\d+)_`), it is
    what the groups match in the path below the class. The same name in two classes or in both splits is the same unit.
    `unit` is the word for a unit, such as patient. The CSV file's content is part of the digest.

    `groups` lists columns of that CSV file, or of the one that `table` names, joined by + (`groups=sex+age`): facts
    about each test image other than its class. Lines of `table` describe images (column file) or units (column unit). A
    column has at most 50 different values, so write ages as bands. Results name columns in lower case. Groups are not
    part of the digest.
    """

    name = "imagefolder"
    default_extractor = NETWORK
    licence = "as stated by its owner"
    citation = "as stated by its owner"
    shorthand = "path"
    path: str = setting(says="folder, or zip archive of one")
    mode: Literal["RGB", "L"] = setting("RGB", says="colours that images are converted to")
    units: str = setting("", says="how the unit of an image is found: folder, a CSV file, or a regular expression")
    unit: str = setting("unit", says="word for a unit, such as patient")
    groups: str = setting("", added=True, says="columns by which accuracy is stated, joined by +")
    table: str = setting("", added=True, says="CSV file of the groups")

    def __post_init__(self) -> None:
        """Check that options come with the options that they need, and that a pattern in `units` has a group."""
        check_unit_options(self.units, self.unit)
        check_group_options(self.groups, self.table, self.units)

    @cached_property
    def classes(self) -> tuple[str, ...]:  # type: ignore[override]  # known only from the folders
        """The class folders, sorted."""
        return tuple(sorted({file.kind for file in self._list_files()}))

    def default_unit(self) -> str:
        """Return the unit that a run states epsilon for: `unit` if `units` is set, otherwise the image."""
        return self.unit if self.units else "image"

    def find_owners(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the owner of each image, by its name below `path` (train/CLASS/IMAGE); empty if images have no units.

        Raises:
            DataMissing: the table in `units` does not exist.
            DataError: an image has no unit.
        """
        return find_owners(self.units, names) if self.units else {}

    def load(self) -> Splits:
        """Open the two splits, sorted by class and path below it.

        Raises:
            DataMissing: `path` or a table does not exist.
            DataError: no class folders, a class folder in one split only, a damaged zip, or a table that does not fit.
        """
        listed = self._list_files()
        if len(self.classes) < 2:
            got = ", ".join(map(repr, self.classes)) or "none"
            raise DataError(f"Expected two or more class folders in {self.path} as {WANTED}; got {got}.")
        check_class_names(listed, self.classes, self._find_path(), LAYOUT.advice)
        files = add_checksums(listed)
        owners = self.find_owners([make_image_name(file) for file in files])
        return self._add_owners(self._open_splits(files, owners), files, owners)

    def _open_splits(self, files: Sequence[ImageFile], owners: Mapping[str, str]) -> Splits:
        splits = open_splits(files, self.classes, self.mode, digest_images(files), LAYOUT.advice)
        splits = dataclasses.replace(splits, ignored=list_ignored_files(self._find_path(), files))
        if not self.groups:
            return splits
        groups = read_groups(self.groups, Path(self.table or self.units).expanduser(), files, owners)
        return dataclasses.replace(splits, test=dataclasses.replace(splits.test, groups=groups))

    def _add_owners(self, splits: Splits, files: Sequence[ImageFile], owners: Mapping[str, str]) -> Splits:
        if not owners:
            return splits
        if is_table_name(self.units):
            lines = "".join(f"{name}\0{owner}\n" for name, owner in sorted(owners.items()))
            splits = dataclasses.replace(
                splits, digest=hashlib.sha256(f"{splits.digest}\n{lines}".encode()).hexdigest()
            )
        return add_units(splits, files, self.unit, lambda file: owners[make_image_name(file)])

    def _find_path(self) -> Path:
        return Path(self.path).expanduser()

    def _list_files(self) -> list[ImageFile]:
        if not self._find_path().exists():
            raise DataMissing(
                f"Expected images in {self._find_path()}, which does not exist. Check the path: imagefolder:PATH is a "
                f"folder or a zip with {WANTED}."
            )
        files = list_images(self._find_path(), LAYOUT)
        aside = "val" if any(file.split == "test" for file in files) else "test"
        return sorted(
            file._replace(split="test") if file.split == "val" else file for file in files if file.split != aside
        )
