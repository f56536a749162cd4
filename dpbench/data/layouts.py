"""What people have after a download, linked or unpacked the way a data folder holds it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from dpbench import progress
from dpbench.api import Dataset
from dpbench.data import download
from dpbench.errors import DataError
from dpbench.paths import only_in
from dpbench.sources import Download, Source, find, homes_of


def stage(dataset: Dataset, source: Source, path: Path, staging: Path) -> None:
    """Make the empty folder `staging` one that holds the dataset at `path`: links to it, or its archives unpacked.

    Raises:
        DataError: `path` is neither the dataset's file or folder, nor holds it, nor the published archives.
    """
    for layout in _layouts(source, path):
        if _linked(layout, staging, dataset):
            return
        for child in staging.iterdir():  # of a layout that was no home
            delete(child)
    _unpack_published(path, staging, dataset, source)


def delete(path: Path) -> None:
    """Delete a file, a link or a folder with all that is in it, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _layouts(source: Source, path: Path) -> Iterator[dict[str, Path]]:
    """Yield every way in which `path` may be a home: places below a data folder, and what would stand there."""
    for home in source.homes:
        common = os.path.commonpath(home)
        yield {place: path / place for place in home}  # a data folder
        yield {place: path / os.path.relpath(place, common) for place in home}  # the dataset's own file or folder
        yield {place: path / os.path.relpath(place, Path(common).parent) for place in home}  # what holds it


def _linked(layout: dict[str, Path], staging: Path, dataset: Dataset) -> bool:
    """Link a layout into the staging folder if all of it is there; return whether the dataset is found then."""
    if not all(_alike(place, origin) for place, origin in layout.items()):
        return False
    for place, origin in layout.items():
        (staging / place).parent.mkdir(parents=True, exist_ok=True)
        (staging / place).symlink_to(origin.resolve())
    with only_in(staging):
        return find(dataset) is not None


def _alike(place: str, origin: Path) -> bool:
    """Return whether a file stands where an archive or table belongs, and a folder where a folder does."""
    return origin.is_file() if Path(place).suffix else origin.exists()


def _unpack_published(path: Path, staging: Path, dataset: Dataset, source: Source) -> None:
    """Unpack the archives as published, if `path` is them or holds them; else refuse it."""
    wanted = source.downloads
    alone = path.is_file() and len(wanted) == 1
    files = [path] if alone else [path / download.file_name(one) for one in wanted]
    if wanted and all(map(download.matches, files, wanted)):
        return unpack(files, wanted, staging)
    archives = f", or the published {', '.join(map(download.file_name, wanted))}" if wanted else ""
    raise DataError(
        f"Expected {homes_of(source)}{archives} in {path}, found none of them whole. Dataset "
        f"{dataset.name!r} can be had from {source.page or 'its publisher'}."
    )


def unpack(files: Sequence[Path], wanted: Sequence[Download], staging: Path) -> None:
    """Put downloaded files where they belong below `staging`."""
    for file, one in zip(files, wanted, strict=True):
        with progress.status(f"Unpacking {file.name}"):
            download.unpack(file, one, staging)
