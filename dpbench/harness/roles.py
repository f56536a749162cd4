"""Assign the examples of a run to their roles: private or public."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch

from dpbench.api import Learner, PublicData, Task
from dpbench.data.concat import Concat
from dpbench.data.units import renumber_units
from dpbench.errors import DataError
from dpbench.harness.private_files import NO_FILES, PrivateDatasetFiles
from dpbench.harness.split_images import SplitImages
from dpbench.harness.splits import load_features, read_labels
from dpbench.privacy.core.rows import PrivateRows


@dataclass(frozen=True)
class ExamplesByRole:
    """The private and public examples of a run, and the task that describes them."""

    task: Task
    private: PrivateRows
    public: PublicData  # with labels, whatever the protocol allows a learner to see
    public_units: np.ndarray | None = None  # (n,) int64, whose each public example is, from 0 without a gap
    files: PrivateDatasetFiles = NO_FILES  # of the private dataset: neither fits nor predictors open them


def extract_examples_by_role(images: SplitImages) -> ExamplesByRole:
    """Extract the features of the private and the public examples, and return the examples by role.

    Raises:
        DpbenchError: images or labels are malformed, or public features differ in shape from private ones.
    """
    source, splits = images.source, images.splits
    parts, device = source.parts, source.device
    labels = read_labels(splits.train, "train", parts.dataset)
    units = images.guaranteed_units
    rows_or_units = units.count if units else len(images.private)
    train = load_features(splits, "train", parts.extractor, device)
    if parts.public_dataset is None:
        public = _append_provided_examples(PublicData(train[images.public], labels[images.public]), images)
    else:
        public = _load_public_dataset(images, tuple(train.shape[1:]))
    tail = None if isinstance(parts.extractor, Concat) else parts.extractor.tail()
    task = Task(
        tuple(train.shape[1:]), len(parts.dataset.classes), rows_or_units, device,
        same_source=parts.public_dataset is None, tail=tail,
    )  # fmt: skip
    return ExamplesByRole(
        task,
        PrivateRows(train, labels[images.private], images.private, units),
        PublicData(public.x.to(device, torch.float32), None if public.y is None else public.y.to(device)),
        renumber_units(images.units["public"]),
        images.files,
    )


def select_declared_public_data(public: PublicData, learner: Learner) -> PublicData:
    """Return the part of the public data that the learner declares to read."""
    return PublicData(
        public.x if learner.public != "none" else public.x[:0],
        public.y if learner.public == "labelled" else None,
        public.mirrored if learner.reads_mirrored() else None,
    )


def add_learner_facts_to_task(roles: ExamplesByRole, learner: Learner, metric: str) -> ExamplesByRole:
    """Return the roles with a task that states the metric and the number of public examples that this learner sees."""
    count = len(select_declared_public_data(roles.public, learner).x)
    return dataclasses.replace(roles, task=dataclasses.replace(roles.task, public=count, metric=metric))


def _append_provided_examples(public: PublicData, images: SplitImages) -> PublicData:
    """Append the public examples that the dataset itself provides to the public data."""
    given, source = images.provided_public, images.source
    if given is None:
        return public
    assert public.y is not None
    labels = read_labels(given, "public", source.parts.dataset)
    x = load_features(images.splits, "public", source.parts.extractor, source.device)
    return PublicData(torch.cat([public.x, x]), torch.cat([public.y, labels]))


def _load_public_dataset(images: SplitImages, private_shape: tuple[int, ...]) -> PublicData:
    parts = images.source.parts
    dataset = parts.public_dataset
    assert dataset is not None
    labels = read_labels(images.other.train, "train", dataset)
    x = load_features(images.other, "train", parts.extractor, images.source.device)
    if x.shape[1:] != private_shape:
        raise DataError(
            f"Public dataset {dataset.name!r} gives features of shape {tuple(x.shape[1:])}, the private one "
            f"{private_shape}; expected the same. Use an extractor that resizes, such as pixels:size=32."
        )
    return PublicData(x, labels)
