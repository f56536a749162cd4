"""A copy of a dataset's folder that lacks one file, made of links."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
from PIL.Image import open as pillow_open

from dpbench.api import Dataset
from dpbench.data import sources
from dpbench.support.paths import restrict_data

IMAGES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".pbm", ".pgm", ".ppm", ".tif", ".tiff", ".webp"}
MOST = 5_000  # files of a folder that is copied
SEEN = 500  # images whose brightness is looked at


def folder_of(dataset: Dataset) -> Path | None:
    """Return the folder that holds a dataset's image files; None where there is none, or it is large.

    It is the one that the option without a name (`shorthand`) gives, or the data folder where it was found.
    """
    own = getattr(dataset, dataset.shorthand or "-", None)
    if own is not None:
        folder: Path | None = Path(str(own)).expanduser()
    else:
        found = sources.find(dataset)
        folder = None if found is None else Path(os.path.commonpath(found.paths))
    if folder is None or not folder.is_dir():
        return None
    files = sum(len(names) for _, _, names in os.walk(folder, followlinks=True))
    return folder if files <= MOST else None


def removable(folder: Path) -> list[Path]:
    """Return image files that a copy may lack, not the last of their folder: the brightest, the darkest, one between.

    What is divided by the largest value of all shows where the image that has it is gone.
    """
    found: list[Path] = []
    for place, _, names in os.walk(folder, followlinks=True):
        images = sorted(name for name in names if Path(name).suffix.lower() in IMAGES)
        found += [Path(place) / name for name in images] if len(images) > 1 else []
    some = sorted(found)[:: max(1, len(found) // SEEN)]
    levels = {path: level for path in some if (level := _brightness(path)) is not None}
    ordered = sorted(levels, key=levels.__getitem__)
    return (
        list(dict.fromkeys(ordered[place] for place in (-1, -2, 0, 1, len(ordered) // 2))) if len(ordered) > 1 else []
    )


def _brightness(path: Path) -> tuple[float, float] | None:
    """Return the largest and the mean level of an image; None of what is no image."""
    try:
        with pillow_open(path) as image:
            grey = np.asarray(image.convert("L"))
    except Exception:  # decoders raise many kinds
        return None
    return float(grey.max()), float(grey.mean())


@contextmanager
def copy_without(dataset: Dataset, folder: Path, left_out: Path) -> Iterator[Dataset]:
    """Lend the dataset over a copy of its folder, of links, that lacks one file."""
    with tempfile.TemporaryDirectory(prefix="dpbench-") as made:
        if dataset.shorthand:
            copy: Dataset = dataclasses.replace(dataset, **{dataset.shorthand: made})  # type: ignore[type-var]
            within, root = nullcontext(), Path(made)
        else:
            found = sources.locate(dataset)
            copy, within = dataclasses.replace(dataset), restrict_data(Path(made))  # type: ignore[type-var,assignment]
            root = Path(made) / folder.relative_to(found.folder)
        _link(folder, root, left_out)
        with within:
            yield copy


def _link(folder: Path, copy: Path, left_out: Path) -> None:
    for place, _, names in os.walk(folder, followlinks=True):
        there = copy / Path(place).relative_to(folder)
        there.mkdir(parents=True, exist_ok=True)
        for name in names:
            if Path(place) / name != left_out:
                (there / name).symlink_to((Path(place) / name).resolve())
