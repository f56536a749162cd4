"""MedMNIST: the arrays of the package's files, checked, lazily read, and as the package describes them."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpbench_plugins.datasets import medmnist as dpbench_medmnist
from dpbench_plugins.datasets.medmnist import DermaMnist, PathMnist, PneumoniaMnist

from dpbench import DataError, DataMissing
from dpbench.support.messages import format_bytes
from dpbench.support.paths import restrict_data_search
from dpbench.testing import DatasetLaws

ALL = (DermaMnist, PathMnist, PneumoniaMnist)
Arrays = dict[str, np.ndarray]


def arrays(colour: bool = True, size: int = 28) -> Arrays:
    """What a file of the package holds, in small."""
    generator = np.random.default_rng(0)
    held = {}
    for split, count in (("train", 14), ("val", 3), ("test", 7)):
        shape = (count, size, size, *([3] if colour else []))
        held[f"{split}_images"] = generator.integers(0, 256, shape, np.uint8)
        held[f"{split}_labels"] = (np.arange(count, dtype=np.uint8) % (7 if colour else 2))[:, None]
    return held


def lay_out(folder: Path, kind: Any = DermaMnist, size: int = 28, **changed: np.ndarray) -> Any:
    """Write the file and return the dataset that expects its counts and MD5."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / (f"{kind.name}.npz" if size == 28 else f"{kind.name}_{size}.npz")
    np.savez_compressed(file, **{**arrays(kind.colour, size), **changed})  # type: ignore[arg-type]
    return few(kind, size, hashlib.md5(file.read_bytes()).hexdigest())


def few(kind: Any, size: int, md5: str) -> Any:
    fields = {"counts": (14, 7), "val_count": 3, "md5": {size: md5}, "__module__": kind.__module__}
    return type("Few", (kind,), fields)(size=size)


