"""Accidents of notebooks and of public data (`accidents.toml`), each with what stops it in a run."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from dpbench_plugins.learners.class_means import ClassMeans
from PIL import Image
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from dpbench import DeclaredImages, Split, Splits
from dpbench.errors import PrivacyError, SpecError
from dpbench.harness.sharing import Sharing, refuse_forbidden_overlap
from tests.data.test_duplicates import Repeating, grainy
from tests.harness.test_held_copies import DIGITS, NamesGlobal, prepare, with_default
from tests.harness.test_private_files import reads
from tests.harness.test_roles import deal
from tests.helpers.accidents import ACCIDENTS
from tests.helpers.strangers import run_learner

# Notebooks


def hold(make: Callable[[], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    def prepare_with_global(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tests.harness.test_held_copies.HELD", make())
        prepare(NamesGlobal)

    return prepare_with_global


def default_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(with_default((DIGITS / 255).astype(np.float32)))


def class_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = np.bincount(load_digits().target).tolist()

    @dataclass(frozen=True)
    class Weighted(ClassMeans):
        weights: ClassVar[list[int]] = counted

    prepare(Weighted)


def path_in_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    run_learner(reads(load_digits))


NOTEBOOKS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "scaled-copy-in-a-default-argument": default_argument,
    "frame-of-pixels": hold(lambda: pytest.importorskip("pandas").DataFrame(DIGITS)),
    "loader-of-a-global-dataset": hold(lambda: DataLoader(TensorDataset(torch.from_numpy(DIGITS)), batch_size=64)),
    "class-weights-from-labels": class_weights,
    "path-read-in-fit": path_in_fit,
}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_an_accident_in_a_notebook(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = "silent"
    try:
        NOTEBOOKS[name](monkeypatch)
    except PrivacyError:
        outcome = "refused"
    assert outcome == ACCIDENTS[name].expected


# Public data


class Photographs(Repeating):
    """Private images with detail."""

    name: ClassVar[str] = "photographs"

    def images(self) -> list[Image.Image]:
        return [grainy(seed).resize((48, 48)) for seed in range(200)]

    def load(self) -> Splits:
        images = self.images()
        train = Split(DeclaredImages(images, "noise"), np.arange(len(images)) % 2)
        return Splits(train, super().load().test, self.name)


def compress(image: Image.Image) -> Image.Image:
    image.save(content := io.BytesIO(), "JPEG", quality=30)
    return Image.open(content)


def stamp(image: Image.Image) -> Image.Image:
    image = image.copy()
    image.paste((255, 255, 255), (34, 36, 46, 46))
    return image


def collages(images: Sequence[Image.Image]) -> list[Image.Image]:
    made = []
    for start in range(0, len(images), 4):
        made.append(Image.new("RGB", (96, 96)))
        for corner, image in enumerate(images[start : start + 4]):
            made[-1].paste(image, (48 * (corner % 2), 48 * (corner // 2)))
    return made


PUBLIC: dict[str, Callable[[list[Image.Image]], list[Image.Image]]] = {
    "private-as-jpeg": lambda images: [*map(compress, images)],
    "private-with-swapped-channels": lambda images: [Image.merge("RGB", image.split()[::-1]) for image in images],
    "private-with-a-stamp": lambda images: [*map(stamp, images)],
    "private-in-collages": collages,
    "teacher-labels": lambda images: [grainy(seed) for seed in range(1000, 1200)],
}


@pytest.mark.usefixtures("fresh_cache")
@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize("sharing", ["none", "board"])
def test_an_accident_of_public_data(name: str, sharing: Sharing) -> None:
    class Public(Photographs):
        name: ClassVar[str] = "public-photographs"

        def images(self) -> list[Image.Image]:
            return PUBLIC[name](super().images())

    outcome = "silent"
    try:
        refuse_forbidden_overlap(deal(Photographs(leaked=0), Public(leaked=0)), sharing)
    except SpecError:
        outcome = "refused"
    assert outcome == ACCIDENTS[name].expected
