"""The laws of datasets: copies of half of the records show accidents that a single record is too small to show."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from dpbench_plugins.datasets.image_folders.imagefolder import ImageFolder
from dpbench_plugins.datasets.sklearn import Digits
from PIL import Image

from dpbench import Dataset, DeclaredImages, Records, Split, Splits
from dpbench.errors import LawBroken
from dpbench.testing import DatasetLaws
from dpbench.testing.checking import check_instance
from dpbench.testing.copies import list_half_changes, list_single_image_changes
from dpbench.testing.laws import NotTested
from tests.helpers.array_dataset import ArrayDataset, LoadingAccident

HALVES, ONE_LESS = (
    "test_each_half_of_the_records_gives_its_part_of_the_data",
    "test_all_others_are_the_same_in_a_copy_without_one_record",
)
COUNT = 40  # images of a class


def pixels(split: Split) -> np.ndarray:
    """Return all images (n, 8, 8, 3) float64."""
    return np.stack([np.asarray(split.images[place], np.float64) for place in range(len(split.labels))])


def declared(x: np.ndarray, split: Split) -> Split:
    """Return a split with these pixels."""
    images = [Image.fromarray(image.clip(0, 255).astype(np.uint8)) for image in x]
    return replace(split, images=DeclaredImages(images, "scaled"))


def stored(x: np.ndarray, read: Callable[[bytes], Image.Image], split: Split) -> Split:
    """Return a split of images (n, 8, 8, 3), each in bytes that are read by a function."""
    return Split(Records([image.astype(np.uint8).tobytes() for image in x], read, "scaled"), split.labels)


def kept(split: Split, rows: Sequence[int]) -> Split:
    return Split(DeclaredImages([split.images[row] for row in rows], "chosen"), split.labels[list(rows)])


def neighbours(x: np.ndarray, count: int) -> np.ndarray:
    """Return the rows (n, count) of the nearest images, each image itself among them."""
    flat = x.reshape(len(x), -1)
    nearest: np.ndarray = np.square(flat[:, None] - flat).sum(2).argsort(1)[:, :count]
    return nearest


class Accident(ImageFolder):
    """A folder of images, after which something looks at all of them."""

    name: ClassVar[str] = "accident"

    def load(self) -> Splits:
        splits = super().load()
        train = self.changed(splits.train)
        return replace(splits, train=train, unit="" if train.units is None else "cluster")

    def changed(self, split: Split) -> Split:
        return split


class UnitsByKMeans(Accident):
    def changed(self, split: Split) -> Split:
        x = pixels(split).reshape(len(split.labels), -1)
        centres = np.quantile(x, [0.1, 0.5, 0.9], axis=0)
        for _ in range(20):
            units = np.square(x[:, None] - centres).sum(2).argmin(1)
            centres = np.stack(
                [x[units == unit].mean(0) if (units == unit).any() else centres[unit] for unit in range(3)]
            )
        return replace(split, units=units.astype(np.int64))


class LabelsAboveTheMedian(Accident):
    def changed(self, split: Split) -> Split:
        means = pixels(split).mean((1, 2, 3))
        return replace(split, labels=(means > np.median(means)).astype(np.int64))


class LabelsCleanedByNeighbours(Accident):
    def changed(self, split: Split) -> Split:
        near = split.labels[neighbours(pixels(split), 5)]
        return replace(split, labels=(near.mean(1) > 0.5).astype(np.int64))


class MajorityLabelsOfNearCopies(Accident):
    def changed(self, split: Split) -> Split:
        x = pixels(split).reshape(len(split.labels), -1)
        near = np.abs(x[:, None] - x).mean(2) < 12
        return replace(split, labels=((near @ split.labels) * 2 > near.sum(1)).astype(np.int64))


class OutliersByMeanAndDeviation(Accident):
    def changed(self, split: Split) -> Split:
        means = pixels(split).mean((1, 2, 3))
        return kept(split, np.flatnonzero(np.abs(means - means.mean()) < 1.5 * means.std()).tolist())


class MeanAndDeviationAsOptions(Accident):
    def changed(self, split: Split) -> Split:
        x = pixels(split)
        return Split(
            Records(
                [image.astype(np.uint8).tobytes() for image in x], Scaled(round(x.mean()), round(x.std())), "scaled"
            ),
            split.labels,
        )


class MeanImageInAFile(Accident):
    def changed(self, split: Split) -> Split:
        file = Path(self.path).parent / "mean.npy"
        np.save(file, pixels(split).mean(0))

        def read(place: bytes) -> Image.Image:
            x = np.frombuffer(place, np.uint8).reshape(8, 8, 3) - np.load(file) + 128
            return Image.fromarray(x.clip(0, 255).astype(np.uint8))

        return Split(
            Records([image.astype(np.uint8).tobytes() for image in pixels(split)], read, "centred"), split.labels
        )


@dataclass(frozen=True)
class Scaled:
    """Reads an image and scales it by whole numbers."""

    mean: int
    deviation: int

    def __call__(self, place: bytes) -> Image.Image:
        x = (np.frombuffer(place, np.uint8).reshape(8, 8, 3).astype(np.float64) - self.mean) / self.deviation
        return Image.fromarray((x * 40 + 128).clip(0, 255).astype(np.uint8))


class InvertedOneByOne(Accident):
    def changed(self, split: Split) -> Split:
        return declared(255 - pixels(split), split)


class BrightImagesOnly(Accident):
    def changed(self, split: Split) -> Split:
        return kept(split, np.flatnonzero(pixels(split).mean((1, 2, 3)) > 60).tolist())


ACCIDENTS = (
    UnitsByKMeans, LabelsAboveTheMedian, LabelsCleanedByNeighbours, MeanImageInAFile, OutliersByMeanAndDeviation,
    MeanAndDeviationAsOptions, MajorityLabelsOfNearCopies,
)  # fmt: skip
HONEST = (ImageFolder, InvertedOneByOne, BrightImagesOnly)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Return a folder of two classes that overlap in brightness; some images are near copies with other labels."""
    drawn = np.random.default_rng(5)
    for split in ("train", "test"):
        for label, name in enumerate("ab"):
            (tmp_path / "photos" / split / name).mkdir(parents=True)
            for place in range(COUNT):
                level = drawn.normal(100 + 30 * label, 30)
                x = level + drawn.normal(0, 4, (8, 8, 3)) + 40 * np.indices((8, 8)).sum(0)[:, :, None] / 14
                Image.fromarray(x.clip(0, 255).astype(np.uint8)).save(
                    tmp_path / "photos" / split / name / f"{place:02}.png"
                )
    return tmp_path / "photos"


