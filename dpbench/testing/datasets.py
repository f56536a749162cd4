"""The laws of a dataset."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from PIL.Image import Image

from dpbench.api import Dataset, Split
from dpbench.errors import LawBroken
from dpbench.testing.laws import Laws, expect


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
        """A result names the classes, and under which licence and from whom the data is."""
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

    def test_images_decode_one_at_a_time(self) -> None:
        """Any image can be had by index, twice the same."""
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

    def _splits(self) -> list[tuple[str, Split]]:
        splits = self.subject().load()
        named = [("train", splits.train), ("test", splits.test)]
        return [(name, split) for name, split in named if name == "train" or len(split.images)]  # some have no test
