"""Refuse fits and predictions that open a file of the private dataset.

A learner may read private rows only through its curator. Of the test split, a predictor may read only the examples that
it is given; only the scorer reads the labels.

Covered, in the thread of the fit or prediction: files that Python reports as opened while the dataset loads, files and
listings of files below the dataset's folders, and cached features.
Not covered: files that C code opens by itself (Arrow, HDF5), copies of the data elsewhere, and data that a learner
fetches or makes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from dpbench.api import Dataset
from dpbench.data import sources
from dpbench.errors import PrivacyError
from dpbench.privacy.purity.audit_events import judge_audit_events
from dpbench.support.paths import cache_folder

OPENING_EVENTS = frozenset({"open", "sqlite3.connect"})
LISTING_EVENTS = frozenset({"os.listdir", "os.scandir"})
CODE_ENDINGS = (".py", ".pyc", ".so")  # endings of code, which an import opens
SYSTEM_FOLDERS = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/share/zoneinfo/")

IN_A_FIT = (
    "The learner opened a file of the private dataset during the fit. A learner may read private rows only through its "
    "curator: what it reads by itself has no noise, so the stated epsilon would not hold. Public examples are in "
    "`public`."
)
IN_A_PREDICTION = (
    "The predictor opened a file of the private dataset. A predictor may read the examples that it is given and what "
    "the fit returned: labels of the test split are the scorer's alone."
)


@dataclass(frozen=True)
class FileAccessLog:
    """Records the files that a block opens."""

    found: set[str] = field(default_factory=set)

    def judge(self, event: str, details: tuple[Any, ...]) -> None:
        """Record the file of an open event if it may hold data."""
        path = _find_path_of_event(event, details) if event in OPENING_EVENTS else ""
        if path and not path.startswith(SYSTEM_FOLDERS) and not _is_code_file(path):
            self.found.add(path)


@dataclass(frozen=True)
class PrivateDatasetFiles:
    """The files of the private dataset, and the folders that hold only its files."""

    files: frozenset[str] = frozenset()
    below: tuple[str, ...] = ()  # each ends in a separator

    @contextmanager
    def refuse_access(self, complaint: str = IN_A_FIT) -> Iterator[None]:
        """Raise an error if the block opens a file of the private dataset, even if the block catches the error.

        Raises:
            PrivacyError: the block opened such a file, or listed files of the dataset; the message is `complaint`.
        """
        refusal = _PrivateFileGuard(self, complaint, [])
        try:
            with judge_audit_events(refusal):
                yield
        finally:
            if refusal.raised:
                raise refusal.raised[0]


NO_FILES = PrivateDatasetFiles()


@dataclass(frozen=True)
class _PrivateFileGuard:
    private: PrivateDatasetFiles
    complaint: str
    raised: list[PrivacyError]

    def judge(self, event: str, details: tuple[Any, ...]) -> None:
        if event not in OPENING_EVENTS | LISTING_EVENTS:
            return
        path = _find_path_of_event(event, details)
        if path and (path in self.private.files or f"{path}{os.sep}".startswith(self.private.below)):
            self.raised[:] = [PrivacyError(self.complaint)]
            raise self.raised[0]


def find_private_files(dataset: Dataset, access_log: FileAccessLog) -> PrivateDatasetFiles:
    """Return a dataset's files and folders, given the log of files opened while it loaded."""
    location = sources.find_dataset(dataset)
    places = [str(path.resolve()) for path in location.paths] if location else []
    folders = [*places, str((cache_folder() / "features").resolve())]
    return PrivateDatasetFiles(
        frozenset((*access_log.found, *places)), tuple(f"{folder}{os.sep}" for folder in folders)
    )


def _is_code_file(path: str) -> bool:
    """Return whether a path is code: a Python file, a part of an installed package, a zip or a `.pth` file."""
    places = [*map(os.path.realpath, sys.path)]
    listed = path.endswith(".pth") and str(Path(path).parent) in places  # elsewhere the ending is of tensors
    return path.endswith(CODE_ENDINGS) or ".dist-info" in path or path in places or listed


def _find_path_of_event(event: str, details: tuple[Any, ...]) -> str:
    """Return the resolved path that an event names; empty if it names none, as with a file descriptor."""
    name = details[0]
    if not isinstance(name, str | bytes | os.PathLike):
        return ""
    text = os.fsdecode(name)
    if event == "sqlite3.connect":
        if text in ("", ":memory:"):  # a database without a file
            return ""
        text = unquote(urlsplit(text).path) if text.startswith("file:") else text
    return str(Path(text).resolve())
