"""Find datasets on this machine, and tell users how to get missing data."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dpbench.api import Dataset, Source
from dpbench.errors import DataMissing
from dpbench.support.fields import list_changed_fields
from dpbench.support.messages import format_bytes
from dpbench.support.paths import data_folders, is_data_search_restricted
from dpbench.support.plugin_calls import call_plugin


@dataclass(frozen=True)
class DatasetLocation:
    """The folder and paths of a dataset on this machine."""

    folder: Path  # the data folder, or one of `Source.elsewhere`
    paths: tuple[Path, ...]  # those of the home that is there, in its order


def get_dataset_source(dataset: Dataset) -> Source | None:
    """Return a dataset's source; None if it comes with a Python package.

    Raises:
        ComponentFailed: the plugin's code raised.
    """
    return call_plugin(f"source of dataset {dataset.name!r}", dataset.source)


def find_dataset(dataset: Dataset) -> DatasetLocation | None:
    """Return a dataset's first location; None if it is not on this machine, or comes with a package."""
    source = get_dataset_source(dataset)
    if source is None:
        return None
    for folder, homes in _list_search_folders(source):
        for home in homes:
            paths = tuple(folder / path for path in home)
            if all(map(_path_exists, paths)):
                return DatasetLocation(folder, paths)
    return None


def locate(dataset: Dataset) -> DatasetLocation:
    """Return a dataset's location.

    Raises:
        DataMissing: it is not on this machine; the message states the paths and folders searched, the size of the
            download, and the command that gets it.
    """
    found = find_dataset(dataset)
    if found is None:
        raise make_missing_data_error(dataset)
    return found


def check_datasets_present(*datasets: Dataset) -> None:
    """Check that datasets, except those of the hub, are on this machine, before heavy packages are imported.

    Raises:
        DataMissing: see `locate`.
    """
    for dataset in datasets:
        source = get_dataset_source(dataset)
        if source is not None and not source.hub and find_dataset(dataset) is None:
            raise make_missing_data_error(dataset)


def make_missing_data_error(dataset: Dataset) -> DataMissing:
    """Return the error for a missing dataset; its message says how to get the dataset."""
    source = get_dataset_source(dataset)
    assert source is not None, "a dataset that comes with a package is always here"
    name, written = format_dataset_spec(dataset), shlex.quote(format_dataset_spec(dataset))
    looked = "; ".join(
        str(folder) + _describe_missing_paths(folder, homes) for folder, homes in _list_search_folders(source)
    )
    wanted = describe_data_paths(source)
    facts = ", ".join(filter(None, (format_bytes(source.size), f"licence: {dataset.licence}")))
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


def format_dataset_spec(dataset: Dataset) -> str:
    """Return the dataset as users write it: its name, and the options that differ from their defaults."""
    options = [f"{name}={value}" for name, value in list_changed_fields(dataset).items()]
    return f"{dataset.name}:{','.join(options)}" if options else dataset.name


def describe_data_paths(source: Source) -> str:
    """Describe the paths where dpbench looks for data: two layouts, and the number of further layouts.

    >>> describe_data_paths(Source([["x.zip"], ["x/train", "x/test"], ["train", "test"], ["a"]]))
    'x.zip or x/{train,test} (or in 2 more layouts)'
    """
    named, more = " or ".join(map(_format_home_with_braces, source.homes[:2])), len(source.homes) - 2
    return f"{named} (or in {more} more layouts)" if more > 0 else named


def _format_home_with_braces(home: Sequence[str]) -> str:
    if len(home) == 1:
        return home[0]
    common = os.path.commonpath(home)
    inner = ",".join(os.path.relpath(path, common or ".") for path in home)
    return f"{common}/{{{inner}}}" if common else f"{{{inner}}}"


def _list_search_folders(source: Source) -> list[tuple[Path, Sequence[Sequence[str]]]]:
    own = [(folder, source.homes) for folder in data_folders()]
    if is_data_search_restricted():
        return own
    return own + [(Path(folder).expanduser(), homes) for folder, homes in source.elsewhere]


def _path_exists(path: Path) -> bool:
    """Return whether a path exists; False if it cannot be accessed."""
    try:
        return path.exists()
    except OSError:  # a folder that may not be entered, a name that is too long
        return False


def _describe_missing_paths(folder: Path, homes: Sequence[Sequence[str]]) -> str:
    """Describe which paths are missing from a folder that holds part of a layout."""
    for home in homes:
        lacking = [path for path in home if not _path_exists(folder / path)]
        if len(lacking) < len(home):
            return f", which lacks {', '.join(lacking)}"
    return ""
