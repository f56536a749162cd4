"""Thirty accidents of datasets, readers, notebooks and public data (`accidents.toml`), each with what stops it.

The names and descriptions were written down before anybody looked at what stops them. Every accident that nothing
stops is on the list of what epsilon does not cover.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from dpbench import DeclaredImages, Records, Split, Splits
from dpbench.errors import DataError, PrivacyError, SpecError
from dpbench.harness.roles import extract_examples_by_role
from dpbench.testing.checking import check_instance
from tests.harness.test_roles import Flat, deal
from tests.helpers.accidents import ACCIDENTS, NOT_COVERED
from tests.testing.test_accidents_of_runs import NOTEBOOKS, PUBLIC
from tests.testing.test_datasets import Accident, declared, kept

pytestmark = pytest.mark.usefixtures("fresh_cache")

Pixels = NDArray[np.float64]
COUNTS = {"a": 40, "b": 28, "c": 12}  # images of each class
BLACK, GREY = np.zeros((8, 8, 3)), np.full((8, 8, 3), 60.0)
SPECIAL = {(0, 3): BLACK, (1, 5): GREY, (2, 5): GREY}  # by class and place
LAWS_OF_CODE = ("importing is light and offline", "only the contract is imported")  # this file breaks them


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Return a folder of three classes of unequal size; a few images are larger, one is black, two are equal."""
    drawn = np.random.default_rng(5)
    for split in ("train", "test"):
        for label, (name, count) in enumerate(COUNTS.items()):
            folder = tmp_path / "photos" / split / name
            folder.mkdir(parents=True)
            for place in range(count):
                side = 9 if place % 5 == 4 else 8
                x = drawn.normal(90 + 20 * label, 30) + drawn.normal(0, 4, (side, side, 3))
                x += 40 * np.indices((side, side)).sum(0)[:, :, None] / 14
                x = SPECIAL.get((label, place), x)
                Image.fromarray(x.clip(0, 255).astype(np.uint8)).save(folder / f"{place:02}.png")
    return tmp_path / "photos"


def list_images(split: Split) -> list[Image.Image]:
    return [split.images[row] for row in range(len(split.labels))]


def small(split: Split) -> Pixels:
    """Return all images at 8 x 8, (n, 8, 8, 3)."""
    return np.stack([np.asarray(image.resize((8, 8)), np.float64) for image in list_images(split)])


# Datasets: each function takes a split and returns it with the accident


def undersample(split: Split) -> Split:
    least = np.bincount(split.labels).min()
    return kept(split, sorted(int(row) for label in range(3) for row in np.flatnonzero(split.labels == label)[:least]))


def merge_rare_classes(split: Split) -> Split:
    rare = np.bincount(split.labels, minlength=3) < 20
    return replace(split, labels=np.where(rare[split.labels], 2, split.labels))


def drop_identical(split: Split) -> Split:
    first: dict[bytes, int] = {}
    for row, image in enumerate(list_images(split)):
        first.setdefault(image.tobytes(), row)
    return kept(split, sorted(first.values()))


def number_by_frequency(split: Split) -> Split:
    order = np.argsort(-np.bincount(split.labels, minlength=3), kind="stable")
    return replace(split, labels=np.argsort(order)[split.labels])


def fill_labels(split: Split) -> Split:
    unknown = small(split)[:, 0, 0, 0].astype(int) % 4 == 0
    common = np.bincount(split.labels[~unknown], minlength=3).argmax()
    return replace(split, labels=np.where(unknown, common, split.labels))


def weigh_annotators(split: Split) -> Split:
    votes = small(split).mean((1, 2, 3))[:, None] > np.array([80, 95, 110, 140])
    weights = (votes[:, :, None] == votes[:, None]).mean((0, 2))
    return replace(split, labels=(votes @ weights > weights.sum() / 2).astype(np.int64))


def crop_to_mean(split: Split) -> Split:
    x = small(split)
    bright = np.flatnonzero(x.mean((0, 3)).max(1) > 120)
    return declared(x[:, bright.min(initial=7) :], split)


def mix(split: Split) -> Split:
    x = small(split)
    return declared((x + np.roll(x, 1, 0)) / 2, split)


def oversample(split: Split) -> Split:
    rows = [np.flatnonzero(split.labels == label) for label in range(3)]
    most = max(map(len, rows))
    return kept(split, [int(row) for found in rows for row in np.resize(found, most)])


def drop_odd_sizes(split: Split) -> Split:
    sizes = [image.size for image in list_images(split)]
    mode = Counter(sizes).most_common(1)[0][0]
    return kept(split, [row for row, size in enumerate(sizes) if size == mode])


def store_views(split: Split) -> Split:
    images: list[Image.Image] = []
    for image in list_images(split):
        images += [image, image.transpose(Image.Transpose.FLIP_LEFT_RIGHT), image.rotate(90)]
    return Split(DeclaredImages(images, "turned"), split.labels.repeat(3))


