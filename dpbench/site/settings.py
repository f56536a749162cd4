"""What a build is told by its environment: where the site will stand, where its code is, and of which day it is.

Nothing of it is needed: without an address the site's own links are relative and none is canonical. Without a
repository, in the environment or in the package's metadata, no link leads to code and pages say "from a clone of this
repository". Without SOURCE_DATE_EPOCH the site is of the day of its newest result.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, metadata, version
from typing import Self

from dpbench.board.index import Index
from dpbench.errors import SpecError
from dpbench.records.provenance import HARNESS
from dpbench.site.layout import SECTIONS, Section

ADDRESS, REPOSITORY, EPOCH = "DPBENCH_ADDRESS", "DPBENCH_REPOSITORY", "SOURCE_DATE_EPOCH"
LABELS = ("repository", "source", "source code", "code")
_URL = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~%/-]*)?")


@dataclass(frozen=True)
class Settings:
    """Where a site stands, and of when it is; empty where nobody said."""

    address: str  # of the site's first folder, with a slash at its end
    repository: str
    date: str  # YYYY-MM-DD
    version: str  # of dpbench
    docs: bool = False  # the documentation is part of the site
    sections: tuple[Section, ...] = SECTIONS  # where the header leads

    @classmethod
    def read(cls, index: Index, *, docs: bool = False, further: tuple[Section, ...] = ()) -> Self:
        """Return what the environment and the results say, with further sections of the header.

        Raises:
            SpecError: an address is malformed, or a time is not a number of seconds.
        """
        dates = [entry.made.date for standing in index.standings for entry in standing.entries if entry.made.date]
        address = _address(ADDRESS)
        return cls(
            address and f"{address}/", _address(REPOSITORY) or installed_repository(), _day() or max(dates, default=""),
            installed_version(), docs, (*SECTIONS, *further),
        )  # fmt: skip

    def code(self, file: str, commit: str | None) -> str:
        """Return the address of a file at a commit, or of a whole tree where `file` is empty; empty if unknown."""
        kind = "blob" if file else "tree"
        return f"{self.repository}/{kind}/{commit or 'HEAD'}/{file}".rstrip("/") if self.repository else ""


def _address(name: str) -> str:
    found = os.environ.get(name, "").strip().rstrip("/")
    if found and not _URL.fullmatch(found):
        raise SpecError(f"Expected {name} to be an address like https://example.org/dpbench, got {found[:200]!r}.")
    return found


def _day() -> str:
    found = os.environ.get(EPOCH, "").strip()
    if not found:
        return ""
    if not re.fullmatch(r"[0-9]{1,11}", found):
        raise SpecError(f"Expected {EPOCH} to be seconds since 1970, got {found[:200]!r}.")
    return datetime.fromtimestamp(int(found), UTC).date().isoformat()


def installed_repository() -> str:
    """Return the address of the code as the metadata of dpbench states it, empty where they do not."""
    try:
        lines = metadata(HARNESS).get_all("Project-URL", [])
    except PackageNotFoundError:
        return ""
    urls = {label.strip().lower(): url.strip() for label, _, url in (line.partition(",") for line in lines)}
    found = next((urls[label] for label in LABELS if label in urls), "").rstrip("/")
    return found if _URL.fullmatch(found) else ""


def installed_version() -> str:
    """Return the version of dpbench, empty where it is not installed."""
    try:
        return version(HARNESS)
    except PackageNotFoundError:
        return ""
