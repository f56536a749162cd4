"""Flowers: the published labels and splits, checked, and the same as torchvision reads."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpbench_plugins.datasets.torchvision import Flowers102, flowers102
from PIL import Image
from scipy.io import savemat

from dpbench import DataError, DataMissing
from dpbench.testing import DatasetLaws

IMAGES = 130


def draw(folder: Path, number: int, level: int, mode: str = "RGB") -> None:
    image = Image.new("RGB", (20 + number % 5, 16), (level, 255 - level, 60)).convert(mode)
    image.save(folder / f"jpg/image_{number:05d}.jpg", "PNG" if mode == "RGBA" else "JPEG")  # JPEG has no RGBA


def lay_out(folder: Path) -> Flowers102:
    """130 images: 102 for training, one of each class, 8 for validation, 20 for testing, in a shuffled order."""
    root = folder / "flowers-102"
    (root / "jpg").mkdir(parents=True, exist_ok=True)
    for number in range(1, IMAGES + 1):
        draw(root, number, number)
    labels = np.arange(IMAGES) % 102 + 1
    train, rest = np.random.default_rng(0).permutation(102) + 1, np.arange(103, IMAGES + 1)[::-1]
    savemat(root / "imagelabels.mat", {"labels": labels[None, :].astype(np.uint8)})
    savemat(root / "setid.mat", {"trnid": train[None, :], "valid": rest[None, :8], "tstid": rest[None, 8:]})
    return few({name: hashlib.md5((root / name).read_bytes()).hexdigest() for name in Flowers102.md5})


def few(md5: dict[str, str]) -> Flowers102:
    kind: Any = type("Few", (Flowers102,), {"md5": md5, "__module__": Flowers102.__module__})
    return kind()  # type: ignore[no-any-return]


class TestLaws(DatasetLaws):
    dataset = Flowers102()

    @pytest.fixture(autouse=True)
    def files(self, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Flowers102, "md5", lay_out(data_folder).md5)


def test_images_labels_and_names_are_those_of_torchvision(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import Flowers102 as Theirs

    dataset = lay_out(data_folder)
    splits = dataset.load()
    keys = {"label": "imagelabels.mat", "setid": "setid.mat"}
    monkeypatch.setattr(Theirs, "_file_dict", {key: (name, dataset.md5[name]) for key, name in keys.items()})
    for split, name in ((splits.train, "train"), (splits.test, "test")):
        theirs = Theirs(str(data_folder), split=name)
        assert split.labels.tolist() == [label for _, label in theirs]
        for index in range(len(theirs)):
            assert split.images[index].tobytes() == theirs[index][0].tobytes()
    assert (len(splits.train.images), len(splits.test.images)) == (102, 20)
    assert list(Flowers102.classes) == Theirs.classes


def test_missing_data_says_what_to_fetch_and_where_it_looked(data_folder: Path) -> None:
    with pytest.raises(DataMissing) as caught:
        Flowers102().load()
    said = ("flowers-102/{jpg,", "345 MB", "`dpbench data fetch flowers102`", flowers102.PAGE, str(data_folder))
    for each in said:
        assert each in str(caught.value)


def test_addresses_and_checksums_are_those_of_torchvision() -> None:
    from torchvision.datasets import Flowers102 as Theirs

    source = Flowers102().source()
    stated = {Theirs._download_url_prefix + name: f"md5:{md5}" for name, md5 in Theirs._file_dict.values()}
    assert {download.url: download.checksum for download in source.downloads} == stated
    assert source.size == sum(download.size for download in source.downloads)
    images, *tables = source.downloads
    assert (images.path, images.unpack) == ("flowers-102", True)  # torchvision unpacks it there too
    assert tuple(file.path for file in tables) == source.homes[0][1:]


def test_a_missing_part_is_named(data_folder: Path) -> None:
    dataset = lay_out(data_folder)
    (data_folder / "flowers-102/setid.mat").unlink()
    with pytest.raises(DataMissing, match=r"which lacks flowers-102/setid\.mat;"):
        dataset.load()


def test_labels_other_than_the_published_ones_are_refused(data_folder: Path) -> None:
    lay_out(data_folder)
    with pytest.raises(DataError, match=r"Expected MD5 e0620be6\w+ of .*imagelabels\.mat, got"):
        Flowers102().load()


def test_a_damaged_table_is_named_even_under_the_right_md5(data_folder: Path) -> None:
    md5 = dict(lay_out(data_folder).md5)
    (data_folder / "flowers-102/setid.mat").write_bytes(b"no table")
    with pytest.raises(DataError, match=r"Expected a MATLAB file in .*setid\.mat"):
        few({**md5, "setid.mat": hashlib.md5(b"no table").hexdigest()}).load()


def test_a_missing_image_is_named(data_folder: Path) -> None:
    dataset = lay_out(data_folder)
    (data_folder / "flowers-102/jpg/image_00007.jpg").unlink()
    with pytest.raises(DataError, match=r"Expected an image .*image_00007\.jpg"):
        dataset.load()


def test_a_damaged_image_is_named(data_folder: Path) -> None:
    splits = lay_out(data_folder).load()
    for file in (data_folder / "flowers-102/jpg").iterdir():
        file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"Expected a readable image .*\.jpg"):
        splits.train.images[0]


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGBA"])
def test_an_image_of_another_mode_becomes_rgb(data_folder: Path, mode: str) -> None:
    dataset = lay_out(data_folder)
    for number in range(1, IMAGES + 1):
        draw(data_folder / "flowers-102", number, number, mode)
    assert dataset.load().train.images[0].mode == "RGB"


def test_the_digest_changes_with_the_images(data_folder: Path) -> None:
    dataset = lay_out(data_folder)
    first = dataset.load().digest
    draw(data_folder / "flowers-102", 5, 222)
    assert dataset.load().digest != first


def test_the_validation_split_becomes_part_of_training_by_an_option(data_folder: Path) -> None:
    from torchvision.datasets import Flowers102 as Theirs

    dataset = lay_out(data_folder)
    alone, whole = dataset.load(), dataclasses.replace(dataset, val="train").load()
    assert (len(alone.train.labels), len(whole.train.labels)) == (102, 110)
    with pytest.MonkeyPatch.context() as patch:
        keys = {"label": "imagelabels.mat", "setid": "setid.mat"}
        patch.setattr(Theirs, "_file_dict", {key: (name, dataset.md5[name]) for key, name in keys.items()})
        val = Theirs(str(data_folder), split="val")
    assert whole.train.labels.tolist() == [*alone.train.labels, *(label for _, label in val)]
    assert whole.train.images[102].tobytes() == val[0][0].tobytes()
    assert whole.digest != alone.digest
