"""Altered copies: which are found, that other images are not, and what a run and a result say of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import ImageEnhance, ImageFilter, ImageOps
from PIL.Image import Image, Resampling, Transpose, fromarray

from dpbench import DeclaredImages, Features, SpecError, Split, Splits
from dpbench.data import altered
from dpbench.data.altered import find_altered_copies, make_image_views
from dpbench.data.duplicates import MIN_OTHERS, compute_hashes, count_altered_copies
from dpbench.harness.sharing import refuse_forbidden_overlap
from dpbench.records.overlap import AlteredCopyCounts
from tests.data.test_duplicates import Repeating, grainy, hashed
from tests.harness.test_roles import deal

pytestmark = pytest.mark.usefixtures("fresh_cache")

PRIVATE = [grainy(seed).resize((48, 48)).convert("L").convert("RGB") for seed in range(120)]
COPIED = PRIVATE[:30]


def pad(image: Image, share: float = 1 / 8, colour: int = 0) -> Image:
    return ImageOps.expand(image, round(share * image.width), (colour,) * 3)


def found(public: Sequence[Image], private: Sequence[Image] = PRIVATE) -> float:
    """Return the share of altered copies."""
    counted = count_altered_copies(hashed(public), hashed(private))
    assert counted is not None
    return counted.found / counted.among


ALTERATIONS: dict[str, Callable[[Image], Image]] = {
    "nothing": lambda image: image,
    "blur": lambda image: image.filter(ImageFilter.GaussianBlur(3)),
    "strong blur": lambda image: image.filter(ImageFilter.GaussianBlur(6)),
    "shrunk and enlarged": lambda image: image.resize((12, 12)).resize((48, 48), Resampling.BICUBIC),
    "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.7),
    "gamma": lambda image: image.point([round(255 * (level / 255) ** 2) for level in range(256)] * 3),
    "black and white": lambda image: image.convert("L").point([0] * 128 + [255] * 128),
    "padded": pad,
    "padded in white": lambda image: pad(image, 1 / 4, 255),
    "padded and resized": lambda image: pad(image).resize((48, 48), Resampling.BICUBIC),
    "letterbox": lambda image: ImageOps.expand(image, (0, 12), (0, 0, 0)),
    "inverted": ImageOps.invert,
    "inverted and blurred": lambda image: ImageOps.invert(image).filter(ImageFilter.GaussianBlur(3)),
    "edges": lambda image: image.filter(ImageFilter.FIND_EDGES),
}


@pytest.mark.parametrize("kind", ALTERATIONS)
def test_altered_copies_are_found_either_way(kind: str) -> None:
    least = 0.6 if kind == "edges" else 0.9  # these images have few edges
    copies = [ALTERATIONS[kind](image) for image in COPIED]
    assert found(copies) >= least
    assert found(COPIED, [ALTERATIONS[kind](image) for image in PRIVATE]) >= least


@pytest.mark.parametrize(
    "change",
    [
        lambda image: image.transpose(Transpose.FLIP_LEFT_RIGHT),
        lambda image: image.rotate(90),
        lambda image: image.crop((0, 0, 30, 30)),
        lambda image: image.filter(ImageFilter.EMBOSS),
        ImageOps.solarize,
    ],
)
def test_what_the_page_lists_as_missed_is_missed(change: Callable[[Image], Image]) -> None:
    assert found([change(image) for image in COPIED]) <= 0.2


def test_other_images_are_no_altered_copies() -> None:
    assert found([grainy(seed) for seed in range(1000, 1300)]) <= 0.02


def test_images_of_one_colour_match_nothing() -> None:
    assert found([fromarray(np.full((8, 8), level, np.uint8)) for level in range(100, 140)]) == 0


def test_the_images_of_the_smaller_split_are_searched() -> None:
    few = [*COPIED[:10], *(grainy(seed) for seed in range(1000, 1010))]
    assert count_altered_copies(hashed(PRIVATE), hashed(few)) == AlteredCopyCounts(found=10, among=20)
    assert count_altered_copies(hashed(few), hashed(PRIVATE)) == AlteredCopyCounts(found=10, among=20)


def test_of_large_splits_a_sample_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpbench.data.duplicates.MAX_SEARCHED", 7)
    assert count_altered_copies(hashed(COPIED), hashed(PRIVATE)) == AlteredCopyCounts(found=7, among=7)


def test_exact_copies_in_a_split_do_not_hide_a_match() -> None:
    assert found([ALTERATIONS["blur"](image) for image in COPIED], PRIVATE * 2) >= 0.9


def test_nobody_looks_in_features_among_few_images_or_without_public_images() -> None:
    rows = Split(Features(np.ones((90, 3), np.float32)), np.zeros(90, np.int64))
    features = compute_hashes(rows, "data", "train")
    assert count_altered_copies(features, features) is None
    assert count_altered_copies(hashed(COPIED), hashed(PRIVATE[: MIN_OTHERS - 1])) is None
    assert count_altered_copies(hashed([]), hashed(PRIVATE)) is None


@pytest.mark.parametrize("block", [7, 30, 119, 120])
def test_blocks_change_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    public, private = hashed([ALTERATIONS["blur"](image) for image in PRIVATE]), hashed(PRIVATE)
    whole = find_altered_copies(public.image_views, private.image_views)
    monkeypatch.setattr(altered, "BLOCK", block)
    assert find_altered_copies(public.image_views, private.image_views).equal(whole)


@pytest.mark.parametrize("content", ["", "[]", '{"counts": {"found": 0, "among": 30}, "sha256": ""}'])
def test_damaged_counts_are_counted_again(fresh_cache: Path, content: str) -> None:
    public, private = hashed(COPIED), hashed(PRIVATE)
    assert count_altered_copies(public, private) == AlteredCopyCounts(found=30, among=30)
    (file,) = fresh_cache.rglob("*.json")
    file.write_text(content)
    assert count_altered_copies(public, private) == AlteredCopyCounts(found=30, among=30)
    assert json.loads(file.read_text())["counts"] == {"found": 30, "among": 30}


@pytest.mark.parametrize("size", [(1, 1), (2, 2), (1, 50), (700, 3), (300, 200)])
@pytest.mark.parametrize("fill", ["flat", "noise", "half"])
def test_images_of_every_size_have_views(size: tuple[int, int], fill: str) -> None:
    levels = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    levels = {"flat": levels * 0 + 7, "noise": levels, "half": levels * (np.arange(size[0]) % 2 == 0)[:, None]}[fill]
    assert make_image_views(fromarray(levels)).shape == (3, 256)


@pytest.mark.parametrize("margin", [0, 3, 5.25, 7.5])
def test_borders_are_measured_to_a_fraction_of_a_pixel(margin: float) -> None:
    cover = (np.arange(1, 41) - margin).clip(0, 1)[:, None]
    levels = np.rint((150 + 60 * np.sin(np.arange(40))) * cover).astype(np.int16)
    assert altered._measure_border_width(levels) == pytest.approx(margin, abs=0.1)


# What a run and a result say


class Blurred(Repeating):
    """The images of `Repeating` from `first` on, blurred."""

    name: ClassVar[str] = "blurred"

    def load(self) -> Splits:
        splits = super().load()
        images = [ALTERATIONS["strong blur"](splits.train.images[row].resize((48, 48))) for row in range(100)]
        train = dataclasses.replace(splits.train, images=DeclaredImages(images, "blurred"))
        return Splits(train, splits.test, f"blurred-{splits.digest}")


def test_a_public_dataset_of_altered_private_images_is_refused_unless_it_is_asked_for() -> None:
    images = deal(Repeating(leaked=0), Blurred(leaked=0))
    assert images.count_public_copies()[0].exact == 0
    for sharing in ("none", "board"):
        with pytest.raises(SpecError, match=r"Public in private: expected at most 50% of 100 images .* but for blur"):
            refuse_forbidden_overlap(images, sharing)
    refuse_forbidden_overlap(images, "any")


def test_public_images_of_their_own_and_none_at_all_are_taken() -> None:
    refuse_forbidden_overlap(deal(Repeating(leaked=0), Blurred(first=1000)), "none")
    none: Any = deal(Repeating(leaked=0), public_fraction=0)
    refuse_forbidden_overlap(none, "none")
    assert none.compare().altered is None


def test_more_matches_than_images_are_no_count() -> None:
    with pytest.raises(ValueError, match="expected at most 3 of 3 images to match, got 4"):
        AlteredCopyCounts(found=4, among=3)
