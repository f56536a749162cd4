"""What lies among the images of a folder and is not read, said in one line: counts by ending, and no names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePosixPath

from dpbench.api import Dataset, Splits
from dpbench.support import progress
from dpbench.support.files import IMAGES

ENDING = re.compile(r"\.[a-z][a-z0-9]{0,6}")  # what follows a dot may be a part of a name, too
MOST = 8  # kinds that are counted apart
WHY = {
    ".heic": "convert to .jpg or .png", ".heif": "convert to .jpg or .png", ".avif": "convert to .jpg or .png",
    ".dicom": "rename to .dcm", ".ima": "rename to .dcm", "": "DICOM files must end in .dcm",
}  # fmt: skip
"""What to do with files that may be images."""


def report_ignored(where: str, names: Iterable[str]) -> None:
    """Say on standard error how many files were ignored, if any; names may hold those of people and are not told."""
    if said := describe(names):
        progress.line(f"{where}: ignored {said}.")


def report_ignored_by(dataset: Dataset, splits: Splits) -> None:
    """Say how many files a dataset ignored as it opened these splits."""
    own = getattr(dataset, dataset.shorthand or "-", "")
    report_ignored(f"{dataset.name}:{own}" if own else dataset.name, splits.ignored)


def describe(names: Iterable[str]) -> str:
    """Count files by their kind, those first that may be images.

    >>> describe(["train/a/1.heic", "train/a/2.HEIC", "notes.txt", "train/a/.x", "train/b/12", "valid/a/1.png"])
    '2 .heic files (convert to .jpg or .png), 1 file without an ending (DICOM files must end in .dcm), 1 .txt file, \
1 hidden file, 1 image in an unused place'
    """
    counts = sorted(
        Counter(map(_kind, names)).items(), key=lambda pair: (pair[0] not in WHY, not pair[0], -pair[1], pair[0])
    )
    said = [_count(kind, count) for kind, count in counts[:MOST]]
    if more := sum(count for _, count in counts[MOST:]):
        said.append(f"{more:,} other file{'s' * (more > 1)}")
    return ", ".join(said)


def _kind(name: str) -> str:
    path = PurePosixPath(name)
    if any(part.startswith(".") or part == "__MACOSX" for part in path.parts):
        return "hidden"
    ending = path.suffix.lower()
    if ending in IMAGES:
        return "image"
    return ending if ENDING.fullmatch(ending) else ""


def _count(kind: str, count: int) -> str:
    more = "s" * (count > 1)
    if kind == "image":
        return f"{count:,} image{more} in an unused place"
    what = f"{count:,} {kind} file{more}" if kind else f"{count:,} file{more} without an ending"
    return f"{what} ({WHY[kind]})" if kind in WHY else what
