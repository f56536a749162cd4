"""Arrange downloaded data in a data folder's layout, by linking or unpacking, and move the data into the folder."""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from dpbench.api import Dataset, Download, Source
from dpbench.data.fetch import download
from dpbench.data.sources import describe_data_paths, find_dataset
from dpbench.errors import DataError, OutputError
from dpbench.support import progress
from dpbench.support.paths import restrict_data_search


def stage_dataset(dataset: Dataset, source: Source, path: Path, staging: Path) -> None:
    """Fill the empty folder `staging` with the dataset at `path`: link to it, or unpack its published archives.

    Raises:
        DataError: `path` is not the dataset, and contains neither the dataset nor its published archives.
    """
    if (
        path.is_file()
        and any(download.unpack for download in source.downloads)
        and _list_published_archives(path, source)
    ):
        _unpack_published_archives(path, staging, dataset, source)  # in a folder they may lie beside what was in them
        return
    for layout in _list_possible_layouts(source, path):
        if _link_layout(layout, staging, dataset):
            return
        for child in staging.iterdir():  # of a layout that was no home
            delete_path(child)
    _unpack_published_archives(path, staging, dataset, source)


def delete_path(path: Path) -> None:
    """Delete a file, a link, or a folder with its content, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _list_possible_layouts(source: Source, path: Path) -> Iterator[dict[str, Path]]:
    """Yield every possible layout of `path`, as a mapping from paths in a data folder to the user's files."""
    for home in source.homes:
        common = os.path.commonpath(home)
        yield {place: path / place for place in home}  # a data folder
        yield {place: path / os.path.relpath(place, common) for place in home}  # the dataset's own file or folder
        yield {place: path / os.path.relpath(place, Path(common).parent) for place in home}  # what holds it


def _link_layout(layout: dict[str, Path], staging: Path, dataset: Dataset) -> bool:
    """Link a layout into the staging folder if all its files exist; return whether the dataset is then complete."""
    if not all(_has_expected_type(place, origin) for place, origin in layout.items()):
        return False
    for place, origin in layout.items():
        (staging / place).parent.mkdir(parents=True, exist_ok=True)
        (staging / place).symlink_to(origin.resolve())
    with restrict_data_search(staging):
        return find_dataset(dataset) is not None


def _has_expected_type(relative_path: str, origin: Path) -> bool:
    """Return whether `origin` exists and, if `relative_path` has an ending like an archive or table, is a file."""
    return origin.is_file() if Path(relative_path).suffix else origin.exists()


def _unpack_published_archives(path: Path, staging: Path, dataset: Dataset, source: Source) -> None:
    """Unpack the published archives at `path` or in it; raise `DataError` if any of them is missing."""
    wanted, files = source.downloads, _list_published_archives(path, source)
    if files:
        unpack_files(files, wanted, staging)
        return
    archives = f", or the published {', '.join(map(download.file_name, wanted))}" if wanted else ""
    raise DataError(
        f"Expected {describe_data_paths(source)}{archives} in {path}, but none of them is complete. You can get "
        f"dataset {dataset.name!r} from {source.page or 'its publisher'}."
    )


def _list_published_archives(path: Path, source: Source) -> list[Path]:
    """Return the published archives at `path` or in it; an empty list if any of them is missing."""
    wanted = source.downloads
    alone = path.is_file() and len(wanted) == 1
    files = [path] if alone else [path / download.file_name(source) for source in wanted]
    return files if all(map(download.is_published_file, files, wanted)) else []


def unpack_files(files: Sequence[Path], downloads: Sequence[Download], staging: Path) -> None:
    """Unpack or copy downloaded files to their paths below `staging`."""
    for file, source in zip(files, downloads, strict=True):
        with progress.show_status(f"Unpacking {file.name}"):
            download.unpack(file, source, staging)


