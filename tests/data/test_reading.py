"""From the file to the row: accidents of loaders and extractors that let one image change another's row."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from dpbench_plugins.datasets.digits import read_digits_table
from dpbench_plugins.datasets.image_folders.imagefolder import ImageFolder
from dpbench_plugins.datasets.sklearn import Digits
from PIL import Image
from torch import Tensor

from dpbench import (
    INDEPENDENT_DRAWS,
    DataError,
    DeclaredImages,
    DpbenchError,
    Extractor,
    Features,
    Records,
    SpecError,
    Split,
    Splits,
)
from dpbench.data import extraction
from dpbench.data.engine import choose_inference_engine
from dpbench.data.reading import ImageMapper, return_image_unchanged
from dpbench.errors import NotPure
from dpbench.harness.sharing import refuse_forbidden_overlap
from dpbench.privacy.purity.reach import MOST_OBJECTS
from dpbench.splits import OWN_RECORD
from dpbench.testing import DatasetLaws, ExtractorLaws
from dpbench.testing.datasets import NeighbourDataset
from dpbench.testing.laws import Laws
from tests.harness.test_roles import Numbered, deal
from tests.helpers.array_dataset import ArrayDataset, LoadingAccident

Picture = Image.Image
CPU = torch.device("cpu")
SEEN: list[float] = []


def grey(level: int) -> Picture:
    return Image.new("L", (2, 2), level)


PLACES = [str(place) for place in range(100)]


def numbered(place: str) -> Picture:
    return grey(int(place))


@dataclass(frozen=True)
class Flat(Extractor):
    name: ClassVar[str] = "flat"

    state: dict[str, Any] = field(default_factory=dict, repr=False)

    def prepare(self, image: Picture) -> Tensor:
        return torch.from_numpy(np.array(image.convert("L").resize((2, 2)))).float()

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        return lambda images: images.flatten(1)


@dataclass(frozen=True)
class RunningMaximum(Flat):
    """Divides by the brightest pixel so far: changing one image moved the sum of 199 other rows by 125 clips."""

    def prepare(self, image: Picture) -> Tensor:
        pixels = super().prepare(image)
        self.state["most"] = max(self.state.get("most", 1.0), float(pixels.max()))
        return pixels / float(self.state["most"])


@dataclass(frozen=True)
class InAGlobal(Flat):
    def prepare(self, image: Picture) -> Tensor:
        pixels = super().prepare(image)
        SEEN.append(float(pixels.max()))
        return pixels / max(*SEEN, 1.0)


@dataclass(frozen=True)
class OnItsClass(Flat):
    most: ClassVar[float] = 1.0

    def prepare(self, image: Picture) -> Tensor:
        pixels = super().prepare(image)
        type(self).most = max(type(self).most, float(pixels.max()))
        return pixels / type(self).most


@dataclass(frozen=True)
class Augments(Flat):
    def prepare(self, image: Picture) -> Tensor:
        return super().prepare(image) + torch.rand(2, 2)


@dataclass(frozen=True)
class MaximumOfTheNetwork(Flat):
    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        most = torch.ones(1)

        def embed(images: Tensor) -> Tensor:
            most.clamp_(min=float(images.max()))
            return images.flatten(1) / most

        return embed


@dataclass(frozen=True)
class CountsInTheNetwork(Flat):
    """Adds the number of batches before: each is the same alone and among others for a while."""

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        batches = [0]

        def embed(images: Tensor) -> Tensor:
            batches[0] += 1
            return images.flatten(1) + batches[0] * 1e-6

        return embed


@dataclass(frozen=True)
class Centres(Flat):
    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        return lambda images: images.flatten(1) - images.flatten(1).mean(0)


ACCIDENTS = [
    RunningMaximum(),
    InAGlobal(),
    OnItsClass(),
    Augments(),
    MaximumOfTheNetwork(),
    CountsInTheNetwork(),
    Centres(),
]


def extracted(extractor: Extractor, folder: Path, images: Any = None) -> np.ndarray:
    images = Records(PLACES, numbered) if images is None else images
    engine = choose_inference_engine(extractor, CPU, len(images))
    return np.concatenate(list(extraction.extract_features(images, extractor, folder, engine)))


@pytest.mark.parametrize("extractor", ACCIDENTS, ids=lambda value: type(value).__name__)
def test_an_extractor_whose_features_follow_other_images_is_refused(extractor: Extractor, tmp_path: Path) -> None:
    with pytest.raises(DpbenchError, match=r"only on its own record|from that image alone"):
        extracted(extractor, tmp_path)


def test_an_extractor_of_each_image_alone_is_taken(tmp_path: Path) -> None:
    assert extracted(Flat(), tmp_path)[:, 0].tolist() == [*range(100)]


def test_a_table_of_an_extractor_is_made_once_and_is_no_change(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Tabled(Flat):
        @cached_property
        def table(self) -> Tensor:
            return torch.arange(256.0)

        def prepare(self, image: Picture) -> Tensor:
            return self.table[super().prepare(image).long()]

        def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
            tables: dict[str, Tensor] = {}
            return lambda images: images.flatten(1) * tables.setdefault("ones", torch.ones(1))

    assert extracted(Tabled(), tmp_path)[:, 0].tolist() == [*range(100)]


def test_what_prepare_makes_at_its_first_call_follows_from_a_blank_image(tmp_path: Path) -> None:
    class Lazy(Flat):
        def prepare(self, image: Picture) -> Tensor:
            self.state.setdefault("table", torch.arange(256.0))
            found: Tensor = self.state["table"][super().prepare(image).long()]
            return found

    assert extracted(Lazy(), tmp_path)[:, 0].tolist() == [*range(100)]


@dataclass
class Brightest:
    """Reads a record and divides by the brightest so far."""

    most: list[int] = field(default_factory=lambda: [1])

    def __call__(self, place: str) -> Picture:
        self.most[0] = max(self.most[0], int(place))
        return grey(255 * int(place) // self.most[0])


@pytest.mark.parametrize("value", [7.5, np.uint8(9), np.ones(3), torch.ones(3), bytes(256), list(range(256))])
def test_what_reads_a_record_may_not_hold_what_other_images_made(value: Any) -> None:
    """Such as the brightest pixel of all, by which every image is divided."""
    with pytest.raises(NotPure, match="Expected the object that reads a dataset's records to hold options only, got a"):
        ImageMapper(
            Records(PLACES, lambda place: grey(0) if value is None else grey(1)), return_image_unchanged, "Reading"
        )


@pytest.mark.parametrize("place", [0.5, ("7", 0.5), ("7", (np.float32(1), "8")), np.ones(3), Image.new("L", (1, 1))])
def test_a_place_may_not_hold_what_other_images_made(place: Any) -> None:
    """Such as a row of an array that was normalised as a whole."""
    with pytest.raises(NotPure, match="Expected the place of a record as text, bytes or whole numbers, got a"):
        ImageMapper(Records([place], lambda _: grey(1)), return_image_unchanged, "Reading")([0])


class Reader:
    """Holds an open zip, which cannot be compared, beside what may follow from other images."""

    def __init__(self, archive: Any, beside: Any) -> None:
        self.archive, self.beside = archive, beside

    def __call__(self, place: str) -> Picture:
        return grey(int(place))


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as made:
        for number in range(20):
            made.writestr(f"{number}.png", b"x")
    with zipfile.ZipFile(tmp_path / "images.zip") as opened:
        yield opened


@pytest.mark.parametrize("beside", [0.5, np.zeros(3), list(range(100)), Image.new("L", (2, 2))])
def test_an_open_zip_hides_nothing_that_is_held_beside_it(archive: zipfile.ZipFile, beside: Any) -> None:
    with pytest.raises(NotPure, match="hold options only"):
        ImageMapper(Records(PLACES, Reader(archive, beside)), return_image_unchanged, "Reading")
    ImageMapper(Records(PLACES, Reader(archive, "L")), return_image_unchanged, "Reading")


def test_an_open_zip_hides_no_change_beside_it(archive: zipfile.ZipFile) -> None:
    seen: dict[str, str] = {}

    class Remembers(Reader):
        def __call__(self, place: str) -> Picture:
            self.beside[place] = place
            return grey(len(self.beside))

    mapper = ImageMapper(Records(PLACES, Remembers(archive, seen)), return_image_unchanged, "Extractor 'x'")
    with pytest.raises(NotPure, match="changed what it reaches"):
        mapper([1, 2])


def test_a_reader_that_reaches_more_than_can_be_compared_is_refused() -> None:
    many = [f"{number}" for number in range(MOST_OBJECTS)]
    with pytest.raises(NotPure, match="hold options only, got a table of more than"):
        ImageMapper(Records(PLACES, Reader(None, [(name,) for name in many])), return_image_unchanged, "Reading")


@pytest.mark.parametrize("place", ["7", b"7", 7, np.int64(7), Path("7"), ("7", 7, None)])
def test_a_place_may_be_a_name_a_number_or_the_bytes_of_an_image(place: Any) -> None:
    (image,) = ImageMapper(Records([place], lambda _: grey(1)), return_image_unchanged, "Reading")([0])
    assert image.getpixel((0, 0)) == 1


def test_what_reads_a_record_may_hold_options() -> None:
    mode, side = "L", 3
    images = Records(PLACES, lambda place: Image.new(mode, (side, side), int(place)))
    (image,) = ImageMapper(images, return_image_unchanged, "Reading")([7], thorough=True)
    assert image.getpixel((0, 0)) == 7


def test_what_reads_a_record_remembers_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotPure, match="changed what it reaches"):
        extracted(Flat(), tmp_path, Records(PLACES, Brightest()))


def test_a_record_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    def read(place: str) -> Picture:
        raise DataError(f"Expected a readable image {place}.") if place == "7" else DataError("none")

    with pytest.raises(DataError, match=r"^Expected a readable image 7\.$"):
        ImageMapper(Records(PLACES, read), return_image_unchanged, "Reading")([7])


def test_a_split_says_how_its_images_came_about() -> None:
    none, x = np.zeros(0, np.int64), np.zeros((0, 1), np.float32)
    splits: list[Any] = [
        Records([], numbered),
        Records([b"7"], numbered),
        Records([("7", b"7")], numbered, "as published"),
        DeclaredImages([], "inverted, each on its own"),
        Features(x, INDEPENDENT_DRAWS),
        Features(x),
        [],
    ]
    assert [Split(images, none).processing for images in splits] == [
        OWN_RECORD,
        "",
        "as published",
        "inverted, each on its own",
        INDEPENDENT_DRAWS,
        "",
        "",
    ]


def test_no_board_takes_images_of_which_nobody_says_how_they_were_made(fresh_cache: Path) -> None:
    found = deal(Numbered())
    assert set(found.processing_by_split.values()) == {""}
    refuse_forbidden_overlap(found, "any")
    with pytest.raises(
        SpecError,
        match=r"^No board accepts this run: the dataset does not say how its private and public and test images were "
        r"made\. List them as Records, hand them over as DeclaredImages with a sentence .* without --board\.$",
    ):
        refuse_forbidden_overlap(found, "board")


# The laws


def broken(suite: type[Laws], law: str, **subject: Any) -> str | None:
    """Return what breaks this law, if anything does."""
    laws: type[Laws] = type("TheLaws", (suite,), subject)
    assert law in laws.laws()
    try:
        getattr(laws(), law)()
    except DpbenchError as error:
        return str(error)
    return None


@pytest.mark.parametrize("extractor", ACCIDENTS[:4], ids=lambda value: type(value).__name__)
def test_the_laws_find_what_prepare_remembers(extractor: Extractor) -> None:
    assert broken(ExtractorLaws, "test_an_image_is_prepared_alone", extractor=extractor)


def photos(folder: Path, levels: Sequence[int] = range(10, 22)) -> Path:
    for place, level in enumerate(levels):
        for split in ("train", "test"):
            file = folder / split / "ab"[place % 2] / f"{place:02}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 4), (level, 0, 0)).save(file)
    return folder


class Normalised(ImageFolder):
    """Divides every image by the brightest pixel of all."""

    name: ClassVar[str] = "normalised"

    def load(self) -> Splits:
        splits = super().load()
        return Splits(self.changed(splits.train), splits.test, splits.digest)

    def changed(self, split: Split) -> Split:
        pixels = [np.asarray(split.images[place], np.float64) for place in range(len(split.labels))]
        most = max(float(pixel.max()) for pixel in pixels)
        return Split(
            DeclaredImages([Image.fromarray((pixel * (255 / most)).astype(np.uint8)) for pixel in pixels], "?"),
            split.labels,
        )


class Balanced(Normalised):
    """Keeps as many of each class as the smallest has."""

    name: ClassVar[str] = "balanced"

    def changed(self, split: Split) -> Split:
        least = int(np.bincount(split.labels).min())
        kept = [place for label in (0, 1) for place in np.flatnonzero(split.labels == label)[:least]]
        return Split(DeclaredImages([split.images[place] for place in kept], "?"), split.labels[kept])


ONE_LESS = "test_all_others_are_the_same_in_a_copy_without_one_record"


@pytest.mark.parametrize(("dataset", "caught"), [(ImageFolder, False), (Normalised, True), (Balanced, True)])
def test_a_copy_without_one_record_finds_images_that_follow_from_others(
    dataset: type[ImageFolder], caught: bool, tmp_path: Path
) -> None:
    levels = [10, 12, 14, 16, 18, 20, 22, 24, 250, 30, 31, 32] if dataset is Normalised else range(10, 22)
    found = broken(DatasetLaws, ONE_LESS, dataset=dataset(path=str(photos(tmp_path, levels))))
    assert bool(found) == caught


@pytest.mark.parametrize(("dataset", "caught"), [(ImageFolder, False), (Normalised, True), (Balanced, True)])
def test_a_copy_of_a_zip_without_one_record_finds_them_as_well(
    dataset: type[ImageFolder], caught: bool, tmp_path: Path
) -> None:
    folder = photos(tmp_path / "photos", [10, 12, 14, 16, 18, 20, 22, 24, 250, 30, 31, 32])
    packed = shutil.make_archive(str(tmp_path / "packed"), "zip", folder)
    found = broken(DatasetLaws, ONE_LESS, dataset=dataset(path=packed))
    assert bool(found) == caught


@pytest.mark.parametrize("accident", ["", "normalised"])
def test_a_copy_of_an_array_with_a_blank_image_finds_what_follows_from_it(
    accident: LoadingAccident, tmp_path: Path
) -> None:
    levels = np.array([10, 20, 30, 40, 200, 50], np.uint8)
    np.savez(tmp_path / "x.npz", x=np.broadcast_to(levels[:, None, None], (6, 4, 4)), y=np.arange(6) % 2)
    found = broken(DatasetLaws, ONE_LESS, dataset=ArrayDataset(str(tmp_path / "x.npz"), accident))
    assert bool(found) == bool(accident)


def test_a_suite_of_data_that_are_stored_otherwise_makes_its_own_copies() -> None:
    class Oversampled(Numbered):
        removed: int | None = None

        def load(self) -> Splits:
            splits = super().load()
            places = [place for place in PLACES for _ in range(8 if place == "3" else 1) if place != str(self.removed)]
            labels = np.array([int(place) % 2 for place in places], np.int64)
            return Splits(Split(Records(places, numbered), labels), splits.test, splits.digest)

    class Without(Oversampled):
        removed = 3

    def neighbours(_: DatasetLaws) -> Any:
        yield NeighbourDataset("without 3", nullcontext(Without()))

    found = broken(DatasetLaws, ONE_LESS, dataset=Oversampled(), neighbours=neighbours)
    assert found == "In a copy without 3, 8 images are gone: which are kept follows from others."


def test_the_laws_want_to_know_how_images_were_made() -> None:
    class Undeclared(Digits):
        def load(self) -> Splits:
            splits = super().load()
            images = [splits.train.images[place] for place in range(len(splits.train.labels))]
            return Splits(Split(images, splits.train.labels), splits.test, splits.digest)

    assert broken(DatasetLaws, "test_how_images_come_about_is_declared", dataset=Undeclared())


def test_an_image_that_follows_from_what_was_read_before_breaks_the_laws() -> None:
    class Drifts(Digits):
        def load(self) -> Splits:
            splits = super().load()
            return Splits(Split(Records(PLACES, Brightest()), splits.train.labels[:100]), splits.test, splits.digest)

    assert broken(DatasetLaws, "test_an_image_is_read_from_its_record_alone", dataset=Drifts())


@pytest.mark.parametrize("written", [True, False])
def test_a_preparation_that_writes_a_file_is_refused_and_what_it_prints_is_withheld(
    written: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def prepare(image: Image.Image) -> int:
        if written:
            (tmp_path / "seen").write_text("a private image")
        print("a private image")
        return 1

    reads = ImageMapper([Image.new("L", (4, 4))], prepare, "Extractor 'spy'")
    if written:
        with pytest.raises(NotPure, match="Extractor 'spy' opened a file"):
            reads([0])
    else:
        assert reads([0]) == [1]
    assert "private" not in capfd.readouterr().out
    assert not (tmp_path / "seen").exists()


def test_digits_are_those_that_scikit_learn_loads() -> None:
    from sklearn.datasets import load_digits

    found, data = read_digits_table(), load_digits()
    assert np.array_equal(found[:, :-1], data.data) and np.array_equal(found[:, -1], data.target)
