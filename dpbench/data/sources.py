"""Where data comes from, where it lies on this machine, and the one sentence that is said where it does not."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dpbench.api import Dataset, Source
from dpbench.errors import DataMissing
from dpbench.support.fields import changed_fields
from dpbench.support.messages import bytes_in_words
from dpbench.support.paths import data_folders, is_restricted
from dpbench.support.plugin_calls import call_plugin


@dataclass(frozen=True)
class DatasetLocation:
    """A dataset that is on this machine."""

    folder: Path  # the data folder, or one of `Source.elsewhere`
    paths: tuple[Path, ...]  # those of the home that is there, in its order


def describe_source(dataset: Dataset) -> Source | None:
    """Return what a dataset says of its source.

    Raises:
        ComponentFailed: the plugin's code raised.
    """
    return call_plugin(f"source of dataset {dataset.name!r}", dataset.source)


def find(dataset: Dataset) -> DatasetLocation | None:
    """Return where a dataset lies, of several places the first; None if it is nowhere, or comes with a package."""
    source = describe_source(dataset)
    if source is None:
        return None
    for folder, homes in _places(source):
        for home in homes:
            paths = tuple(folder / path for path in home)
            if all(map(_there, paths)):
                return DatasetLocation(folder, paths)
    return None


def locate(dataset: Dataset) -> DatasetLocation:
    """Return where a dataset lies.

    Raises:
        DataMissing: it is not on this machine; the text says what was looked for and where, how large the download is,
            and the command that gets it.
    """
    found = find(dataset)
    if found is None:
        raise missing_data(dataset)
    return found


def check_present(*datasets: Dataset) -> None:
    """Refuse datasets that are not on this machine, before anything heavy is imported.

    Raises:
        DataMissing: see `locate`.
    """
    for dataset in datasets:
        source = describe_source(dataset)
        if source is not None and not source.hub and find(dataset) is None:
            raise missing_data(dataset)


def missing_data(dataset: Dataset) -> DataMissing:
    """Return the error that says how to get a dataset."""
    source = describe_source(dataset)
    assert source is not None, "a dataset that comes with a package is always here"
    name, written = label(dataset), shlex.quote(label(dataset))
    looked = "; ".join(str(folder) + _lacking(folder, homes) for folder, homes in _places(source))
    wanted = homes_of(source)
    facts = ", ".join(filter(None, (bytes_in_words(source.size), f"licence: {dataset.licence}")))
    by_hand = f"`dpbench data import {written} FILE-OR-FOLDER`"
    page = f" from {source.page}" if source.page else ""
    how = f"Download it ({facts}){page}, then run {by_hand}"
    if source.downloads or source.hub:
        how = f"Run `dpbench data fetch {written}` ({facts}); or download it{page} and run {by_hand}"
    if source.package:
        how = f"On Debian, install {source.package}. Elsewhere: {how[0].lower()}{how[1:]}"
    return DataMissing(
        f"Dataset {name!r} is not on this machine: looked for {wanted} in {looked}. {how}; or name the folder "
        "that holds it in DPBENCH_DATA."
    )


def label(dataset: Dataset) -> str:
    """Return the dataset as a user writes it: its name, and the options that are not the defaults."""
    options = [f"{name}={value}" for name, value in changed_fields(dataset).items()]
    return f"{dataset.name}:{','.join(options)}" if options else dataset.name


def homes_of(source: Source) -> str:
    """Say under which names data is looked for: the first places, and how many others there are.

    >>> homes_of(Source([["x.zip"], ["x/train", "x/test"], ["train", "test"], ["a"]]))
    'x.zip or x/{train,test} (or in 2 more layouts)'
    """
    named, more = " or ".join(map(_braced, source.homes[:2])), len(source.homes) - 2
    return f"{named} (or in {more} more layouts)" if more > 0 else named


def _braced(home: Sequence[str]) -> str:
    if len(home) == 1:
        return home[0]
    common = os.path.commonpath(home)
    inner = ",".join(os.path.relpath(path, common or ".") for path in home)
    return f"{common}/{{{inner}}}" if common else f"{{{inner}}}"


def _places(source: Source) -> list[tuple[Path, Sequence[Sequence[str]]]]:
    own = [(folder, source.homes) for folder in data_folders()]
    if is_restricted():
        return own
    return own + [(Path(folder).expanduser(), homes) for folder, homes in source.elsewhere]


def _there(path: Path) -> bool:
    """Return whether a path exists, as far as one may look."""
    try:
        return path.exists()
    except OSError:  # a folder that may not be entered, a name that is too long
        return False


def _lacking(folder: Path, homes: Sequence[Sequence[str]]) -> str:
    """Say what a folder lacks that has a part of some home."""
    for home in homes:
        lacking = [path for path in home if not _there(folder / path)]
        if len(lacking) < len(home):
            return f", which lacks {', '.join(lacking)}"
    return ""
