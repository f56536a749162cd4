"""Measure a dataset for `dpbench data info`: images by class, units, groups and repeated images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from dpbench.api import Dataset, Split, Splits
from dpbench.data import sources
from dpbench.data.duplicates import compute_hashes, count_overlap, count_repeated_images
from dpbench.data.groups import check_group_columns, select_group_values
from dpbench.data.ignored import report_ignored_files
from dpbench.data.units import check_units, count_shared_units
from dpbench.errors import DataError
from dpbench.records.overlap import OverlapCounts
from dpbench.support.plugin_calls import call_plugin


class TrainingUnitCounts(BaseModel):
    """Counts of the training images' units, such as patients, lesions or tracks."""

    model_config = ConfigDict(frozen=True)

    unit: str
    count: int
    largest: int  # images of the one that has most
    sharing: int  # images that share their unit with another one

    def __str__(self) -> str:
        """Describe how many units there are, and how many images share a unit."""
        return f"{self.count:,} {self.unit}s; {self.sharing:,} images share theirs, one has {self.largest:,}"


class DatasetSurvey(BaseModel):
    """The facts about a dataset. Counts per class are in the order of `classes`."""

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
    overlap: dict[str, OverlapCounts]
    units: TrainingUnitCounts | None = Field(
        default=None, exclude_if=lambda value: value is None
    )  # of the training images
    # Test images by column and value; the value "" is unknown.
    groups: dict[str, dict[str, int]] = Field(default_factory=dict, exclude_if=lambda value: not value)
    edition: str = Field(default="", exclude_if=lambda value: not value)  # see `Splits.edition`

    def lines(self) -> list[tuple[str, str]]:
        """Return the rows of the survey's table, as pairs of a name and a value."""
        most, least = max(self.train), min(self.train)
        named = ", ".join(self.classes[:12]) + (", ..." if len(self.classes) > 12 else "")
        overlap = [(pair, str(counted)) for pair, counted in self.overlap.items()]
        return [
            ("dataset", self.name),
            ("classes", f"{len(self.classes)}: {named}"),
            ("images", f"{sum(self.train):,} training, {sum(self.test):,} test; {self.image} the first"),
            *([("copy", self.edition)] if self.edition else []),
            ("a class has", f"{least:,} to {most:,} training images"),
            *([("training units", str(self.units))] if self.units else []),
            *((f"test images by {column}", _format_counts(counts)) for column, counts in self.groups.items()),
            ("licence", self.licence),
            ("citation", self.citation),
            ("page", self.page),
            ("where", self.where),
            ("digest", self.digest),
            *overlap,
        ]


def survey_dataset(dataset: Dataset) -> DatasetSurvey:
    """Open a dataset and count its images per class, its units and groups, and its repeated images.

    Raises:
        DataError, DataMissing: its loader raises them, or an image does not decode.
    """
    splits = call_plugin(f"load of dataset {dataset.name!r}", dataset.load)
    check_units(splits, len(dataset.classes), f"dataset {dataset.name!r}")
    check_group_columns(splits.test, f"test split of dataset {dataset.name!r}")
    report_ignored_files(dataset, splits)
    counts = [_count_classes(split, name, dataset) for name, split in (("train", splits.train), ("test", splits.test))]
    if not sum(counts[0]):
        raise DataError(f"The train split of dataset {dataset.name!r} has no images.")
    train = compute_hashes(splits.train, splits.digest, "train")
    overlap = {"train, repeated within": count_repeated_images(train)}
    if len(splits.test.labels):
        found = count_overlap(compute_hashes(splits.test, splits.digest, "test"), train)
        shared = count_shared_units(splits.test.units, splits.train.units)
        overlap["test, repeated in train"] = found.model_copy(update={"units": shared})
    first = call_plugin("Decoding image 0 of the train split", lambda: splits.train.images[0])
    source = dataset.source()
    return DatasetSurvey(
        name=dataset.name, classes=dataset.classes, train=counts[0], test=counts[1],
        image=f"{first.mode} {first.width} x {first.height}",
        licence=dataset.licence, citation=dataset.citation, page=source.page if source else "",
        where=_describe_location(dataset), digest=splits.digest, overlap=overlap, units=_count_units(splits),
        groups=_count_group_values(splits.test),
        edition=splits.edition,
    )  # fmt: skip


def _count_units(splits: Splits) -> TrainingUnitCounts | None:
    if splits.train.units is None:
        return None
    _, images = np.unique(splits.train.units, return_counts=True)
    sharing = int(images[images > 1].sum())
    return TrainingUnitCounts(unit=splits.unit, count=len(images), largest=int(images.max()), sharing=sharing)


def _count_group_values(test: Split) -> dict[str, dict[str, int]]:
    counted = {
        column: np.unique(values, return_counts=True) for column, values in select_group_values(test.groups).items()
    }
    return {
        column: dict(zip(values.tolist(), counts.tolist(), strict=True)) for column, (values, counts) in counted.items()
    }


def _format_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{value or 'not known'} {count:,}" for value, count in counts.items())


def _count_classes(split: Split, name: str, dataset: Dataset) -> tuple[int, ...]:
    labels, classes = split.labels, len(dataset.classes)
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise DataError(f"Expected labels in 0..{classes - 1} in the {name} split of dataset {dataset.name!r}.")
    return tuple(np.bincount(labels, minlength=classes).tolist())


def _describe_location(dataset: Dataset) -> str:
    found, own = sources.find_dataset(dataset), getattr(dataset, dataset.shorthand or "-", None)
    if found is None and own is not None and Path(str(own)).expanduser().exists():
        return str(Path(str(own)).expanduser())
    if found is None:
        return "the Hugging Face hub's cache" if dataset.source() else "comes with a Python package"
    return str(found.paths[0] if len(found.paths) == 1 else Path(found.folder))
