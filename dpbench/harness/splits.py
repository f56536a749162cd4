"""Load and check a dataset's splits, their labels and their features."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Dataset, Extractor, Features, Split, Splits
from dpbench.data import cache
from dpbench.data.concat import Concat
from dpbench.data.groups import keep_only_test_groups
from dpbench.data.ignored import report_ignored_files
from dpbench.data.keys import identify_images
from dpbench.data.units import check_units
from dpbench.errors import DataError, SpecError
from dpbench.registry.components import BuiltComponents
from dpbench.support.fields import list_changed_fields
from dpbench.support.plugin_calls import call_plugin


def load_splits(parts: BuiltComponents, role: Literal["dataset", "public_dataset"]) -> Splits:
    """Load and check a run's dataset or public dataset.

    Raises:
        DataError, DataMissing: the data is malformed or not on this machine.
    """
    dataset: Dataset = getattr(parts, role)
    splits = call_plugin(parts.describe_call(role, "load"), dataset.load)
    if not (isinstance(splits, Splits) and isinstance(splits.train, Split) and isinstance(splits.test, Split)):
        who = parts.describe_call(role, "load")
        raise DataError(f"Expected Splits of a train and a test Split from {who}, got {splits!r:.100}.")
    check_units(splits, len(dataset.classes), f"dataset {dataset.name!r}")
    report_ignored_files(dataset, splits)
    return keep_only_test_groups(splits, f"dataset {dataset.name!r}")


def load_public_splits(parts: BuiltComponents, splits: Splits) -> Splits:
    """Return the splits of the public dataset, or the given private `splits` if there is no public dataset.

    Raises:
        SpecError: the public dataset equals the private one, or the private one already provides public examples.
    """
    if parts.public_dataset is None:
        return splits
    if splits.public is not None:
        raise SpecError(
            f"Dataset {parts.dataset.name!r} has public examples of its own, so you cannot combine it with another "
            "public dataset."
        )
    found = load_splits(parts, "public_dataset")
    if found.digest == splits.digest:
        raise SpecError(
            f"The public dataset {parts.public_dataset.name!r} is the private one: every private example would be "
            "public. Name another dataset, or use public_fraction."
        )
    return found


def read_labels(split: Split, name: str, dataset: Dataset) -> Tensor:
    """Check and return the labels (n,) int64 of a split.

    Raises:
        DataError: there are no images, or the labels do not fit them or the classes.
    """
    labels, classes, where = split.labels, len(dataset.classes), f"{name} split of dataset {dataset.name!r}"
    if not len(split.images):
        raise DataError(f"The {where} has no images.")
    if not isinstance(labels, np.ndarray) or labels.dtype != np.int64 or labels.shape != (len(split.images),):
        found = f"{labels.dtype} {labels.shape}" if isinstance(labels, np.ndarray) else f"a {type(labels).__name__}"
        raise DataError(
            f"Expected an array of {len(split.images)} int64 labels in the {where}, one per image, got {found}."
        )
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise DataError(
            f"Expected labels in 0..{classes - 1} in the {where}, got {labels[wrong[0]]} at index {wrong[0]}. "
            "Labels count classes from 0."
        )
    return torch.from_numpy(np.ascontiguousarray(labels))


def load_features(
    splits: Splits, name: Literal["train", "test", "public"], extractor: Extractor | Concat, device: torch.device
) -> Tensor:
    """Return the features (n, ...) of a split, from the cache or from the extractor.

    Raises:
        DpbenchError: an image or the extractor fails, or features that the dataset provides are malformed.
    """
    split = {"train": splits.train, "test": splits.test, "public": splits.public}[name]
    assert split is not None
    if isinstance(split.images, Features):
        return _check_features(split.images, extractor)
    return cache.load_features(split, identify_images(split, splits.digest, name), extractor, device)


def find_engine_of_split(
    splits: Splits, name: Literal["train", "test", "public"], extractor: Extractor | Concat
) -> str | None:
    """Return the engine that computed the features of a split; None if unknown, or if the dataset holds features."""
    split = {"train": splits.train, "test": splits.test, "public": splits.public}[name]
    if split is None or isinstance(split.images, Features):
        return None
    return cache.find_recorded_engine(identify_images(split, splits.digest, name), extractor)


def _check_features(features: Features, extractor: Extractor | Concat) -> Tensor:
    if isinstance(extractor, Concat) or not extractor.identity or list_changed_fields(extractor):
        raise SpecError("This dataset holds features, not images: expected the extractor pixels, without options.")
    if features.x.dtype != np.float32 or features.x.ndim != 2 or not np.isfinite(features.x).all():
        raise DataError(f"Expected finite features (n, d) float32, got {features.x.dtype} {features.x.shape}.")
    return torch.from_numpy(features.x)
