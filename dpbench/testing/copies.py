"""Copy a dataset's files as links, with one record or half of the records missing or blank."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
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
from dpbench.support.paths import restrict_data_search

MAX_FILES = 5_000  # files of a dataset that is copied
MAX_ARCHIVE_BYTES = 2**27  # of an archive that is written again
MAX_IMAGES_SEEN = 500  # images whose brightness is looked at
MAX_HALVED = 2_000  # images in files of their own, of which each half is read

T = TypeVar("T")
GreyLevel = tuple[float, float]  # the largest and the mean grey level of an image


@dataclass(frozen=True)
class DatasetChange:
    """A change that distinguishes a copy from the dataset."""

    said: str  # such as "without 07.png"
    files: Mapping[Path, Callable[[], bytes] | None]  # contents of changed files; None where a file is missing
    replaces: bool  # records are others, of the same shape; else they are missing


def list_single_image_changes(dataset: Dataset) -> Iterator[DatasetChange]:
    """Yield changes that each remove one image: the two brightest images, the two darkest and one in between.

    Removing the brightest image reveals a loader that divides by the largest value of all images. Folders and zips of
    image files are supported, and .npz and .npy files of numpy. In numpy files, an image becomes blank instead, because
    readers count rows. A dataset of more than `MAX_FILES` files has no changes.
    """
    found = [file for root in _find_roots(dataset) for file in _find_files(root)]
    if len(found) > MAX_FILES:
        return
    yield from _list_image_file_removals([file for file in found if file.suffix.lower() in IMAGE_ENDINGS])
    for file in found:
        form = {".zip": _list_zip_member_removals, ".npz": _list_array_changes, ".npy": _list_array_changes}.get(
            file.suffix.lower()
        )
        if form is not None and file.stat().st_size <= MAX_ARCHIVE_BYTES:
            yield from form(file)


@contextmanager
def open_changed_copy(dataset: Dataset, change: DatasetChange) -> Iterator[Dataset]:
    """Provide a dataset that reads a copy of the files with this change."""
    with tempfile.TemporaryDirectory(prefix="dpbench-") as made:
        folder = Path(made)
        if dataset.shorthand:
            (root,) = _find_roots(dataset)
            copy: Dataset = dataclasses.replace(dataset, **{dataset.shorthand: str(folder / root.name)})  # type: ignore[type-var]
            within, above = nullcontext(), root.parent
        else:
            above = sources.locate(dataset).folder
            copy, within = dataclasses.replace(dataset), restrict_data_search(folder)  # type: ignore[type-var,assignment]
        for root in _find_roots(dataset):
            _link_unchanged_files(root, folder / root.relative_to(above), change)
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
        yield from (file for name in sorted(names) if (file := Path(place) / name).is_file())


def _link_unchanged_files(root: Path, copy: Path, change: DatasetChange) -> None:
    for file in _find_files(root):
        there = copy if file == root else copy / file.relative_to(root)
        there.parent.mkdir(parents=True, exist_ok=True)
        if file not in change.files:
            there.symlink_to(file.resolve())
        elif (content := change.files[file]) is not None:
            there.write_bytes(content())


def _list_image_file_removals(files: Iterable[Path]) -> Iterator[DatasetChange]:
    """Yield changes that each remove one image file; a folder's only image is never removed."""
    sizes: dict[Path, int] = {}
    ordered = sorted(files)
    for file in ordered:
        sizes[file.parent] = sizes.get(file.parent, 0) + 1
    more = [file for file in ordered if sizes[file.parent] > 1]
    levels = {file: level for file in _sample_evenly(more) if (level := _measure_grey_level(file)) is not None}
    for file in _pick_brightest_and_darkest(levels):
        yield DatasetChange(f"without {file.name}", {file: None}, replaces=False)


