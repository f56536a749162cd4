"""Datasets in which one image affects others, or occurs more than once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dpbench import Dataset, Records, Split, Splits

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image


PROCESSING = "grey levels 0..16, scaled to 0..255"


def decode_grey_levels(levels: bytes) -> Image:
    """Return the image of 64 grey levels 0..16."""
    import numpy as np
    from PIL import Image

    pixels = np.round(np.frombuffer(levels, np.uint8) * (255 / 16)).astype(np.uint8)
    return Image.fromarray(pixels.reshape(8, 8))


@dataclass(frozen=True)
class HonestDigits(Dataset):
    """Scikit-learn's digits, with one record per image; every fifth image is a test image."""

    name: ClassVar[str] = "exhibit-digits"
    classes: ClassVar[tuple[str, ...]] = tuple("0123456789")
    licence: ClassVar[str] = "CC BY 4.0"
    citation: ClassVar[str] = "Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI 1998"

    def load(self) -> Splits:
        import numpy as np
        from sklearn.datasets import load_digits

        data = load_digits()
        levels, labels = data.images.astype(np.uint8), data.target.astype(np.int64)
        test = np.arange(len(labels)) % 5 == 4
        honest = HonestDigits.split(self, levels[test], labels[test])
        return Splits(self.split(levels[~test], labels[~test]), honest, f"{type(self).__name__} {len(labels)}")

    def split(self, levels: np.ndarray, labels: np.ndarray) -> Split:
        """Return a split of images with grey levels 0..16 (n, 8, 8) uint8 and labels (n,)."""
        return Split(Records([level.tobytes() for level in levels], decode_grey_levels, PROCESSING), labels)


@dataclass(frozen=True)
class PrivateImagesAsPublicData(HonestDigits):
    """Provides the private images as public data, in another order and under another name.

    Source: made for the museum: one dataset in two packagings, as CIFAR-10 is available as pickles, as Parquet files
    and as folders of PNGs. `public-only` learned from it at "epsilon 0: no private example was read".
    """

    def split(self, levels: np.ndarray, labels: np.ndarray) -> Split:
        return super().split(levels[::-1], labels[::-1])


@dataclass(frozen=True)
class DivisionByTheBrightestImage(HonestDigits):
    """Divides every image by the brightest pixel of all images, so one more image changes all rows.

    Source: `MinMaxScaler` and `MaxAbsScaler` of scikit-learn, fitted on the training split before a private fit, and `x
    / x.max()` in the first lines of many notebooks.
    """

    def split(self, levels: np.ndarray, labels: np.ndarray) -> Split:
        import numpy as np
        from PIL import Image

        most = float(levels.max())

        def decode_record(record: bytes) -> Image.Image:
            pixels = np.frombuffer(record, np.uint8).reshape(8, 8) * (255 / most)
            return Image.fromarray(pixels.astype(np.uint8))

        return Split(Records([level.tobytes() for level in levels], decode_record, PROCESSING), labels)


@dataclass(frozen=True)
class RunningMeanInTheLoader(HonestDigits):
    """Subtracts the mean of the images read so far.

    Source: running statistics in data loaders, such as the normalising wrappers of reinforcement learning.
    """

    seen: list[float] = field(default_factory=list, repr=False)

    def split(self, levels: np.ndarray, labels: np.ndarray) -> Split:
        import numpy as np
        from PIL import Image

        def decode_record(record: bytes) -> Image.Image:
            pixels = np.frombuffer(record, np.uint8).reshape(8, 8) * (255 / 16)
            self.seen.append(pixels.mean())
            return Image.fromarray((pixels - np.mean(self.seen)).clip(0, 255).astype(np.uint8))

        return Split(Records([level.tobytes() for level in levels], decode_record, PROCESSING), labels)


@dataclass(frozen=True)
class OversamplingOfARareClass(HonestDigits):
    """Lists each image of the rarest class eight times: clips and noise are for a row, and an image has eight.

    Source: `RandomOverSampler` of imbalanced-learn, and copies of rare classes, before a private fit.
    """

    def split(self, levels: np.ndarray, labels: np.ndarray) -> Split:
        import numpy as np

        times = np.where(labels == np.bincount(labels).argmin(), 8, 1)
        return super().split(levels.repeat(times, axis=0), labels.repeat(times))