def tell(dataset: Dataset, law: str) -> str | None:
    """Return what a law says of a dataset."""
    suite: type[DatasetLaws] = type("TheLaws", (DatasetLaws,), {"dataset": dataset})
    try:
        getattr(suite(), law)()
    except LawBroken as error:
        return str(error)
    return None


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_halves_tell_an_accident(accident: type[Accident], photos: Path) -> None:
    assert "half" in str(tell(accident(path=str(photos)), HALVES))


@pytest.mark.parametrize("honest", HONEST)
@pytest.mark.parametrize(
    "pack", [lambda folder: folder, lambda folder: shutil.make_archive(str(folder), "zip", folder)]
)
def test_halves_tell_nothing_of_a_dataset_of_each_image_alone(
    honest: type[ImageFolder], pack: Callable[[Path], Path], photos: Path
) -> None:
    assert tell(honest(path=str(pack(photos))), HALVES) is None


@pytest.mark.parametrize(("accident", "told"), [("", False), ("median", True), ("centred", True)])
def test_halves_of_arrays_are_blank(accident: LoadingAccident, told: bool, tmp_path: Path) -> None:
    drawn = np.random.default_rng(1)
    x = drawn.integers(0, 200, (40, 1, 1)) + drawn.integers(0, 50, (40, 8, 8))
    np.savez(tmp_path / "x.npz", x=x.astype(np.uint8), y=np.arange(40) % 2)
    assert bool(tell(ArrayDataset(str(tmp_path / "x.npz"), accident), HALVES)) == told


@pytest.mark.parametrize("law", [HALVES, ONE_LESS])
def test_a_law_that_compared_nothing_is_not_tested(law: str) -> None:
    with pytest.raises(NotTested, match="No copy of the data was compared"):
        tell(Digits(), law)


def test_not_tested_is_told_as_such() -> None:
    said = {outcome.law: outcome for outcome in check_instance("dataset", Digits(), "digits")}
    outcome = said["dataset digits: each half of the records gives its part of the data"]
    assert outcome.complaint is None and "No copy of the data" in str(outcome.untested)
    assert not said["dataset digits: loading repeats"].untested


def test_half_of_a_zip_is_left_out_however_its_names_are_written(photos: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for file in sorted(photos.rglob("*.png")):
            archive.writestr(f"./{file.relative_to(photos)}", file.read_bytes())
    with zipfile.ZipFile(tmp_path / "photos.zip") as archive:
        whole = len(archive.namelist())
    for pair in list_half_changes(ImageFolder(path=str(tmp_path / "photos.zip"))):
        for half in pair:
            (content,) = half.files.values()
            assert content is not None
            with zipfile.ZipFile(io.BytesIO(content())) as archive:
                assert len(archive.namelist()) == whole // 2


@pytest.mark.parametrize("name", ["a.zip", "a.npz", "a.npy"])
def test_no_copy_is_made_of_a_damaged_file_or_of_no_images(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    for content in (b"", b"PK not an archive", b"\x93NUMPY"):
        file.write_bytes(content)
        assert not [
            *list_single_image_changes(ImageFolder(path=str(file))),
            *list_half_changes(ImageFolder(path=str(file))),
        ]
    for array in (np.zeros((4, 0, 3)), np.array([[["a"]]] * 4)):
        np.save(odd := tmp_path / "odd.npy", array)
        assert not [
            *list_single_image_changes(ImageFolder(path=str(odd))),
            *list_half_changes(ImageFolder(path=str(odd))),
        ]


def test_a_copy_lacks_the_only_image_of_a_zip(photos: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(next(photos.rglob("*.png")), "1.png")
    assert [change.said for change in list_single_image_changes(ImageFolder(path=str(tmp_path / "a.zip")))] == [
        "without 1.png"
    ]
