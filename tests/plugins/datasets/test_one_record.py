"""One record of a published file is another one: every other image of every dataset stays as it was, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dpbench_plugins.datasets.huggingface import HuggingFace
from PIL import Image

from dpbench import Dataset
from dpbench.support.paths import restrict_data_search
from dpbench.testing.datasets import expect_at_most_one_changed_image
from tests.helpers import trees
from tests.plugins.datasets import (
    test_cifar100,
    test_fashion_mnist,
    test_flowers102,
    test_gtsrb,
    test_huggingface,
    test_kermany,
    test_medmnist,
    test_pcam,
)

BLANK = 5  # the record that turns black


def blanked(images: np.ndarray, changed: bool) -> np.ndarray:
    if changed:
        images[BLANK] = 0
    return images


def medmnist(folder: Path, changed: bool) -> Dataset:
    images = blanked(test_medmnist.arrays()["train_images"], changed)
    return test_medmnist.lay_out(folder, train_images=images)  # type: ignore[no-any-return]


def fashion_mnist(folder: Path, changed: bool) -> Dataset:
    images = np.random.default_rng(0).integers(0, 256, (30, 28, 28))
    content = test_fashion_mnist.idx(blanked(images, changed))
    return test_fashion_mnist.lay_out(folder / "fashion-mnist", train_images_idx3_ubyte=content)


def cifar100(folder: Path, changed: bool) -> Dataset:
    rows = np.random.default_rng(200).integers(0, 256, (200, 3072), np.uint8)
    data = test_cifar100.array(blanked(rows, changed))
    return test_cifar100.lay_out(folder, train=test_cifar100.pickled({**test_cifar100.batch("train"), "data": data}))


def pcam(folder: Path, changed: bool) -> Dataset:
    images = np.random.default_rng(0).integers(0, 256, (24, 96, 96, 3), np.uint8)
    test_pcam.lay_out(folder, trainx=blanked(images, changed))
    return test_pcam.Few()


def gtsrb(folder: Path, changed: bool) -> Dataset:
    root = test_gtsrb.lay_out(folder)
    if changed:
        test_gtsrb.draw(root / "GTSRB/Training/00002/00001_00000.ppm", 0)
    return test_gtsrb.Few()


def flowers102(folder: Path, changed: bool) -> Dataset:
    dataset = test_flowers102.lay_out(folder)
    if changed:
        Image.new("RGB", (16, 16)).save(folder / f"flowers-102/jpg/image_{BLANK:05d}.jpg")
    return dataset


def huggingface(folder: Path, changed: bool) -> Dataset:
    place = test_huggingface.lay_out(folder)
    images = [test_huggingface.picture(shade) for shade in range(40, 46)]
    if changed:
        images[BLANK] = test_huggingface.picture(0)
    test_huggingface.write(place / "train-00000-of-00001.parquet", photo=images)
    return HuggingFace(test_huggingface.ID)


def pneumonia(folder: Path, changed: bool) -> Dataset:
    files = test_kermany.tree()
    first = next(name for name in sorted(files) if "/train/" in name)
    trees.pack(folder / "chest_xray.zip", {**files, **({first: trees.picture(0)} if changed else {})})
    return test_kermany.Few()


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "lay_out", [medmnist, fashion_mnist, cifar100, pcam, gtsrb, flowers102, huggingface, pneumonia]
)
def test_a_published_file_with_another_record_gives_all_other_images_equal_bit_for_bit(
    lay_out: Callable[[Path, bool], Dataset], tmp_path: Path
) -> None:
    splits = []
    for name, changed in (("whole", False), ("changed", True)):
        (tmp_path / name).mkdir()
        dataset = lay_out(tmp_path / name, changed)
        with restrict_data_search(tmp_path / name):
            splits.append(dataset.load())
    whole, other = (data.train for data in splits)
    contents = [[split.images[place].tobytes() for place in range(len(split.labels))] for split in (whole, other)]
    assert sum(content != another for content, another in zip(*contents, strict=True)) == 1
    expect_at_most_one_changed_image(whole, other, "with a black image", replaced=True)