def _list_zip_member_removals(file: Path) -> Iterator[DatasetChange]:
    """Yield changes that remove an image from a zip."""
    contents = _read_zip(file, _sample_evenly)
    measured = {name: _measure_grey_level(io.BytesIO(content)) for name, content in contents.items()}
    levels = {name: level for name, level in measured.items() if level is not None}
    for name in _pick_brightest_and_darkest(levels):
        content = partial(_rewrite_zip_without, file, {name})
        yield DatasetChange(f"without {Path(name).name}", {file: content}, replaces=False)


def _read_zip(file: Path, choose: Callable[[list[str]], list[str]]) -> dict[str, bytes]:
    """Return the chosen images of a zip by name; empty if the zip is damaged or needs a password."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if Path(name).suffix.lower() in IMAGE_ENDINGS]
            return {name: archive.read(name) for name in choose(names)}
    except (zipfile.BadZipFile, RuntimeError):
        return {}


def _rewrite_zip_without(file: Path, left_out: Set[str]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(written, "w") as copy:
        for info in archive.infolist():
            if info.filename not in left_out:
                copy.writestr(info, archive.read(info))
    return written.getvalue()


def _list_array_changes(file: Path) -> Iterator[DatasetChange]:
    """Yield changes that blank an image of an array."""
    arrays = _read_arrays(file)
    for name, array in arrays.items():
        if not _is_image_array(array):
            continue
        levels = {row: (float(array[row].max()), float(array[row].mean())) for row in _sample_evenly(range(len(array)))}
        for row in _pick_brightest_and_darkest(levels):
            content = partial(_blank_images, arrays, {name: np.array([row])})
            yield DatasetChange(f"with a blank image {row} in {name or file.name}", {file: content}, replaces=True)


def _read_arrays(file: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file by name ("" for a .npy); empty if it is damaged or holds Python objects."""
    try:
        read = np.load(file, allow_pickle=False)
        return dict(read) if file.suffix == ".npz" else {"": read}
    except (ValueError, EOFError, zipfile.BadZipFile):
        return {}


def _is_image_array(array: np.ndarray) -> bool:
    return array.ndim >= 3 and len(array) >= 2 and array.size > 0 and array.dtype.kind in "buif"


def _blank_images(arrays: Mapping[str, np.ndarray], rows: Mapping[str, np.ndarray]) -> bytes:
    changed, written = dict(arrays), io.BytesIO()
    for name, places in rows.items():
        changed[name] = arrays[name].copy()
        for row in places.tolist():
            changed[name][row] = 0 if arrays[name][row].any() else 1
    if "" in changed:
        np.save(written, changed[""])
    else:
        np.savez(written, **changed)  # type: ignore[arg-type]
    return written.getvalue()


def list_half_changes(dataset: Dataset) -> Iterator[tuple[DatasetChange, DatasetChange]]:
    """Yield pairs of changes: the first leaves out the brighter half of the images, and the second the darker half.

    A second pair halves the images by the SHA-256 of their bytes. Each folder is halved, so that every class remains.
    In numpy files, images become blank instead. Halves reveal faults that a single record is too small to show.
    """
    found = [file for root in _find_roots(dataset) for file in _find_files(root)]
    images = [file for file in found if file.suffix.lower() in IMAGE_ENDINGS]
    if 1 < len(images) <= MAX_HALVED:
        for said, halves in _halve_folders(
            {file: _compute_grey_level_and_digest(file.read_bytes()) for file in images}
        ):
            yield _make_change_pair(said, [dict.fromkeys(half) for half in halves], replaces=False)
    for file in found:
        if file.stat().st_size <= MAX_ARCHIVE_BYTES and (form := ARCHIVE_HALVES.get(file.suffix.lower())):
            yield from form(file)


def _list_zip_halves(file: Path) -> Iterator[tuple[DatasetChange, DatasetChange]]:
    images = _read_zip(file, lambda names: names if len(names) <= MAX_HALVED else [])
    as_written = {Path(name): name for name in images}  # such as ./1.png
    for said, halves in _halve_folders(
        {path: _compute_grey_level_and_digest(images[name]) for path, name in as_written.items()}
    ):
        left_out = [{as_written[path] for path in half} for half in halves]
        yield _make_change_pair(
            said, [{file: partial(_rewrite_zip_without, file, half)} for half in left_out], replaces=False
        )


