"""Settings that a build reads from its environment: the site's address, its repository and its date.

All are optional. Without an address the site's own links are relative and no page has a canonical address. If neither
the environment nor the package's metadata names a repository, no link leads to code and pages say "from a clone of this
repository". Without SOURCE_DATE_EPOCH the site has the date of its newest result.
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

ADDRESS, REPOSITORY, EPOCH = "DPBENCH_ADDRESS", "DPBENCH_REPOSITORY", "SOURCE_DATE_EPOCH"
URL_LABELS = ("repository", "source", "source code", "code")
_URL = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~%/-]*)?")


@dataclass(frozen=True)
class SiteSettings:
    """The address, repository, date and version of a site; each is empty if unknown."""

    address: str  # of the site's first folder, with a slash at its end
    repository: str
    date: str  # YYYY-MM-DD
    version: str  # of dpbench
    docs: bool = False  # the documentation is part of the site

    @classmethod
    def read(cls, index: Index, *, docs: bool = False) -> Self:
        """Read the settings from the environment and the results.

        Raises:
            SpecError: an address is malformed, or a time is not a number of seconds.
        """
        dates = [entry.made.date for standing in index.standings for entry in standing.entries if entry.made.date]
        address = _read_address_variable(ADDRESS)
        return cls(
            address and f"{address}/", _read_address_variable(REPOSITORY) or read_repository_address(),
            _read_build_date() or max(dates, default=""), read_installed_version(), docs,
        )  # fmt: skip

    def code(self, file: str, commit: str | None) -> str:
        """Return the web address of a file at a commit, or of the whole tree if `file` is empty.

        The address is empty if the repository is unknown. `commit` None means HEAD.
        """
        kind = "blob" if file else "tree"
        return f"{self.repository}/{kind}/{commit or 'HEAD'}/{file}".rstrip("/") if self.repository else ""


def _read_address_variable(variable: str) -> str:
    found = os.environ.get(variable, "").strip().rstrip("/")
    if found and not _URL.fullmatch(found):
        raise SpecError(f"Expected {variable} to be an address like https://example.org/dpbench, got {found[:200]!r}.")
    return found


def _read_build_date() -> str:
    found = os.environ.get(EPOCH, "").strip()
    if not found:
        return ""
    if not re.fullmatch(r"[0-9]{1,11}", found):
        raise SpecError(f"Expected {EPOCH} to be seconds since 1970, got {found[:200]!r}.")
    return datetime.fromtimestamp(int(found), UTC).date().isoformat()


def read_repository_address() -> str:
    """Return the address of the repository from dpbench's package metadata; empty if the metadata lack it."""
    try:
        lines = metadata(HARNESS).get_all("Project-URL", [])
    except PackageNotFoundError:
        return ""
    urls = {label.strip().lower(): url.strip() for label, _, url in (line.partition(",") for line in lines)}
    found = next((urls[label] for label in URL_LABELS if label in urls), "").rstrip("/")
    return found if _URL.fullmatch(found) else ""


def read_installed_version() -> str:
    """Return the version of dpbench; empty if it is not installed."""
    try:
        return version(HARNESS)
    except PackageNotFoundError:
        return ""
