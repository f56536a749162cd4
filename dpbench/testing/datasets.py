"""The laws of a dataset."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from PIL.Image import Image

from dpbench.api import Dataset, Split
from dpbench.data.groups import check_groups, take_groups
from dpbench.data.keys import identify_images
from dpbench.data.reading import PerImage, return_unchanged
from dpbench.data.units import check_units
from dpbench.errors import DataError, LawBroken
from dpbench.testing.copies import changed_copy, list_changes
from dpbench.testing.laws import Laws, expect

MAX_PICKED = 32  # images of a split that are read again


@dataclass(frozen=True)
class Neighbour:
    """A dataset over a copy of its data that differs in a single record."""

    said: str  # such as "without 07.png"
    opened: AbstractContextManager[Dataset]
    replaces: bool = False  # another record stands at its place; else it is missing


class DatasetLaws(Laws):
    """Inherit and set `dataset`. The data must be on this machine; a missing dataset breaks the laws."""

    dataset: ClassVar[Dataset]

    def subject(self) -> Dataset:
        """Return the dataset under test."""
        dataset = getattr(type(self), "dataset", None)
        if not isinstance(dataset, Dataset):
            raise LawBroken(
                f"Set `dataset = YourDataset(...)` in {type(self).__name__}; a suite without one tests nothing."
            )
        return dataset

    def test_classes_licence_and_citation_are_stated(self) -> None:
        """A dataset names its classes, its licence and its source, which results state."""
        dataset = self.subject()
        expect(len(set(dataset.classes)) == len(dataset.classes) >= 2, "Expected two or more classes, each once.")
        expect(bool(dataset.licence and dataset.citation), "Expected a licence and a citation.")

    def test_labels_fit_the_classes(self) -> None:
        """Labels are int64, one per image, within the classes; every class can be learned."""
        for name, split in self._splits():
            labels, classes = split.labels, len(self.subject().classes)
            expect(
                labels.dtype == np.int64 and labels.shape == (len(split.images),),
                f"{name}: labels do not match images.",
            )
            expect(bool(((labels >= 0) & (labels < classes)).all()), f"{name}: labels outside 0..{classes - 1}.")
        train = self.subject().load().train.labels
        expect(len(np.unique(train)) == len(self.subject().classes), "A class has no training example.")

    def test_units_fit_the_examples(self) -> None:
        """A dataset that knows the unit of each example numbers the units, one number per image, and names the unit."""
        splits, default = self.subject().load(), self.subject().default_unit()
        try:
            check_units(splits, len(self.subject().classes), f"dataset {self.subject().name!r}")
        except DataError as error:
            raise LawBroken(str(error)) from error
        expect(
            not splits.unit or default == splits.unit,
            f"The images are numbered by {splits.unit}, and epsilon is by default one {default}'s. Return "
            f"{splits.unit!r} from default_unit().",
        )

    def test_groups_fit_the_test_images(self) -> None:
        """A dataset with groups has few of each column, and a short text for each test image."""
        try:
            check_groups(self.subject().load().test, f"test split of dataset {self.subject().name!r}")
        except DataError as error:
            raise LawBroken(str(error)) from error

    def test_images_decode_one_at_a_time(self) -> None:
        """Any image can be read by index, and reading it twice gives the same image."""
        for name, split in self._splits():
            for index in (0, len(split.images) // 2, len(split.images) - 1):
                first, second = split.images[index], split.images[index]
                expect(isinstance(first, Image), f"{name}: image {index} is a {type(first).__name__}, not a PIL image.")
                expect(first.tobytes() == second.tobytes(), f"{name}: image {index} differs when read twice.")

    def test_loading_repeats(self) -> None:
        """Loading twice gives the same digest and labels: the digest names the data."""
        first, second = self.subject().load(), self.subject().load()
        expect(bool(first.digest) and first.digest == second.digest, "The digest changes between loads.")
        expect(np.array_equal(first.train.labels, second.train.labels), "Training labels change between loads.")
        units = [None if splits.train.units is None else splits.train.units.tolist() for splits in (first, second)]
        expect(units[0] == units[1], "The units of the training examples change between loads.")
        groups = [_listed_groups(splits.test) for splits in (first, second)]
        expect(groups[0] == groups[1], "The groups of the test images change between loads.")

    def test_how_images_come_about_is_declared(self) -> None:
        """Each image is read from its own record, or the dataset declares how each image was processed."""
        for name, split in self._splits():
            expect(
                bool(split.processing),
                f"{name}: nobody can see how these images were made. List files as `Records`; of images in memory "
                "(`DeclaredImages`, or `Records` of bytes) say in `processing` what was done to each.",
            )

    def test_an_image_is_read_from_its_record_alone(self) -> None:
        """An image is the same when read after a fresh load in reverse order, so reading remembers nothing."""
        again = dict(self._splits())
        for name, split in self._splits():
            first, second = (
                PerImage(part.images, return_unchanged, "Reading records") for part in (split, again[name])
            )
            picked = _pick_indices(len(split.images))
            read = dict(zip(picked, map(_image_content, first(picked, thorough=True)), strict=True))
            for index in reversed(picked):
                same = read[index] == _image_content(second([index], thorough=True)[0])
                expect(same, f"{name}: image {index} follows from the images that were read before it.")

    def test_keys_tell_images_apart(self) -> None:
        """Images with equal keys (`Records.keys`) are equal, and keys are the same after a fresh load."""
        again = dict(self._splits())
        for name, split in self._splits():
            found, second = (identify_images(part, "", name).keys for part in (split, again[name]))
            if found is None or second is None:
                continue
            expect(np.array_equal(found, second), f"{name}: the keys of images change between loads.")
            images: dict[bytes, tuple[str, tuple[int, int], bytes]] = {}
            for index in _pick_indices(len(split.images)):
                content = _image_content(split.images[index])
                same = images.setdefault(found[index].tobytes(), content) == content
                expect(same, f"{name}: image {index} shares the key of another image: use SHA-256 of its stored bytes.")

    def test_all_others_are_the_same_in_a_copy_without_one_record(self) -> None:
        """In a copy of the data without one image, every other image and its label are the same, bit for bit.

        Only for data whose loader accepts such a copy: a loader that requires a published checksum does not.
        """
        whole = self.subject().load().train
        for neighbour in self.neighbours():
            with neighbour.opened as copy:
                try:
                    train = copy.load().train
                except DataError:  # as published or not at all
                    continue
                expect_single_change(whole, train, neighbour.said, replaced=neighbour.replaces)

    def neighbours(self) -> Iterator[Neighbour]:
        """Yield the dataset over copies of its data in which a single record is missing or blank.

        By default these are copies of folders and zips of image files, and of numpy arrays. Override it in a suite for
        data that are stored otherwise: removing a record reveals what no other law does.
        """
        for change in list_changes(self.subject()):
            yield Neighbour(change.said, changed_copy(self.subject(), change), change.replaces)

    def _splits(self) -> list[tuple[str, Split]]:
        splits = self.subject().load()
        named = [("train", splits.train), ("test", splits.test)]
        return [(name, split) for name, split in named if name == "train" or len(split.images)]  # some have no test


def _listed_groups(split: Split) -> dict[str, list[str]]:
    return {column: values.tolist() for column, values in take_groups(split.groups).items()}


def _pick_indices(size: int) -> list[int]:
    return sorted({round(place) for place in np.linspace(0, size - 1, min(size, MAX_PICKED))})


def expect_single_change(whole: Split, changed: Split, said: str, *, replaced: bool) -> None:
    """Check that at most a single image is missing from a copy, and that all other images are the same.

    Raises:
        LawBroken: names the change and the first image that follows from others.
    """
    gone = len(whole.labels) - len(changed.labels)
    expect(gone in (0, 1), f"In a copy {said}, {gone} images are gone: which are kept follows from others.")
    others = []
    for index in _pick_indices(len(changed.labels)):
        places = range(index, index + gone + 1)
        if _labelled_content(changed, index) not in [_labelled_content(whole, place) for place in places]:
            others.append(index)
    if len(others) > replaced:
        raise LawBroken(f"In a copy {said}, image {others[-1]} or its label is another one: it follows from others.")


def _image_content(image: Image) -> tuple[str, tuple[int, int], bytes]:
    return image.mode, image.size, image.tobytes()


def _labelled_content(split: Split, index: int) -> tuple[int, tuple[str, tuple[int, int], bytes]]:
    return int(split.labels[index]), _image_content(split.images[index])
