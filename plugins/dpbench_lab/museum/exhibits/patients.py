"""Digits of made-up patients, some with several images, and a split that divides the images of a patient."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from dpbench import Splits
from dpbench_lab.museum.exhibits.datasets import HonestDigits

if TYPE_CHECKING:
    import numpy as np

LARGEST = 8
"""The number of images of the patient with the most."""
MOST_LABELS = 7
"""The largest number of distinct labels among one patient's images."""


def assign_owners(size: int) -> np.ndarray:
    """Return the owner of each image, (size,) int64: every second patient has one image, the others up to `LARGEST`."""
    import numpy as np

    sizes = np.tile([1, 2, 1, 4, 1, LARGEST], size)
    of = np.repeat(np.arange(len(sizes)), sizes)[:size]
    return of[np.random.default_rng(0).permutation(size)]


@dataclass(frozen=True)
class PatientDigits(HonestDigits):
    """Scikit-learn's digits, divided among patients with one to eight images each."""

    name: ClassVar[str] = "exhibit-patients"

    def load(self) -> Splits:
        splits = super().load()
        train = replace(splits.train, units=assign_owners(len(splits.train.labels)))
        return replace(splits, train=train, unit="patient", digest=f"{splits.digest}, of patients")


@dataclass(frozen=True)
class SplitThatCutsPatients(PatientDigits):
    """Makes every fifth image public, although many of these patients have private images too.

    Source: random splits of X-rays and dermoscopic images by file, where folders name the patient or the lesion.
    """

    def load(self) -> Splits:
        import numpy as np
        from sklearn.datasets import load_digits

        splits, data = super().load(), load_digits()
        whose, train = splits.train.units, np.flatnonzero(np.arange(len(data.target)) % 5 < 4)
        assert whose is not None
        levels, labels = data.images[train].astype(np.uint8), data.target[train].astype(np.int64)
        fifth = np.arange(len(train)) % 5 == 0
        public, private = (
            replace(self.split(levels[some], labels[some]), units=whose[some]) for some in (fifth, ~fifth)
        )
        return replace(splits, train=private, public=public, digest=f"{splits.digest}, cut")