def _list_array_halves(file: Path) -> Iterator[tuple[DatasetChange, DatasetChange]]:
    arrays = _read_arrays(file)
    images = {name: array for name, array in arrays.items() if _is_image_array(array)}
    orders = {
        "brighter": {name: array.reshape(len(array), -1).mean(1).argsort() for name, array in images.items()},
        "hashed": {
            name: np.array(sorted(range(len(array)), key=lambda row: _compute_sha256(array[row].tobytes())))
            for name, array in images.items()
        },
    }
    for said, order in orders.items() if images else ():
        middle = {name: len(rows) // 2 for name, rows in order.items()}
        halves = [
            {name: rows[middle[name] :] for name, rows in order.items()},
            {name: rows[: middle[name]] for name, rows in order.items()},
        ]
        yield _make_change_pair(said, [{file: partial(_blank_images, arrays, rows)} for rows in halves], replaces=True)


ARCHIVE_HALVES: Mapping[str, Callable[[Path], Iterator[tuple[DatasetChange, DatasetChange]]]] = {
    ".zip": _list_zip_halves, ".npz": _list_array_halves, ".npy": _list_array_halves,
}  # fmt: skip


def _make_change_pair(
    order_name: str, halves: Sequence[Mapping[Path, Callable[[], bytes] | None]], *, replaces: bool
) -> tuple[DatasetChange, DatasetChange]:
    first, second = {"brighter": ("brighter", "darker"), "hashed": ("first", "second")}[order_name]
    what, by = "with a blank" if replaces else "without the", " by SHA-256" if order_name == "hashed" else ""
    return (
        DatasetChange(f"{what} {first} half{by}", halves[0], replaces),
        DatasetChange(f"{what} {second} half{by}", halves[1], replaces),
    )


def _halve_folders(contents: Mapping[Path, tuple[float, str]]) -> Iterator[tuple[str, tuple[list[Path], list[Path]]]]:
    """Yield halves by brightness, then by digest. Each folder is halved; folders of one image are pooled."""
    folders: dict[Path, list[Path]] = defaultdict(list)
    for path in contents:
        folders[path.parent].append(path)
    for folder in [folder for folder, paths in folders.items() if len(paths) == 1]:
        folders[folder.parent / "alone"] += folders.pop(folder)
    for place, said in enumerate(("brighter", "hashed") if folders else ()):
        ordered = [sorted(paths, key=lambda path: contents[path][place]) for paths in folders.values()]
        upper = [path for paths in ordered for path in paths[len(paths) // 2 :]]
        yield said, (upper, [path for paths in ordered for path in paths[: len(paths) // 2]])


def _compute_grey_level_and_digest(content: bytes) -> tuple[float, str]:
    """Return the mean grey level of an image file (0 if it does not decode) and the SHA-256 of its bytes."""
    level = _measure_grey_level(io.BytesIO(content))
    return (0.0 if level is None else level[1]), _compute_sha256(content)


def _compute_sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _sample_evenly(items: Iterable[T]) -> list[T]:
    found = list(items)
    return found[:: max(1, len(found) // MAX_IMAGES_SEEN)]


def _pick_brightest_and_darkest(levels: dict[T, GreyLevel]) -> list[T]:
    ordered = sorted(levels, key=levels.__getitem__)
    return list(dict.fromkeys([*ordered[:-3:-1], *ordered[:2], *ordered[len(ordered) // 2 :][:1]]))


def _measure_grey_level(file: Path | io.BytesIO) -> GreyLevel | None:
    """Return the largest and the mean grey level of an image; None if the file is not an image."""
    try:
        with pillow_open(file) as image:
            grey = np.asarray(image.convert("L"))
    except Exception:  # decoders raise many kinds
        return None
    return float(grey.max()), float(grey.mean())
