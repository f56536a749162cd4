"""What people have after a download, linked or unpacked the way a data folder holds it, and put among other data."""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from dpbench.api import Dataset, Download, Source
from dpbench.data.fetch import download
from dpbench.data.sources import find, homes_of
from dpbench.errors import DataError, OutputError
from dpbench.support import progress
from dpbench.support.paths import restrict_data


def stage(dataset: Dataset, source: Source, path: Path, staging: Path) -> None:
    """Make the empty folder `staging` one that holds the dataset at `path`: links to it, or its archives unpacked.

    Raises:
        DataError: `path` is neither the dataset's file or folder, nor holds it, nor the published archives.
    """
    if path.is_file() and any(one.unpack for one in source.downloads) and _published(path, source):
        _unpack_published(path, staging, dataset, source)  # in a folder they may lie beside what was in them
        return
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
    with restrict_data(staging):
        return find(dataset) is not None


def _alike(place: str, origin: Path) -> bool:
    """Return whether a file stands where an archive or table belongs, and a folder where a folder does."""
    return origin.is_file() if Path(place).suffix else origin.exists()


def _unpack_published(path: Path, staging: Path, dataset: Dataset, source: Source) -> None:
    """Unpack the archives as published, if `path` is them or holds them; else refuse it."""
    wanted, files = source.downloads, _published(path, source)
    if files:
        unpack(files, wanted, staging)
        return
    archives = f", or the published {', '.join(map(download.file_name, wanted))}" if wanted else ""
    raise DataError(
        f"Expected {homes_of(source)}{archives} in {path}, but none of them is complete. You can get dataset "
        f"{dataset.name!r} from {source.page or 'its publisher'}."
    )


def _published(path: Path, source: Source) -> list[Path]:
    """Return the archives as published, if `path` is them or holds them."""
    wanted = source.downloads
    alone = path.is_file() and len(wanted) == 1
    files = [path] if alone else [path / download.file_name(one) for one in wanted]
    return files if all(map(download.matches, files, wanted)) else []


def unpack(files: Sequence[Path], wanted: Sequence[Download], staging: Path) -> None:
    """Put downloaded files where they belong below `staging`."""
    for file, one in zip(files, wanted, strict=True):
        with progress.status(f"Unpacking {file.name}"):
            download.unpack(file, one, staging)


def refuse_overlap(staging: Path, folder: Path, earlier: Collection[str]) -> None:
    """Refuse links to what would be overwritten by what they stand for.

    Raises:
        DataError: an origin is its own target, lies in it or holds it; or is what an earlier import put there.
    """
    root = folder.resolve()
    for place in _leaves(staging, ""):
        if not (staging / place).is_symlink():
            continue
        origin, target = (staging / place).readlink(), (root / place).parent.resolve() / Path(place).name
        for taken in (target, *(root / path for path in earlier)):
            if origin == taken or origin in taken.parents or taken in origin.parents:
                raise DataError(
                    f"Cannot import {origin}, because it would replace itself at {taken}. If the data already lie "
                    "where dpbench looks, you do not need to import them."
                )


def copy_links(folder: Path) -> None:
    """Put copies in the place of links; rights are not copied, so that what was read-only can be moved and removed."""
    for child in sorted(folder.iterdir()):
        if child.is_symlink():
            origin = child.readlink()
            child.unlink()
            _copy(origin, child)
        elif child.is_dir():
            copy_links(child)


def _copy(origin: Path, place: Path) -> None:
    if not origin.is_dir():
        shutil.copyfile(origin, place)
        return
    place.mkdir()
    for child in sorted(origin.iterdir()):
        _copy(child, place / child.name)


Move = tuple[Path, Path]


def plan(
    staging: Path, folder: Path, mine: Collection[str], others: Collection[str]
) -> tuple[list[Move], tuple[str, ...]]:
    """Return how what is staged gets into `folder`, and which of its files are dpbench's then.

    `mine` is what will be deleted before, `others` what dpbench put there for other datasets. A file that is there
    already is left alone if it is the same; it stays whose it is.

    Raises:
        OutputError: something else is in the way.
    """
    moves: list[Move] = []
    paths: list[str] = []

    def walk(staged: Path, place: str) -> None:
        target = folder / place
        if _free(target, place, mine):
            moves.append((staged, target))
            paths.extend(_leaves(staged, place))
        elif _is_folder(staged) and _is_folder(target):
            for child in sorted(staged.iterdir()):
                walk(child, f"{place}/{child.name}")
        elif not _same(staged, target):
            raise OutputError(
                f"{target}, where this dataset belongs, already holds other files; dpbench leaves them as they are. "
                "Move them away, or name another folder with --to."
            )
        elif place in others:
            paths.append(place)

    for child in sorted(staging.iterdir()):
        walk(child, child.name)
    return moves, tuple(paths)


def move(moves: Sequence[Move]) -> None:
    """Do what was planned."""
    for staged, target in moves:
        if _is_folder(target):
            _remove_empty(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        staged.rename(target)


def discard(folder: Path, paths: Collection[str]) -> None:
    """Delete files below `folder`, and the folders that are empty then; never a folder with anything in it."""
    emptied: set[Path] = set()
    for path in paths:
        target = folder / path
        emptied |= set(target.parents) - {folder, *folder.parents}
        if _is_folder(target):
            emptied.add(target)
        else:
            with suppress(FileNotFoundError, NotADirectoryError):
                target.unlink()
    for parent in sorted(emptied, key=lambda path: len(path.parts), reverse=True):
        with suppress(OSError):
            parent.rmdir()


def _leaves(path: Path, place: str) -> Iterator[str]:
    """Yield the files below a path, links and empty folders too, with `place` for the path itself."""
    children = sorted(path.iterdir()) if _is_folder(path) else []
    for child in children:
        yield from _leaves(child, f"{place}/{child.name}" if place else child.name)
    if not children and place:
        yield place


def _free(target: Path, place: str, mine: Collection[str]) -> bool:
    """Return whether nothing is at a place once `mine` is gone, other than empty folders."""
    if _is_folder(target):
        return all(_free(child, f"{place}/{child.name}", mine) for child in target.iterdir())
    return place in mine or not os.path.lexists(target)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _same(staged: Path, target: Path) -> bool:
    if staged.is_file() and target.is_file():
        return filecmp.cmp(staged, target, shallow=False)
    return staged.is_symlink() and target.is_symlink() and staged.readlink() == target.readlink()


def _remove_empty(folder: Path) -> None:
    for child in folder.iterdir():
        _remove_empty(child)
    folder.rmdir()
