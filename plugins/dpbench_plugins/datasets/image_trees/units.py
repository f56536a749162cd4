"""Units of a tree's images, such as patients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dpbench import Splits
from dpbench_plugins.datasets.image_trees.listing import ImageFile

if TYPE_CHECKING:
    import numpy as np


def add_units(
    splits: Splits, files: Sequence[ImageFile], unit: str, owner: Callable[[ImageFile], str | None]
) -> Splits:
    """Return splits with the unit of each image, or unchanged if the unit of any training image is unknown.

    If only the unit of a test image is unknown, the training split has units and the test split has none.

    Args:
        splits: what `open_splits` returned for these files.
        files: the files, in the order of each split.
        unit: the word for an owner.
        owner: returns the name of an image's owner, or None if unknown; equal names in both splits are the same owner.
    """
    train, test = ([owner(file) for file in files if file.split == name] for name in ("train", "test"))
    if None in train:
        return splits
    names = sorted({name for name in (*train, *test) if name is not None})
    number = {name: place for place, name in enumerate(names)}
    return dataclasses.replace(
        splits,
        train=dataclasses.replace(splits.train, units=_convert_owners_to_numbers(train, number)),
        test=dataclasses.replace(splits.test, units=None if None in test else _convert_owners_to_numbers(test, number)),
        unit=unit,
    )


def _convert_owners_to_numbers(owners: Sequence[str | None], index_of: dict[str, int]) -> np.ndarray:
    import numpy as np

    return np.array([index_of[name] for name in owners if name is not None], dtype=np.int64)
