"""Where data lies on this machine, and the one sentence that is said where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dpbench.api import Dataset, Source
from dpbench.errors import DataMissing
from dpbench.paths import data_folders, restricted


@dataclass(frozen=True)
class Found:
    """A dataset that is on this machine."""

    folder: Path  # the data folder, or one of `Source.elsewhere`
    paths: tuple[Path, ...]  # those of the home that is there, in its order


def find(dataset: Dataset) -> Found | None:
    """Return where a dataset lies, of several places the first; None if it is nowhere, or comes with a package."""
    source = dataset.source()
    if source is None:
        return None
    for folder, homes in _places(source):
        for home in homes:
            paths = tuple(folder / path for path in home)
            if all(path.exists() for path in paths):
                return Found(folder, paths)
    return None


def locate(dataset: Dataset) -> Found:
    """Return where a dataset lies.

    Raises:
        DataMissing: it is not on this machine; the text says what was looked for and where, how large the download is,
            and the command that gets it.
    """
    found = find(dataset)
    if found is None:
        raise missing(dataset)
    return found


def check_present(*datasets: Dataset) -> None:
    """Refuse datasets that are not on this machine, before anything heavy is imported.

    Raises:
        DataMissing: see `locate`.
    """
    for dataset in datasets:
        source = dataset.source()
        if source is not None and not source.hub and find(dataset) is None:
            raise missing(dataset)


def missing(dataset: Dataset) -> DataMissing:
    """Return the error that says how to get a dataset."""
    source = dataset.source()
    assert source is not None, "a dataset that comes with a package is always here"
    looked = "; ".join(str(folder) + _lacking(folder, homes) for folder, homes in _places(source))
    wanted = " or ".join(" with ".join(home) for home in source.homes)
    facts = ", ".join(filter(None, (in_words(source.size), f"licence: {dataset.licence}")))
    by_hand = f"`dpbench data import {dataset.name} FILE-OR-FOLDER`"
    page = f" from {source.page}" if source.page else ""
    how = f"Download it ({facts}){page}, then run {by_hand}"
    if source.downloads or source.hub:
        how = f"Run `dpbench data fetch {dataset.name}` ({facts}); or download it{page} and run {by_hand}"
    if source.package:
        how = f"On Debian, install {source.package}. Elsewhere: {how[0].lower()}{how[1:]}"
    return DataMissing(
        f"Dataset {dataset.name!r} is not on this machine: looked for {wanted} in {looked}. {how}; or name the folder "
        "that holds it in DPBENCH_DATA."
    )


def in_words(size: int) -> str:
    """Say a number of bytes.

    >>> in_words(1_234_000_000), in_words(169_001_437), in_words(0)
    ('1.2 GB', '169 MB', '')
    """
    if size >= 10**9:
        return f"{size / 1e9:.1f} GB"
    return f"{max(1, round(size / 1e6))} MB" if size else ""


def _places(source: Source) -> list[tuple[Path, Sequence[Sequence[str]]]]:
    own = [(folder, source.homes) for folder in data_folders()]
    if restricted():
        return own
    return own + [(Path(folder).expanduser(), homes) for folder, homes in source.elsewhere]


def _lacking(folder: Path, homes: Sequence[Sequence[str]]) -> str:
    """Say what a folder lacks that has a part of some home."""
    for home in homes:
        lacking = [path for path in home if not (folder / path).exists()]
        if len(lacking) < len(home):
            return f", which lacks {', '.join(lacking)}"
    return ""
