"""Make copies of a dataset's files, out of links, with a single record missing or replaced."""

from __future__ import annotations

import dataclasses
import io
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL.Image import open as pillow_open

from dpbench.api import Dataset
from dpbench.data import sources
from dpbench.support.files import IMAGE_ENDINGS
from dpbench.support.paths import restrict_data

MAX_FILES = 5_000  # files of a dataset that is copied
MAX_ARCHIVE_BYTES = 2**27  # of an archive that is written again
MAX_IMAGES_SEEN = 500  # images whose brightness is looked at

T = TypeVar("T")
GreyLevel = tuple[float, float]  # the largest and the mean grey level of an image


@dataclass(frozen=True)
class Change:
    """A change that distinguishes a copy from the dataset."""

    said: str  # such as "without 07.png"
    file: Path
    content: Callable[[], bytes] | None  # of that file; None where it is missing
    replaces: bool  # the record is another one, of the same shape; else it is missing


def list_changes(dataset: Dataset) -> Iterator[Change]:
    """Yield changes to the files of a dataset: to its brightest images, its darkest images and an image in between.

    They reveal a loader that divides by the largest value of all images, because the image with that value is changed.
    Supported are folders of image files, zips of them, and .npz and .npy files of numpy. In numpy files, images become
    blank instead, because readers count rows.
    """
    found = [file for root in _find_roots(dataset) for file in _find_files(root)]
    if len(found) > MAX_FILES:
        return
    yield from _list_folder_changes([file for file in found if file.suffix.lower() in IMAGE_ENDINGS])
    for file in found:
        form = {".zip": _list_zip_changes, ".npz": _list_array_changes, ".npy": _list_array_changes}.get(
            file.suffix.lower()
        )
        if form is not None and file.stat().st_size <= MAX_ARCHIVE_BYTES:
            yield from form(file)


@contextmanager
def open_changed_copy(dataset: Dataset, change: Change) -> Iterator[Dataset]:
    """Provide the dataset over a copy of its files with this change."""
    with tempfile.TemporaryDirectory(prefix="dpbench-") as made:
        folder = Path(made)
        if dataset.shorthand:
            (root,) = _find_roots(dataset)
            copy: Dataset = dataclasses.replace(dataset, **{dataset.shorthand: str(folder / root.name)})  # type: ignore[type-var]
            within, above = nullcontext(), root.parent
        else:
            above = sources.locate(dataset).folder
            copy, within = dataclasses.replace(dataset), restrict_data(folder)  # type: ignore[type-var,assignment]
        for root in _find_roots(dataset):
            _link_files(root, folder / root.relative_to(above), change)
        with within:
            yield copy


def _find_roots(dataset: Dataset) -> tuple[Path, ...]:
    """Return the files and folders of a dataset: the value of its shorthand option, or the paths of its source.

    Return an empty tuple if there are none: the dataset comes with a package, or is stored in a service.
    """
    own = getattr(dataset, dataset.shorthand or "-", None)
    if own is not None:
        path = Path(str(own)).expanduser()
        return (path,) if path.exists() else ()
    found = sources.find_dataset(dataset)
    return () if found is None else found.paths


def _find_files(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
    for place, _, names in os.walk(root, followlinks=True):
        yield from (Path(place) / name for name in sorted(names))


def _link_files(root: Path, copy: Path, change: Change) -> None:
    for file in _find_files(root):
        there = copy if file == root else copy / file.relative_to(root)
        there.parent.mkdir(parents=True, exist_ok=True)
        if file != change.file:
            there.symlink_to(file.resolve())
        elif change.content is not None:
            there.write_bytes(change.content())


def _list_folder_changes(files: Iterable[Path]) -> Iterator[Change]:
    """Yield changes that remove an image file, but never the last file of its folder."""
    sizes: dict[Path, int] = {}
    ordered = sorted(files)
    for file in ordered:
        sizes[file.parent] = sizes.get(file.parent, 0) + 1
    more = [file for file in ordered if sizes[file.parent] > 1]
    levels = {file: level for file in _sample_evenly(more) if (level := _measure_grey_level(file)) is not None}
    for file in _pick_extremes(levels):
        yield Change(f"without {file.name}", file, None, replaces=False)


def _list_zip_changes(file: Path) -> Iterator[Change]:
    """Yield changes that remove an image from a zip."""
    with zipfile.ZipFile(file) as archive:
        names = [name for name in archive.namelist() if Path(name).suffix.lower() in IMAGE_ENDINGS]
        contents = {name: io.BytesIO(archive.read(name)) for name in _sample_evenly(names)}
    levels = {name: level for name, content in contents.items() if (level := _measure_grey_level(content)) is not None}
    for name in _pick_extremes(levels):
        yield Change(f"without {Path(name).name}", file, partial(_rewrite_zip_without, file, name), replaces=False)


def _rewrite_zip_without(file: Path, left_out: str) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(written, "w") as copy:
        for info in archive.infolist():
            if info.filename != left_out:
                copy.writestr(info, archive.read(info))
    return written.getvalue()


def _list_array_changes(file: Path) -> Iterator[Change]:
    """Yield changes that blank an image of an array."""
    try:
        read = np.load(file, allow_pickle=False)
    except ValueError:  # Python objects
        return
    arrays: dict[str, np.ndarray] = dict(read) if file.suffix == ".npz" else {"": read}
    for name, array in arrays.items():
        if array.ndim < 3 or len(array) < 2:
            continue
        levels = {row: (float(array[row].max()), float(array[row].mean())) for row in _sample_evenly(range(len(array)))}
        for row in _pick_extremes(levels):
            yield Change(
                f"with a blank image {row} in {name or file.name}", file,
                lambda name=name, row=row: _blank_image(arrays, name, row), replaces=True,  # type: ignore[misc]
            )  # fmt: skip


def _blank_image(arrays: dict[str, np.ndarray], name: str, row: int) -> bytes:
    changed, written = arrays[name].copy(), io.BytesIO()
    changed[row] = 0 if changed[row].any() else 1
    if name:
        np.savez(written, **{**arrays, name: changed})  # type: ignore[arg-type]
    else:
        np.save(written, changed)
    return written.getvalue()


def _sample_evenly(things: Iterable[T]) -> list[T]:
    found = list(things)
    return found[:: max(1, len(found) // MAX_IMAGES_SEEN)]


def _pick_extremes(levels: dict[T, GreyLevel]) -> list[T]:
    ordered = sorted(levels, key=levels.__getitem__)
    return list(dict.fromkeys(ordered[place] for place in (-1, -2, 0, 1, len(ordered) // 2))) if levels.keys() else []


def _measure_grey_level(file: Path | io.BytesIO) -> GreyLevel | None:
    """Return the largest and the mean grey level of an image; None if the file is not an image."""
    try:
        with pillow_open(file) as image:
            grey = np.asarray(image.convert("L"))
    except Exception:  # decoders raise many kinds
        return None
    return float(grey.max()), float(grey.mean())
