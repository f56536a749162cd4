"""A dataset in a file of numpy, and the accidents of loading that its laws should notice."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from PIL import Image

from dpbench import Dataset, Records, Split, Splits

LoadingAccident = Literal["", "normalised", "centred", "median"]


@dataclass(frozen=True)
class ArrayDataset(Dataset):
    """Gray images `x` (n, side, side) of an archive of numpy, each a record, with labels `y`.

    The accidents: images divided by the brightest pixel of all, images less the mean of all, and labels that say which
    images are brighter than the median.
    """

    name: ClassVar[str] = "arrays"
    classes: ClassVar[tuple[str, ...]] = ("even", "odd")
    licence: ClassVar[str] = "CC0"
    citation: ClassVar[str] = "none"
    shorthand: ClassVar[str] = "path"

    path: str
    accident: LoadingAccident = ""

    def load(self) -> Splits:
        """Return the images and labels, with the accident."""
        x, y = (np.load(self.path)[name] for name in "xy")
        brightness, side = x.mean((1, 2)), x.shape[1]
        labels = (brightness > np.median(brightness) if self.accident == "median" else y).astype(np.int64)
        if self.accident == "centred":
            x = (x - x.mean() + 128).clip(0, 255).astype(np.uint8)
        elif self.accident == "normalised":
            x = (x / x.max() * 255).astype(np.uint8)
        records = Records([row.tobytes() for row in x], lambda row: Image.frombytes("L", (side, side), row))
        split = Split(records, labels)
        return Splits(split, split, hashlib.sha256(x.tobytes()).hexdigest())