def check_no_self_overwrite(staging: Path, folder: Path, earlier: Collection[str]) -> None:
    """Check that an import does not overwrite files that its own links point to.

    Raises:
        DataError: the origin of a link equals, contains or lies in its target or a file of an earlier import.
    """
    root = folder.resolve()
    for place in _list_files(staging, ""):
        if not (staging / place).is_symlink():
            continue
        origin, target = (staging / place).readlink(), (root / place).parent.resolve() / Path(place).name
        for taken in (target, *(root / path for path in earlier)):
            if origin == taken or origin in taken.parents or taken in origin.parents:
                raise DataError(
                    f"Cannot import {origin}, because it would replace itself at {taken}. If the data already lie "
                    "where dpbench looks, you do not need to import them."
                )


def replace_links_with_copies(folder: Path) -> None:
    """Replace links with copies. Copies have default permissions, so they can be moved and removed like other files."""
    for child in sorted(folder.iterdir()):
        if child.is_symlink():
            origin = child.readlink()
            child.unlink()
            _copy_tree(origin, child)
        elif child.is_dir():
            replace_links_with_copies(child)


def _copy_tree(origin: Path, destination: Path) -> None:
    if not origin.is_dir():
        shutil.copyfile(origin, destination)
        return
    destination.mkdir()
    for child in sorted(origin.iterdir()):
        _copy_tree(child, destination / child.name)


Move = tuple[Path, Path]


def plan_moves(
    staging: Path, folder: Path, own_files: Collection[str], others: Collection[str]
) -> tuple[list[Move], tuple[str, ...]]:
    """Plan the moves from `staging` into `folder`; return the moves and the files that dpbench will own there.

    `own_files` are files that will be deleted before the moves; `others` are files that dpbench put there for other
    datasets. An identical file that is already there is left alone and keeps its owner.

    Raises:
        OutputError: another file is in the way.
    """
    moves: list[Move] = []
    paths: list[str] = []

    def plan_move_of_path(staged: Path, place: str) -> None:
        target = folder / place
        if _will_path_be_free(target, place, own_files):
            moves.append((staged, target))
            paths.extend(_list_files(staged, place))
        elif _is_folder(staged) and _is_folder(target):
            for child in sorted(staged.iterdir()):
                plan_move_of_path(child, f"{place}/{child.name}")
        elif not _is_same_file(staged, target):
            raise OutputError(
                f"{target}, where this dataset belongs, already holds other files; dpbench leaves them as they are. "
                "Move them away, or name another folder with --to."
            )
        elif place in others:
            paths.append(place)

    for child in sorted(staging.iterdir()):
        plan_move_of_path(child, child.name)
    return moves, tuple(paths)


def apply_moves(moves: Sequence[Move]) -> None:
    """Carry out the planned moves."""
    for staged, target in moves:
        if _is_folder(target):
            _remove_empty_folders(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        staged.rename(target)


def delete_files(folder: Path, paths: Collection[str]) -> None:
    """Delete files below `folder` and the folders that become empty."""
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


def _list_files(path: Path, name: str) -> Iterator[str]:
    """Yield the files, links and empty folders below a path; names start with `name`, the name of the path itself."""
    children = sorted(path.iterdir()) if _is_folder(path) else []
    for child in children:
        yield from _list_files(child, f"{name}/{child.name}" if name else child.name)
    if not children and name:
        yield name


def _will_path_be_free(target: Path, relative_path: str, own_files: Collection[str]) -> bool:
    """Return whether nothing but empty folders will be left at a path after deleting the files in `own_files`."""
    if _is_folder(target):
        return all(_will_path_be_free(child, f"{relative_path}/{child.name}", own_files) for child in target.iterdir())
    return relative_path in own_files or not os.path.lexists(target)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _is_same_file(staged: Path, target: Path) -> bool:
    if staged.is_file() and target.is_file():
        return filecmp.cmp(staged, target, shallow=False)
    return staged.is_symlink() and target.is_symlink() and staged.readlink() == target.readlink()


def _remove_empty_folders(folder: Path) -> None:
    for child in folder.iterdir():
        _remove_empty_folders(child)
    folder.rmdir()
