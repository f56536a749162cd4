"""Report how many files of an image folder are ignored: one line with counts by ending, without file names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePosixPath

from dpbench.api import Dataset, Splits
from dpbench.support import progress
from dpbench.support.files import IMAGE_ENDINGS

ENDING = re.compile(r"\.[a-z][a-z0-9]{0,6}")  # what follows a dot may be a part of a name, too
MAX_KINDS = 8  # kinds that are counted apart
SPECIAL = "special"
ENDING_ADVICE = {
    ".heic": "convert to .jpg or .png", ".heif": "convert to .jpg or .png", ".avif": "convert to .jpg or .png",
    ".dicom": "rename to .dcm", ".ima": "rename to .dcm", "": "DICOM files must end in .dcm",
}  # fmt: skip
"""Advice on files that may be images, by their ending."""


def report_ignored_names(where: str, names: Iterable[str]) -> None:
    """Report on standard error how many files were ignored, if any.

    File names are left out, as they may identify people.
    """
    if said := describe_ignored_files(names):
        progress.print_progress_line(f"{where}: ignored {said}.")


def report_ignored_files(dataset: Dataset, splits: Splits) -> None:
    """Report how many files a dataset ignored when it opened these splits."""
    own = getattr(dataset, dataset.shorthand or "-", "")
    report_ignored_names(f"{dataset.name}:{own}" if own else dataset.name, splits.ignored)


def describe_ignored_files(names: Iterable[str]) -> str:
    """Count files by kind, starting with kinds that may be images.

    >>> names = ["train/a/1.heic", "train/a/2.HEIC", "notes.txt", "train/a/.x", "train/b/12", "valid/a/1.png"]
    >>> describe_ignored_files(names)
    '2 .heic files (convert to .jpg or .png), 1 file without an ending (DICOM files must end in .dcm), 1 .txt file, \
1 hidden file, 1 image in an unused place'
    """
    counts = sorted(
        Counter(map(_describe_file_kind, names)).items(),
        key=lambda pair: (pair[0] not in ENDING_ADVICE, not pair[0], -pair[1], pair[0]),
    )
    said = [_describe_count(kind, count) for kind, count in counts[:MAX_KINDS]]
    if more := sum(count for _, count in counts[MAX_KINDS:]):
        said.append(f"{more:,} other file{'s' * (more > 1)}")
    return ", ".join(said)


def _describe_file_kind(name: str) -> str:
    path = PurePosixPath(name)
    if name.endswith("/"):
        return SPECIAL
    if any(part.startswith(".") or part == "__MACOSX" for part in path.parts):
        return "hidden"
    ending = path.suffix.lower()
    if ending in IMAGE_ENDINGS:
        return "image"
    return ending if ENDING.fullmatch(ending) else ""


def _describe_count(kind: str, count: int) -> str:
    more = "s" * (count > 1)
    if kind == "image":
        return f"{count:,} image{more} in an unused place"
    if kind == SPECIAL:
        return f"{count:,} pipe{more}, socket{more} or device{more} in place of files"
    what = f"{count:,} {kind} file{more}" if kind else f"{count:,} file{more} without an ending"
    return f"{what} ({ENDING_ADVICE[kind]})" if kind in ENDING_ADVICE else what
