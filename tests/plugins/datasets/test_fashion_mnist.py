"""Fashion-MNIST from idx files, packed or not, from any of the places where people have them."""

from __future__ import annotations

import gzip
import hashlib
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpbench_plugins.datasets.torchvision import FashionMnist, fashion_mnist

from dpbench import DataError, DataMissing
from dpbench.support.paths import restrict_data_search
from dpbench.testing import DatasetLaws

REAL = fashion_mnist.DEBIAN
TRAIN, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def idx(values: np.ndarray) -> bytes:
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    return header + values.astype(np.uint8).tobytes()


def contents() -> dict[str, bytes]:
    generator = np.random.default_rng(0)
    arrays = {}
    for split, size in (("train", 30), ("t10k", 20)):
        arrays[f"{split}-images-idx3-ubyte"] = generator.integers(0, 256, (size, 28, 28))
        arrays[f"{split}-labels-idx1-ubyte"] = np.arange(size) % 10
    return {name: idx(array) for name, array in arrays.items()}


def lay_out(folder: Path, packed: bool = True, **changed: bytes) -> FashionMnist:
    """Write the four files and return the dataset that expects their sizes and MD5."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: changed.get(name.replace("-", "_"), content) for name, content in contents().items()}
    if packed:
        files = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in files.items()}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return few({name: hashlib.md5(content).hexdigest() for name, content in files.items()} if packed else None)


def few(md5: dict[str, str] | None = None) -> FashionMnist:
    fields = {"sizes": {"train": 30, "t10k": 20}, "md5": md5 or FashionMnist.md5}
    kind: Any = type("Few", (FashionMnist,), {**fields, "__module__": FashionMnist.__module__})
    return kind()  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of Debian's package for this test alone, empty."""
    folder = tmp_path / "usr/share/datasets/fashion-mnist"
    monkeypatch.setattr(fashion_mnist, "DEBIAN", folder)
    return folder


class TestLaws(DatasetLaws):
    dataset = few()

    @pytest.fixture(autouse=True)
    def files(self, data_folder: Path) -> None:
        lay_out(data_folder / "fashion-mnist", packed=False)


@pytest.mark.parametrize("packed", [True, False])
def test_images_and_labels_are_those_that_torchvision_reads(data_folder: Path, packed: bool) -> None:
    from torchvision.datasets import FashionMNIST

    raw = data_folder / "FashionMNIST/raw"
    splits = lay_out(raw, packed).load()
    lay_out(raw, packed=False)  # torchvision keeps both
    for split, train in ((splits.train, True), (splits.test, False)):
        theirs = FashionMNIST(str(data_folder), train=train)
        assert split.labels.tolist() == theirs.targets.tolist()
        for index in (0, 7, len(split.labels) - 1):
            assert split.images[index].mode == "L"
            assert split.images[index].tobytes() == theirs[index][0].tobytes()
    assert list(FashionMnist.classes) == FashionMNIST.classes


@pytest.mark.parametrize("below", ["FashionMNIST/raw", "fashion-mnist", "."])
def test_the_digest_is_the_same_from_everywhere_packed_or_not(data_folder: Path, debian: Path, below: str) -> None:
    expected = lay_out(debian).load().digest
    (debian / f"{TRAIN}.gz").unlink()
    assert lay_out(data_folder / below, packed=False).load().digest == expected
    assert lay_out(data_folder / below).load().digest == expected


def test_debians_package_may_pack_its_files_anew(debian: Path) -> None:
    lay_out(debian)
    assert len(few().load().train.images) == 30


def test_the_digest_changes_with_the_data(debian: Path) -> None:
    first = lay_out(debian).load().digest
    assert lay_out(debian, train_labels_idx1_ubyte=idx(np.zeros(30))).load().digest != first


def test_files_other_than_the_published_ones_are_refused(data_folder: Path) -> None:
    lay_out(data_folder)
    with pytest.raises(DataError, match=r"Expected MD5 8d4fb7\w+ of .*train-images-idx3-ubyte\.gz, got"):
        few().load()


def test_some_of_the_files_are_not_enough(data_folder: Path) -> None:
    dataset = lay_out(data_folder)
    (data_folder / f"{LABELS}.gz").unlink()
    with pytest.raises(DataMissing):
        dataset.load()


def test_missing_data_names_command_package_and_folders(data_folder: Path, debian: Path) -> None:
    with pytest.raises(DataMissing) as caught:
        FashionMnist().load()
    for said in (
        "On Debian, install dataset-fashion-mnist",
        "`dpbench data fetch fashion-mnist`",
        str(debian),
        str(data_folder),
        "31 MB",
        fashion_mnist.PAGE,
        "DPBENCH_DATA",
    ):
        assert said in str(caught.value)


def test_only_the_folder_of_an_import_is_looked_in(data_folder: Path, debian: Path, tmp_path: Path) -> None:
    lay_out(debian)
    with restrict_data_search(tmp_path), pytest.raises(DataMissing):
        few().load()


def test_addresses_and_checksums_are_those_of_torchvision() -> None:
    from torchvision.datasets import FashionMNIST

    source = FashionMnist().source()
    stated = {FashionMNIST.mirrors[0] + name: f"md5:{md5}" for name, md5 in FashionMNIST.resources}
    assert {download.url: download.checksum for download in source.downloads} == stated
    assert tuple(download.path for download in source.downloads) == source.homes[0]
    assert source.size == sum(download.size for download in source.downloads)


@pytest.mark.parametrize(
    "damage", [lambda packed: packed[:-20], lambda packed: packed[:-8] + b"12345678", lambda packed: b"<html>"]
)
def test_a_damaged_archive_is_named(debian: Path, damage: Callable[[bytes], bytes]) -> None:
    dataset = lay_out(debian)
    file = debian / f"{TRAIN}.gz"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataError, match=r"Expected a complete file .*train-images-idx3-ubyte\.gz"):
        dataset.load()


@pytest.mark.parametrize(
    "content",
    [
        contents()[TRAIN][:-1],
        contents()[TRAIN] + b"0",
        contents()[LABELS],
        b"",
        idx(np.zeros((30, 28, 27))),
        idx(np.zeros((31, 28, 28))),
        b"\0\0\x0d" + contents()[TRAIN][3:],
    ],
)
def test_another_magic_number_or_size_is_refused(data_folder: Path, content: bytes) -> None:
    with pytest.raises(DataError, match=r"Expected train-images-idx3-ubyte.* to start with 00000803"):
        lay_out(data_folder, packed=False, train_images_idx3_ubyte=content).load()


@pytest.mark.skipif(not REAL.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_debians_package_holds_the_published_images(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fashion_mnist, "DEBIAN", REAL)
    splits = fashion_mnist.FashionMnist().load()
    assert (len(splits.train.images), len(splits.test.images)) == (60_000, 10_000)
    assert splits.train.labels[:5].tolist() == [9, 0, 0, 3, 0]
    assert splits.digest == "4d8e31d2057f6f938ff47097ba334038e7aafbaf24b67665d2dd1ecda01730a3"
