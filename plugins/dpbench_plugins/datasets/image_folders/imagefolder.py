"""The user's own images, in class folders."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

from dpbench import DataError, DataMissing, Dataset, Splits
from dpbench_plugins.datasets.image_folders.owners import check_options, is_table, owners_of, place_of
from dpbench_plugins.datasets.image_trees import (
    ANYWHERE,
    FILE,
    ImageFile,
    Layout,
    check_classes,
    digest,
    list_images,
    open_splits,
    with_checksums,
    with_units,
)

WANTED = "train/CLASS/IMAGE and test/CLASS/IMAGE (or val instead of test), with the same classes in both"
LAYOUT = Layout(
    re.compile(rf"{ANYWHERE}(?P<split>train|val|test)/(?P<kind>[^/]+)/{FILE}"),
    split=lambda found: found["split"],
    advice=f"Fix it at the source; the layout is {WANTED}.",
)


@dataclass(frozen=True)
class ImageFolder(Dataset):
    r"""Your own images in class folders: `imagefolder:PATH`, a folder or a zip of one.

    Below `path`: train/CLASS/* and test/CLASS/*, with the same two or more class folders in both. Without test, val
    is the test split; with test, it is ignored. Images are .jpg, .jpeg, .png, .bmp, .gif, .pbm, .pgm, .ppm, .tif,
    .tiff and .webp; other files, hidden ones and folders inside class folders are ignored. All are converted to RGB, or
    to grey with `mode=L`; EXIF orientation is ignored. More than 8 bits per channel are refused.

    The digest covers split, class, file name, size and CRC-32 of every image, and is the same for a zip and its
    folder, which is read in full to compute it. Class folders are public: their names appear in every result.

    Where a person has several images, `units` says whose each is: a CSV file with the columns file and unit
    (`units=patients.csv`), which names every image as train/CLASS/IMAGE, once; or a regular expression whose groups,
    found in a file name, name the unit (`units=(person\d+)_`). `unit` is the word for it, such as patient. The table's
    content is part of the digest.
    """

    name: ClassVar[str] = "imagefolder"
    licence: ClassVar[str] = "as stated by its owner"
    citation: ClassVar[str] = "as stated by its owner"
    shorthand: ClassVar[str] = "path"
    path: str
    mode: Literal["RGB", "L"] = "RGB"
    units: str = ""
    unit: str = "unit"

    def __post_init__(self) -> None:
        """Refuse a word without units, and a pattern that names none."""
        check_options(self.units, self.unit)

    @cached_property
    def classes(self) -> tuple[str, ...]:  # type: ignore[override]  # known only from the folders
        """The class folders, sorted."""
        return tuple(sorted({file.kind for file in self._listed()}))

    def default_unit(self) -> str:
        """Return whose epsilon a run states: that of the images' `units`, where there are some."""
        return self.unit if self.units else "image"

    def load(self) -> Splits:
        """Open the two splits, sorted by class and file name.

        Raises:
            DataMissing: `path` does not exist.
            DataError: no class folders, a class folder in one split only, or a damaged zip.
        """
        listed = self._listed()
        if len(self.classes) < 2:
            got = ", ".join(map(repr, self.classes)) or "none"
            raise DataError(f"Expected two or more class folders in {self.path} as {WANTED}; got {got}.")
        check_classes(listed, self.classes, self._path(), LAYOUT.advice)
        files = with_checksums(listed)
        splits = open_splits(files, self.classes, self.mode, digest(files), LAYOUT.advice)
        if not self.units:
            return splits
        owners = owners_of(self.units, files)
        if is_table(self.units):
            lines = "".join(f"{name}\0{owner}\n" for name, owner in sorted(owners.items()))
            splits = dataclasses.replace(
                splits, digest=hashlib.sha256(f"{splits.digest}\n{lines}".encode()).hexdigest()
            )
        return with_units(splits, files, self.unit, lambda file: owners[place_of(file)])

    def _path(self) -> Path:
        return Path(self.path).expanduser()

    def _listed(self) -> list[ImageFile]:
        if not self._path().exists():
            raise DataMissing(
                f"Expected images in {self._path()}, which does not exist. Check the path: imagefolder:PATH is a "
                f"folder or a zip with {WANTED}."
            )
        files = list_images(self._path(), LAYOUT)
        aside = "val" if any(file.split == "test" for file in files) else "test"
        return sorted(
            file._replace(split="test") if file.split == "val" else file for file in files if file.split != aside
        )
