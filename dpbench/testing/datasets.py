"""The laws of a dataset."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from PIL.Image import Image

from dpbench.api import Dataset, Split
from dpbench.data.groups import check_group_columns, select_group_values
from dpbench.data.keys import identify_images
from dpbench.data.reading import ImageMapper, return_image_unchanged
from dpbench.data.units import check_units
from dpbench.errors import DataError, LawBroken
from dpbench.testing.copies import list_half_changes, list_single_image_changes, open_changed_copy
from dpbench.testing.laws import Laws, NotTested, expect

MAX_PICKED = 32  # images of a split that are read again
MAX_COMPARED = 2_000  # images of arrays that are compared with those of halves
NO_COPY = (
    "No copy of the data was compared: they are not a folder, a zip or arrays of numpy, are too many, or load only as "
    "published. Keep each image in a file"
)


@dataclass(frozen=True)
class NeighbourDataset:
    """A copy of a dataset in which one record, or half of the records, is missing or blank."""

    said: str  # such as "without 07.png"
    opened: AbstractContextManager[Dataset]
    replaces: bool = False  # other records stand in their places; else they are missing


class DatasetLaws(Laws):
    """The laws of a dataset: inherit and set `dataset`. The laws fail if the data are not on this machine."""

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
        """A dataset states its classes, its licence and its source; results quote them."""
        dataset = self.subject()
        expect(len(set(dataset.classes)) == len(dataset.classes) >= 2, "Expected two or more classes, each once.")
        expect(bool(dataset.licence and dataset.citation), "Expected a licence and a citation.")

    def test_labels_fit_the_classes(self) -> None:
        """There is an int64 label for each image, in the range of the classes, and each class has training examples."""
        for name, split in self._load_splits():
            labels, classes = split.labels, len(self.subject().classes)
            expect(
                labels.dtype == np.int64 and labels.shape == (len(split.images),),
                f"{name}: labels do not match images.",
            )
            expect(bool(((labels >= 0) & (labels < classes)).all()), f"{name}: labels outside 0..{classes - 1}.")
        train = self.subject().load().train.labels
        expect(len(np.unique(train)) == len(self.subject().classes), "A class has no training example.")

    def test_units_fit_the_examples(self) -> None:
        """A dataset with units gives each image the number of its unit, and names the kind of unit."""
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
        """A dataset with groups has few groups per column, and a short text for each test image."""
        try:
            check_group_columns(self.subject().load().test, f"test split of dataset {self.subject().name!r}")
        except DataError as error:
            raise LawBroken(str(error)) from error

    def test_images_decode_one_at_a_time(self) -> None:
        """Any image can be read by its index, and reading it twice gives the same image."""
        for name, split in self._load_splits():
            for index in (0, len(split.images) // 2, len(split.images) - 1):
                first, second = split.images[index], split.images[index]
                expect(isinstance(first, Image), f"{name}: image {index} is a {type(first).__name__}, not a PIL image.")
                expect(first.tobytes() == second.tobytes(), f"{name}: image {index} differs when read twice.")

    def test_loading_repeats(self) -> None:
        """Loading twice gives the same digest, labels, units and groups, so the digest identifies the data."""
        first, second = self.subject().load(), self.subject().load()
        expect(bool(first.digest) and first.digest == second.digest, "The digest changes between loads.")
        expect(np.array_equal(first.train.labels, second.train.labels), "Training labels change between loads.")
        units = [None if splits.train.units is None else splits.train.units.tolist() for splits in (first, second)]
        expect(units[0] == units[1], "The units of the training examples change between loads.")
        groups = [_convert_groups_to_lists(splits.test) for splits in (first, second)]
        expect(groups[0] == groups[1], "The groups of the test images change between loads.")

    def test_how_images_come_about_is_declared(self) -> None:
        """Each image is read from its own record, or the dataset declares how each image was processed."""
        for name, split in self._load_splits():
            expect(
                bool(split.processing),
                f"{name}: nobody can see how these images were made. List files as `Records`; of images in memory "
                "(`DeclaredImages`, or `Records` of bytes) say in `processing` what was done to each.",
            )

    def test_an_image_is_read_from_its_record_alone(self) -> None:
        """An image is the same after a fresh load and in reverse order: reading it keeps no state."""
        again = dict(self._load_splits())
        for name, split in self._load_splits():
            first, second = (
                ImageMapper(part.images, return_image_unchanged, "Reading records") for part in (split, again[name])
            )
            picked = _pick_evenly_spaced_indices(len(split.images))
            read = dict(zip(picked, map(_read_image_content, first(picked, thorough=True)), strict=True))
            for index in reversed(picked):
                same = read[index] == _read_image_content(second([index], thorough=True)[0])
                expect(same, f"{name}: image {index} follows from the images that were read before it.")

    def test_keys_tell_images_apart(self) -> None:
        """Only equal images have equal keys (`Records.keys`), and keys are the same after a fresh load."""
        again = dict(self._load_splits())
        for name, split in self._load_splits():
            found, second = (identify_images(part, "", name).keys for part in (split, again[name]))
            if found is None or second is None:
                continue
            expect(np.array_equal(found, second), f"{name}: the keys of images change between loads.")
            images: dict[bytes, tuple[str, tuple[int, int], bytes]] = {}
            for index in _pick_evenly_spaced_indices(len(split.images)):
                content = _read_image_content(split.images[index])
                same = images.setdefault(found[index].tobytes(), content) == content
                expect(same, f"{name}: image {index} shares the key of another image: use SHA-256 of its stored bytes.")

    def test_all_others_are_the_same_in_a_copy_without_one_record(self) -> None:
        """In a copy of the data without one image, all other images and labels are the same, bit for bit.

        The law skips copies that the loader refuses, for example because it checks a published checksum.
        """
        whole, compared = self.subject().load().train, 0
        for neighbour in self.neighbours():
            with neighbour.opened as copy:
                try:
                    train = copy.load().train
                except DataError:  # as published or not at all
                    continue
                expect(
                    copy.classes == self.subject().classes,
                    f"In a copy {neighbour.said}, the classes are others: they follow from private labels, and every "
                    "answer has a row for each class. State the classes in the dataset.",
                )
                expect_at_most_one_changed_image(whole, train, neighbour.said, replaced=neighbour.replaces)
                compared += 1
        if not compared:
            raise NotTested(f"{NO_COPY}, or override neighbours().")

    def test_each_half_of_the_records_gives_its_part_of_the_data(self) -> None:
        """A copy with only the brighter half of the records holds that half of the images, labels and units unchanged.

        The same holds for the darker half, and for two halves chosen by a hash of each record. Together, the two halves
        give the whole. The law skips copies that the loader refuses.
        """
        whole = list_compared_examples(self.subject().load().train)
        compared = 0
        for pair in self.halves():
            halves = []
            for half in pair:
                with half.opened as copy, suppress(DataError):
                    train = copy.load().train
                    if copy.classes == self.subject().classes:
                        halves.append(list_compared_examples(train))
            if len(halves) == 2:
                said = f"In copies {pair[0].said} and {pair[1].said}"
                (expect_unblanked_half_unchanged if pair[0].replaces else expect_halves_form_whole)(whole, halves, said)
                compared += 1
        if not compared:
            raise NotTested(f"{NO_COPY}, or override halves().")

    def neighbours(self) -> Iterator[NeighbourDataset]:
        """Yield copies of the dataset, each with a single record missing or blank.

        By default, the copies are of folders and zips of image files, and of numpy arrays. Override this method in a
        suite for data that is stored in another form: removing a record reveals faults that no other law does.
        """
        for change in list_single_image_changes(self.subject()):
            yield NeighbourDataset(change.said, open_changed_copy(self.subject(), change), change.replaces)

    def halves(self) -> Iterator[tuple[NeighbourDataset, NeighbourDataset]]:
        """Yield pairs of copies: the first lacks one half of the records (or has it blank), the second the other half.

        By default, the copies are those of folders and zips of at most 2,000 image files, and of numpy arrays. Override
        this method as you override `neighbours`, and choose halves by the content of records.
        """
        for pair in list_half_changes(self.subject()):
            first, second = (
                NeighbourDataset(change.said, open_changed_copy(self.subject(), change), change.replaces)
                for change in pair
            )
            yield first, second

    def _load_splits(self) -> list[tuple[str, Split]]:
        splits = self.subject().load()
        named = [("train", splits.train), ("test", splits.test)]
        return [(name, split) for name, split in named if name == "train" or len(split.images)]  # some have no test


def _convert_groups_to_lists(split: Split) -> dict[str, list[str]]:
    return {column: values.tolist() for column, values in select_group_values(split.groups).items()}


def _pick_evenly_spaced_indices(size: int, max_count: int = MAX_PICKED) -> list[int]:
    return sorted({round(place) for place in np.linspace(0, size - 1, min(size, max_count))})


def expect_at_most_one_changed_image(whole: Split, changed: Split, copy_description: str, *, replaced: bool) -> None:
    """Check that a copy lacks or replaces at most one image, and that all other images are the same.

    Raises:
        LawBroken: an image depends on others; the message names the change and the image.
    """
    gone = len(whole.labels) - len(changed.labels)
    expect(gone in (0, 1), f"In a copy {copy_description}, {gone} images are gone: which are kept follows from others.")
    others = []
    for index in _pick_evenly_spaced_indices(len(changed.labels)):
        places = range(index, index + gone + 1)
        if _read_labelled_content(changed, index) not in [_read_labelled_content(whole, place) for place in places]:
            others.append(index)
    if len(others) > replaced:
        raise LawBroken(
            f"In a copy {copy_description}, image {others[-1]} or its label is another one: it follows from others."
        )


class ComparedExample(NamedTuple):
    """An example of a split: the fields that are compared between copies."""

    label: int
    image: str  # digest of mode, size and pixels
    unit: int | None


def list_compared_examples(split: Split) -> list[ComparedExample]:
    """Return the examples of a split, or `MAX_COMPARED` evenly spaced examples if it has more."""
    size = len(split.labels)
    return [
        ComparedExample(
            int(split.labels[index]),
            hashlib.sha256(repr(_read_image_content(split.images[index])).encode()).hexdigest(),
            None if split.units is None else int(split.units[index]),
        )
        for index in _pick_evenly_spaced_indices(size, MAX_COMPARED)
    ]


def expect_halves_form_whole(
    whole: Sequence[ComparedExample], halves: Sequence[Sequence[ComparedExample]], copy_description: str
) -> None:
    """Check that two halves of the records together give the examples and units of the whole.

    Raises:
        LawBroken: an example depends on other records; the message names the copies.
    """
    both = [example for half in halves for example in half]
    expect(
        len(both) == len(whole),
        f"{copy_description}, there are {len(both)} images of {len(whole)}: which are kept follows from others.",
    )
    pairs = ([(example.label, example.image) for example in examples] for examples in (both, whole))
    first, second = map(Counter, pairs)
    expect(first == second, f"{copy_description}, an image or its label is another one: it follows from others.")
    counts = Counter(example.image for example in whole)
    units = {example.image: example.unit for example in whole if counts[example.image] == 1}
    for half in halves:
        _expect_same_units(
            [(units[example.image], example.unit) for example in half if example.image in units], copy_description
        )


def expect_unblanked_half_unchanged(
    whole: Sequence[ComparedExample], halves: Sequence[Sequence[ComparedExample]], copy_description: str
) -> None:
    """Check that blanking one half of the records leaves every example of the other half unchanged.

    Raises:
        LawBroken: an example depends on other records; the message names the copies.
    """
    expect(
        all(len(half) == len(whole) for half in halves),
        f"{copy_description}, which images are kept follows from others.",
    )
    for place, example in enumerate(whole):
        same = any(example[:2] == half[place][:2] for half in halves)
        expect(same, f"{copy_description}, image {place} or its label is another one: it follows from others.")
    for half in halves:
        kept = [pair for pair in zip(whole, half, strict=True) if pair[0].image == pair[1].image]
        _expect_same_units([(example.unit, other.unit) for example, other in kept], copy_description)


def _expect_same_units(pairs: Sequence[tuple[int | None, int | None]], copy_description: str) -> None:
    """Check that examples share a unit in a copy if and only if they do in the whole; unit numbers may differ."""
    ours, theirs = ({pair[place] for pair in pairs} for place in (0, 1))
    expect(
        len(set(pairs)) == len(ours) == len(theirs),
        f"{copy_description}, images have other units: they follow from others.",
    )


def _read_image_content(image: Image) -> tuple[str, tuple[int, int], bytes]:
    return image.mode, image.size, image.tobytes()


def _read_labelled_content(split: Split, index: int) -> tuple[int, tuple[str, tuple[int, int], bytes]]:
    return int(split.labels[index]), _read_image_content(split.images[index])