class TestLaws(DatasetLaws):
    dataset = few(DermaMnist, 28, "")

    @pytest.fixture(autouse=True)
    def files(self, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(type(self.dataset), "md5", lay_out(data_folder).md5)


@pytest.mark.parametrize("kind", ALL)
def test_classes_counts_licence_and_checksums_are_the_packages(kind: Any, data_folder: Path) -> None:
    from medmnist import INFO

    info = INFO[kind.name]
    assert list(kind.classes) == [info["label"][str(label)] for label in range(len(kind.classes))]
    assert len(kind.classes) == len(info["label"])
    assert kind.counts == (info["n_samples"]["train"], info["n_samples"]["test"])
    assert kind.val_count == info["n_samples"]["val"]
    assert kind.colour == (info["n_channels"] == 3)
    assert kind.licence == info["license"]
    assert kind.md5 == {28: info["MD5"], **{size: info[f"MD5_{size}"] for size in (64, 128, 224)}}


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("size", dpbench_medmnist.SIZES)
def test_addresses_and_checksums_are_those_of_the_package(kind: Any, size: int) -> None:
    from medmnist import INFO

    source, suffix = kind(size=size).source(), "" if size == 28 else f"_{size}"
    (file,) = source.downloads
    assert (file.url, file.checksum) == (INFO[kind.name][f"url{suffix}"], f"md5:{INFO[kind.name][f'MD5{suffix}']}")
    assert source.homes == ((file.path,),) == ((f"{kind.name}{suffix}.npz",),)
    assert source.size == file.size


@pytest.mark.parametrize(("kind", "size"), [(DermaMnist, 28), (PneumoniaMnist, 28), (DermaMnist, 64)])
def test_images_and_labels_are_those_that_the_package_reads(data_folder: Path, kind: Any, size: int) -> None:
    import medmnist

    splits = lay_out(data_folder, kind, size).load()
    theirs = getattr(medmnist, medmnist.INFO[kind.name]["python_class"])
    for split, name in ((splits.train, "train"), (splits.test, "test")):
        rows = theirs(name, root=str(data_folder), size=size)
        assert split.labels.tolist() == rows.labels[:, 0].tolist()
        assert split.images[3].mode == ("RGB" if kind.colour else "L")
        assert [split.images[row].tobytes() for row in (0, 6)] == [rows[row][0].tobytes() for row in (0, 6)]


def test_the_validation_split_is_left_out(data_folder: Path) -> None:
    splits = lay_out(data_folder).load()
    assert (len(splits.train.images), len(splits.test.images)) == (14, 7)


def test_the_packages_own_folder_comes_last(data_folder: Path) -> None:
    home = lay_out(Path("~/.medmnist").expanduser())
    assert home.load().train.images[0].size == (28, 28)
    other = lay_out(data_folder, train_images=np.zeros((14, 28, 28, 3), np.uint8))
    assert not any(other.load().train.images[0].tobytes())


def test_labels_and_digest_need_no_image(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = lay_out(data_folder)
    seen: list[str] = []
    read = dpbench_medmnist._read_array

    def noted(path: Path, key: str, shape: tuple[int, ...]) -> np.ndarray:
        seen.append(key)
        return read(path, key, shape)

    monkeypatch.setattr(dpbench_medmnist, "_read_array", noted)
    splits = dataset.load()
    assert seen == ["train_labels", "test_labels"]
    assert splits.train.images[1] == splits.train.images[1]
    assert seen[2:] == ["train_images"]


@pytest.mark.parametrize("key", ["train_images", "train_labels", "val_labels", "test_images"])
def test_the_digest_changes_with_the_data(data_folder: Path, key: str) -> None:
    first = lay_out(data_folder).load().digest
    assert lay_out(data_folder).load().digest == first
    changed: dict[str, Any] = {key: arrays()[key][::-1].copy()}
    assert lay_out(data_folder, **changed).load().digest != first


@pytest.mark.parametrize("kind", ALL)
def test_missing_data_says_what_to_fetch_and_where_it_looked(data_folder: Path, kind: Any) -> None:
    with pytest.raises(DataMissing) as caught:
        kind(size=224).load()
    size, command = format_bytes(kind.file_sizes[224]), f"`dpbench data fetch {kind.name}"
    for said in (f"{kind.name}_224.npz", size, command, dpbench_medmnist.RECORD, str(data_folder), ".medmnist"):
        assert said in str(caught.value)


def test_only_the_folder_of_an_import_is_looked_in(data_folder: Path, tmp_path: Path) -> None:
    dataset = lay_out(Path("~/.medmnist").expanduser())
    with restrict_data_search(tmp_path), pytest.raises(DataMissing):
        dataset.load()


def test_files_other_than_the_published_ones_are_refused(data_folder: Path) -> None:
    lay_out(data_folder)
    with pytest.raises(DataError, match=r"dermamnist\.npz: its MD5 is \w{32}, published is 0744692d"):
        DermaMnist().load()


def _spoil(content: bytes) -> bytes:
    middle = content.index(b"train_images.npy") + 2000
    return content[:middle] + bytes(byte ^ 255 for byte in content[middle : middle + 9]) + content[middle + 9 :]


@pytest.mark.parametrize("damage", [lambda content: content[:-100], lambda content: b"<html>", lambda content: b""])
def test_what_is_not_a_whole_archive_is_refused(data_folder: Path, damage: Callable[[bytes], bytes]) -> None:
    content = damage((data_folder / "dermamnist.npz").read_bytes() if lay_out(data_folder) else b"")
    (data_folder / "dermamnist.npz").write_bytes(content)
    with pytest.raises(DataError, match="Expected the arrays of MedMNIST in "):
        few(DermaMnist, 28, hashlib.md5(content).hexdigest()).load()


def test_a_large_file_is_guarded_by_the_checksums_in_it(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpbench_medmnist, "LARGE", 1000)
    lay_out(data_folder)
    file = data_folder / "dermamnist.npz"
    file.write_bytes(_spoil(file.read_bytes()))
    splits = few(DermaMnist, 28, "not looked at").load()
    with pytest.raises(DataError, match="train_images: "):
        splits.train.images[0]
    assert splits.test.images[0].size == (28, 28)


@pytest.mark.parametrize("count", [13, 15])
def test_other_counts_are_refused(data_folder: Path, count: int) -> None:
    with pytest.raises(DataError, match=rf"train_labels is uint8 \({count}, 1\), expected uint8 \(14, 1\)"):
        lay_out(data_folder, train_labels=np.zeros((count, 1), np.uint8)).load()


@pytest.mark.parametrize("channels", [[], [4]])
def test_grey_or_rgba_images_in_a_colour_set_are_refused(data_folder: Path, channels: list[int]) -> None:
    splits = lay_out(data_folder, train_images=np.zeros((14, 28, 28, *channels), np.uint8)).load()
    with pytest.raises(DataError, match=re.escape("expected uint8 (14, 28, 28, 3)")):
        splits.train.images[0]


def test_an_array_of_the_file_may_be_missing_but_is_then_named(data_folder: Path) -> None:
    lay_out(data_folder)
    file = data_folder / "dermamnist.npz"
    np.savez_compressed(file, **{key: value for key, value in arrays().items() if key != "test_labels"})  # type: ignore[arg-type]
    with pytest.raises(DataError, match="test_labels"):
        few(DermaMnist, 28, hashlib.md5(file.read_bytes()).hexdigest()).load()


def test_pickled_objects_are_not_loaded(data_folder: Path) -> None:
    with pytest.raises(DataError, match="train_labels: Object arrays cannot be loaded"):
        lay_out(data_folder, train_labels=np.array([[{}]] * 14, dtype=object)).load()


def test_the_test_files_are_of_the_packages_format(data_folder: Path) -> None:
    lay_out(data_folder)
    with zipfile.ZipFile(data_folder / "dermamnist.npz") as archive:
        assert set(archive.namelist()) == {
            f"{s}_{p}.npy" for s in ("train", "val", "test") for p in ("images", "labels")
        }


def test_the_validation_split_becomes_part_of_training_by_an_option(data_folder: Path) -> None:
    dataset = lay_out(data_folder)
    alone, whole, held = dataset.load(), dataclasses.replace(dataset, val="train").load(), arrays()
    assert (len(alone.train.images), len(whole.train.images)) == (14, 17)
    both = np.concatenate([held["train_images"], held["val_images"]])
    assert [whole.train.images[row].tobytes() for row in range(17)] == [image.tobytes() for image in both]
    assert whole.train.labels.tolist() == [*held["train_labels"][:, 0], *held["val_labels"][:, 0]]
    assert whole.test.labels.tolist() == alone.test.labels.tolist()
    assert whole.digest != alone.digest
