"""Which datasets have doubles, and how one is written, kept and fetched."""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpbench import Dataset, Download
from dpbench.data.fetch import download
from dpbench.records.protocol import Component
from dpbench.registry import load
from tests.doubles import arrays, folders
from tests.doubles.arrays import Expected

Writer = Callable[[Any, Path, float], Expected]
EXPECTED = "expected.json"
WRITERS: Mapping[str, Writer] = {
    "cifar10": arrays.cifar10, "cifar10.1": arrays.cifar10_1, "cifar100": arrays.cifar100,
    "dermamnist": arrays.medmnist, "dermnet": folders.dermnet, "fashion-mnist": arrays.fashion_mnist,
    "flower16": folders.flower16, "flowers102": folders.flowers102, "gtsrb": folders.gtsrb,
    "imagenet": folders.imagenet, "pathmnist": arrays.medmnist, "pcam": arrays.pcam, "pneumoniamnist": arrays.medmnist,
}  # fmt: skip
SHARES = {"imagenet": 0.01}
"""How much of a dataset is written by default, where that is not all of it."""
NAMES = (
    "pcam", "imagenet", "cifar100", "cifar10.1", "dermamnist", "dermamnist:size=64", "pneumoniamnist",
    "pneumoniamnist:size=64", "pathmnist", "pathmnist:size=64", "dermnet", "flower16", "flowers102", "fashion-mnist",
    "gtsrb",
)  # fmt: skip
"""What is measured: datasets of which there is no copy here, or none that is published under this name."""


def build(name: str) -> Dataset:
    """Return a dataset as a user writes it: `pathmnist:size=64`."""
    written = Component.parse(name)
    dataset: Dataset = load().build("dataset", written.name, written.options)
    return dataset


def write(name: str, folder: Path, share: float | None = None) -> Expected:
    """Write the double of a dataset below a folder that `DPBENCH_DATA` may name, and what its loader must expect.

    That is empty for a whole double whose loader checks no published checksum: it is read as the published data are.
    """
    dataset = build(name)
    folder.mkdir(parents=True, exist_ok=True)
    share = SHARES.get(dataset.name, 1.0) if share is None else share
    expected = {dataset.name: WRITERS[dataset.name](dataset, folder, share)}
    (folder / EXPECTED).write_text(json.dumps(expected), encoding="utf-8")
    return expected[dataset.name]


def apply(folder: Path, replace: Callable[[type, str, Any], None] = setattr) -> None:
    """Make the loaders expect the checksums and counts of the doubles in a folder, by `replace(class, name, value)`."""
    for name, facts in json.loads((folder / EXPECTED).read_text(encoding="utf-8")).items():
        for attribute, value in facts.items():
            replace(*_owned(type(build(name)), attribute, value))


def _owned(kind: type, attribute: str, value: Any) -> tuple[type, str, Any]:
    """Give a value the type that the class has: JSON knows neither tuples nor numbers as keys."""
    before = getattr(kind, attribute)
    if isinstance(before, int):
        return kind, attribute, value
    if isinstance(before, tuple):
        return kind, attribute, tuple(value)
    keys = type(next(iter(before)))
    return kind, attribute, {**before, **{keys(key): each for key, each in value.items()}}


def pack(downloads: Sequence[Download], data: Path, folder: Path) -> list[Path]:
    """Write what a publisher's server has, from the files that it unpacks to below `data`; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / download.file_name(wanted) for wanted in downloads]
    for wanted, file in zip(downloads, files, strict=True):
        place = data / wanted.path
        if not wanted.unpack:
            shutil.copyfile(place, file)
        elif file.suffix == ".zip":
            shutil.copyfile(place / file.name, file)
        elif file.name.endswith((".tgz", ".tar.gz")):
            with tarfile.open(file, "w:gz", compresslevel=1) as archive:
                for child in sorted(path for path in place.iterdir() if path.is_dir()):
                    archive.add(child, child.name)
        else:
            with place.open("rb") as content, gzip.open(file, "wb", 1) as out:
                shutil.copyfileobj(content, out, 1 << 20)
    return files