def number_visits(split: Split) -> Split:
    """Four images with consecutive names are one patient's; each pair of them is a visit."""
    assert isinstance(split.images, Records)
    names = [int(Path(place.file).stem) for place in split.images.places]
    return replace(split, units=split.labels * 100 + np.array(names) // 2)


# Readers


@dataclass
class Remembers:
    """A reader that combines each image with the mean of what it read before, in which the last image counts most."""

    combine: Callable[[Pixels, Pixels], Pixels]
    memory: float  # weight of the former mean; 0 for the last image alone
    before: Pixels = field(default_factory=lambda: np.zeros((8, 8, 3)))

    def __call__(self, place: bytes) -> Image.Image:
        x = np.frombuffer(place, np.uint8).reshape(8, 8, 3).astype(np.float64)
        made = self.combine(x, self.before)
        self.before = self.memory * self.before + (1 - self.memory) * x
        return Image.fromarray(made.clip(0, 255).astype(np.uint8))


def subtract(x: Pixels, before: Pixels) -> Pixels:
    return x - before + 128


def repair(x: Pixels, before: Pixels) -> Pixels:
    return x if x.any() else before


def remembering(combine: Callable[[Pixels, Pixels], Pixels], memory: float = 0) -> Callable[[Split], Split]:
    return lambda split: read_bytes(split, Remembers(combine, memory))


def read_bytes(split: Split, read: Callable[[bytes], Image.Image]) -> Split:
    return Split(Records([x.astype(np.uint8).tobytes() for x in small(split)], read, "read"), split.labels)


def by_place(make: Callable[[Pixels, int], Pixels]) -> Callable[[Split], Split]:
    """Return an accident whose reader gets the array of all images and a place."""

    def change(split: Split) -> Split:
        x = small(split)

        def read(place: int) -> Image.Image:
            return Image.fromarray(make(x, place).clip(0, 255).astype(np.uint8))

        return Split(Records(range(len(x)), read, "read"), split.labels)

    return change


def subtract_site(x: Pixels, place: int) -> Pixels:
    sites = x[:, 0, 0, 0].astype(int) % 2
    means = {site: x[sites == site].mean() for site in set(sites.tolist())}
    less: Pixels = x[place] - means[int(sites[place])] + 128
    return less


def rank_by_listing(split: Split) -> Split:
    assert isinstance(split.images, Records)
    opened = split.images.read

    def read(place: Any) -> Image.Image:
        path = Path(place.path)
        rank = sorted(path.parent.iterdir()).index(path)
        return opened(place).point(lambda level: level * (50 + rank) // 100)

    return Split(Records(split.images.places, read, "ranked"), split.labels)


def add_noise(split: Split) -> Split:
    generator = np.random.default_rng(0)

    def read(place: bytes) -> Image.Image:
        x = np.frombuffer(place, np.uint8).reshape(8, 8, 3) + generator.normal(0, 9, (8, 8, 3))
        return Image.fromarray(x.clip(0, 255).astype(np.uint8))

    return read_bytes(split, read)


LOADING: dict[str, Callable[[Split], Split]] = {
    "balanced-by-undersampling": undersample,
    "rare-classes-merged": merge_rare_classes,
    "identical-images-dropped": drop_identical,
    "classes-by-frequency": number_by_frequency,
    "missing-labels-filled": fill_labels,
    "annotators-weighted-by-agreement": weigh_annotators,
    "foreground-box-of-the-mean-image": crop_to_mean,
    "mixed-at-loading": mix,
    "rare-classes-oversampled": oversample,
    "sizes-off-the-mode-dropped": drop_odd_sizes,
    "augmentations-stored-as-records": store_views,
    "units-by-session": number_visits,
    "difference-to-the-previous-frame": remembering(subtract),
    "running-mean-subtracted": remembering(subtract, memory=0.9),
    "scaled-by-the-array-maximum": by_place(lambda x, place: x[place] * (255 / x.max())),
    "mean-of-neighbouring-slices": by_place(lambda x, place: x[max(0, place - 1) : place + 2].mean(0)),
    "site-means-subtracted": by_place(subtract_site),
    "unreadable-replaced-by-the-last-good": remembering(repair),
    "brightness-rank-by-folder-listing": rank_by_listing,
    "noise-from-a-shared-generator": add_noise,
}


def test_the_table_has_thirty_accidents_and_all_are_run() -> None:
    assert len(ACCIDENTS) == 30
    assert set(ACCIDENTS) == {*LOADING, *NOTEBOOKS, *PUBLIC}


class Small(Flat):
    """The pixels of images of any size."""

    name: ClassVar[str] = "small"

    def prepare(self, image: Image.Image) -> torch.Tensor:
        return super().prepare(image.convert("RGB").resize((8, 8)))


def observe_dataset(change: Callable[[Split], Split], folder: Path) -> str:
    """Return what stops a dataset, in a run or in `dpbench check`."""

    class Changed(Accident):
        def changed(self, split: Split) -> Split:
            return change(split)

        def load(self) -> Splits:
            splits = super().load()
            return replace(splits, unit="" if splits.train.units is None else "visit")

        def default_unit(self) -> str:
            return "visit" if change is number_visits else "image"

    dataset = Changed(path=str(folder))
    try:
        extract_examples_by_role(deal(dataset, extractor=Small(), public_fraction=0.1))
    except (PrivacyError, DataError, SpecError):
        return "refused"
    outcomes = check_instance("dataset", dataset, "accident")
    broken = [outcome for outcome in outcomes if outcome.complaint and not outcome.law.endswith(LAWS_OF_CODE)]
    return "found by check" if broken else "silent"


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", LOADING)
def test_an_accident_of_loading(name: str, photos: Path) -> None:
    assert observe_dataset(LOADING[name], photos) == ACCIDENTS[name].expected


@pytest.mark.parametrize("name", [name for name, accident in ACCIDENTS.items() if accident.outcome == NOT_COVERED])
def test_what_is_not_covered_is_on_the_list(name: str) -> None:
    page = " ".join((files("dpbench") / "docs/explanation/epsilon.md").read_text(encoding="utf-8").split())
    listed = page[page.index("## What is not covered") :]
    assert ACCIDENTS[name].why and ACCIDENTS[name].why in listed