def read_photo(file: Path) -> Image:
    """Decode one photo."""
    from PIL import Image

    with Image.open(file) as photo:
        return photo.convert("RGB")


@dataclass(frozen=True)
class PhotosInFolders(Dataset):
    """Photos in one folder per class: train/CLASS/PHOTO and test/CLASS/PHOTO."""

    name: ClassVar[str] = "exhibit-photos"
    classes: ClassVar[tuple[str, ...]] = ("cats", "dogs")
    licence: ClassVar[str] = "as stated by its owner"
    citation: ClassVar[str] = "as stated by its owner"
    shorthand: ClassVar[str] = "path"

    path: str

    def load(self) -> Splits:
        return Splits(
            self.split(self.list_photos("train")), PhotosInFolders.split(self, self.list_photos("test")), self.path
        )

    def list_photos(self, split: str) -> list[list[Path]]:
        """Return the files of a split, class by class."""
        return [sorted((Path(self.path) / split / name).iterdir()) for name in self.classes]

    def split(self, photos: Sequence[Sequence[Path]]) -> Split:
        """Return a split of photos that are given class by class."""
        import numpy as np

        labels = [label for label, files in enumerate(photos) for _ in files]
        return Split(Records([file for files in photos for file in files], read_photo), np.array(labels, np.int64))


@dataclass(frozen=True)
class BalancingToTheSmallestClass(PhotosInFolders):
    """Keeps as many images per class as the smallest class has, so one more image there adds one to every class.

    Source: `RandomUnderSampler` of imbalanced-learn, and balanced subsets, before a private fit.
    """

    def split(self, photos: Sequence[Sequence[Path]]) -> Split:
        least = min(map(len, photos))
        return super().split([files[:least] for files in photos])


@dataclass(frozen=True)
class RemovalOfLookalikes(PhotosInFolders):
    """Removes images with the same mean colour as an earlier one, so the images kept depend on each other.

    Source: perceptual hashes that remove near-duplicates from a training set, before a private fit.
    """

    def split(self, photos: Sequence[Sequence[Path]]) -> Split:
        kept = [{read_photo(file).reduce(8).tobytes(): file for file in files} for files in photos]
        return super().split([[*files.values()] for files in kept])


@dataclass(frozen=True)
class LabelsCutAtTheMedian(PhotosInFolders):
    """Labels each image by whether it is brighter than the median image, so one more image changes labels of others.

    Source: tasks made from ages, scores and measurements by cutting them at the median of the training set.
    """

    def split(self, photos: Sequence[Sequence[Path]]) -> Split:
        import numpy as np

        levels = np.array([np.asarray(read_photo(file)).mean() for files in photos for file in files])
        return replace(super().split(photos), labels=(levels > np.median(levels)).astype(np.int64))


@dataclass(frozen=True)
class ClassesFromPrivateLabels(PhotosInFolders):
    """Takes its classes from the labels that occur, so the only image of a class decides the shape of every answer.

    Source: `classes = np.unique(y)` in diffprivlib (issue 106, open in 2026) and in dpmm (2602.17454).
    """

    def __post_init__(self) -> None:
        found = tuple(sorted({file.parent.name for file in (Path(self.path) / "train").glob("*/*.png")}))
        object.__setattr__(self, "classes", found)


@dataclass(frozen=True)
class SettingsLaunderedByResizing(HonestDigits):
    """Chooses settings on the private images at twice their size, and presents them as found on other data.

    Source: made for the museum: hashes of images recognise only equal pixels. 128 of the 144 images used to choose the
    settings are private.
    """

    def split(self, levels: np.ndarray, labels: np.ndarray) -> Split:
        return Split(
            Records(
                [level.tobytes() for level in levels],
                lambda record: decode_grey_levels(record).resize((16, 16)),
                PROCESSING,
            ),
            labels,
        )
