"""Refuse fits that open a file of the private dataset: a learner reads private rows only through its curator.

Covered: files that Python reports as opened while a dataset loads, files below the dataset's folders, and cached
features; in the thread of the fit.
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

from dpbench.api import Dataset
from dpbench.data import sources
from dpbench.errors import PrivacyError
from dpbench.privacy.purity.audit_events import judge_audit_events
from dpbench.support.paths import cache_folder

CODE_ENDINGS = (".py", ".pyc", ".so", ".pth")  # endings of code, which an import opens
SYSTEM_FOLDERS = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/share/zoneinfo/")


@dataclass(frozen=True)
class FileAccessLog:
    """Records the files that a block opens."""

    found: set[str] = field(default_factory=set)

    def judge(self, event: str, details: tuple[Any, ...]) -> None:
        """Record the file of an open event if it may hold data."""
        path = _opened_path(event, details)
        if path and not path.startswith(SYSTEM_FOLDERS) and not _is_code(path):
            self.found.add(path)


@dataclass(frozen=True)
class PrivateFiles:
    """The files of the private dataset, and the folders that hold only its files."""

    files: frozenset[str] = frozenset()
    below: tuple[str, ...] = ()  # each ends in a separator

    @contextmanager
    def refuse_access(self) -> Iterator[None]:
        """Raise an error if the block opens a file of the private dataset, even if the block catches the error.

        Raises:
            PrivacyError: the block opened such a file.
        """
        refusal = _PrivateFileGuard(self, [])
        try:
            with judge_audit_events(refusal):
                yield
        finally:
            if refusal.raised:
                raise refusal.raised[0]


@dataclass(frozen=True)
class _PrivateFileGuard:
    private: PrivateFiles
    raised: list[PrivacyError]

    def judge(self, event: str, details: tuple[Any, ...]) -> None:
        path = _opened_path(event, details)
        if path and (path in self.private.files or path.startswith(self.private.below)):
            self.raised[:] = [
                PrivacyError(
                    "The learner opened a file of the private dataset during the fit. A learner may read private rows "
                    "only through its curator: what it reads by itself has no noise, so the stated epsilon would not "
                    "hold. Public examples are in `public`."
                )
            ]
            raise self.raised[0]


def find_private_files(dataset: Dataset, read: FileAccessLog) -> PrivateFiles:
    """Return a dataset's files and folders, given the log of files opened while it loaded."""
    location = sources.find_dataset(dataset)
    places = [str(path.resolve()) for path in location.paths] if location else []
    folders = [*places, str((cache_folder() / "features").resolve())]
    return PrivateFiles(frozenset((*read.found, *places)), tuple(f"{folder}{os.sep}" for folder in folders))


def _is_code(path: str) -> bool:
    """Return whether a path is code: a Python file, a part of an installed package or a zip of modules."""
    return path.endswith(CODE_ENDINGS) or ".dist-info" in path or path in map(os.path.realpath, sys.path)


def _opened_path(event: str, details: tuple[Any, ...]) -> str:
    if event != "open" or not isinstance(details[0], str | bytes):
        return ""
    return str(Path(os.fsdecode(details[0])).resolve())
