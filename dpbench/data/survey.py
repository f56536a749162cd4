"""What a dataset is, measured on the data themselves: `dpbench data info`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from dpbench import sources
from dpbench.api import Dataset, Split
from dpbench.data.duplicates import hashes, repeats, repeats_within
from dpbench.data.overlap import Overlap
from dpbench.guard import guarded


class Survey(BaseModel):
    """One dataset. Counts per class are in the order of `classes`."""

    model_config = ConfigDict(frozen=True)

    name: str
    classes: tuple[str, ...]
    train: tuple[int, ...]
    test: tuple[int, ...]
    image: str  # mode and size of the first training image
    licence: str
    citation: str
    page: str
    where: str
    digest: str
    overlap: dict[str, Overlap]

    def lines(self) -> list[tuple[str, str]]:
        """Return what to show, as pairs of a name and a value."""
        most, least = max(self.train), min(self.train)
        named = ", ".join(self.classes[:12]) + (", ..." if len(self.classes) > 12 else "")
        overlap = [(pair, str(counted)) for pair, counted in self.overlap.items()]
        return [
            ("dataset", self.name),
            ("classes", f"{len(self.classes)}: {named}"),
            ("images", f"{sum(self.train):,} training, {sum(self.test):,} test; {self.image} the first"),
            ("a class has", f"{least:,} to {most:,} training images"),
            ("licence", self.licence),
            ("citation", self.citation),
            ("page", self.page),
            ("where", self.where),
            ("digest", self.digest),
            *overlap,
        ]


def survey(dataset: Dataset) -> Survey:
    """Open a dataset and count its images by class, and those that stand twice.

    Raises:
        DataError, DataMissing: as its loader does, or an image does not decode.
    """
    splits = guarded(f"load of dataset {dataset.name!r}", dataset.load)
    train = hashes(splits.train, splits.digest, "train")
    overlap = {"train, repeated within": repeats_within(train)}
    if len(splits.test.labels):
        overlap["test, repeated in train"] = repeats(hashes(splits.test, splits.digest, "test"), train)
    first, source, found = splits.train.images[0], dataset.source(), sources.find(dataset)
    return Survey(
        name=dataset.name, classes=dataset.classes, train=_per_class(splits.train, dataset),
        test=_per_class(splits.test, dataset), image=f"{first.mode} {first.width} x {first.height}",
        licence=dataset.licence, citation=dataset.citation, page=source.page if source else "",
        where=_where(found), digest=splits.digest, overlap=overlap,
    )  # fmt: skip


def _per_class(split: Split, dataset: Dataset) -> tuple[int, ...]:
    return tuple(np.bincount(split.labels, minlength=len(dataset.classes)).tolist())


def _where(found: sources.Found | None) -> str:
    if found is None:
        return "comes with a Python package"
    return str(found.paths[0] if len(found.paths) == 1 else Path(found.folder))
