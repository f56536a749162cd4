"""Groups of images for reporting accuracy, such as sex, age band or source."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from dpbench import Splits
from dpbench_plugins.datasets.image_trees.listing import ImageFile

YOUNG, OLD = 40, 70  # years: where bands of ten years begin and end


def age_band(age: str) -> str:
    """Return the ten-year band of an age in years, such as 40-49; empty if the age is not a number.

    >>> [age_band(age) for age in ("39", "45.0", "70", "unknown")]
    ['under 40', '40-49', '70 or older', '']
    """
    try:
        years = int(float(age))
    except ValueError:
        return ""
    decade = years // 10 * 10
    return f"under {YOUNG}" if years < YOUNG else f"{OLD} or older" if years >= OLD else f"{decade}-{decade + 9}"


def add_groups(
    splits: Splits, files: Sequence[ImageFile], describe: Callable[[ImageFile], Mapping[str, str]]
) -> Splits:
    """Return the splits, with the groups of the test images added to the test split.

    Args:
        splits: what `open_splits` returned for these files.
        files: the files, in the order of each split.
        describe: returns the text of each column for an image, the same columns for all; empty where it is unknown. A
            column that is empty for every image is left out.
    """
    import numpy as np

    rows = [describe(file) for file in files if file.split == "test"]
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    groups = {name: np.array(texts) for name, texts in columns.items() if any(texts)}
    return dataclasses.replace(splits, test=dataclasses.replace(splits.test, groups=groups or None))
