"""Datasets that ship with scikit-learn: always available, offline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpbench import Dataset, Splits, hookimpl
from dpbench_plugins.datasets.digits import open_digits


@dataclass(frozen=True)
class Digits(Dataset):
    """The 1,797 handwritten digits, 8x8, of scikit-learn.

    No split is published; here every fifth image is a test image, whatever the seed. Grey levels 0..16 are scaled to
    0..255.
    """

    name = "digits"
    classes = tuple("0123456789")
    licence = "CC BY 4.0"
    citation = "Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI 1998"

    def load(self) -> Splits:
        """Open the two splits: 1,438 training and 359 test images."""
        return open_digits()


@hookimpl
def dpbench_datasets() -> Sequence[type[Dataset]]:
    """Register the datasets of this module."""
    return [Digits]
