"""PatchCamelyon's HDF5 files: the same as torchvision reads, a share of the training split, validation as training."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import h5py
import numpy as np
import pytest
from dpbench_plugins.datasets.torchvision import Pcam
from dpbench_plugins.datasets.torchvision.pcam import hdf5

from dpbench import DataError, DataMissing, Split
from dpbench.testing import DatasetLaws

FILES = [f"camelyonpatch_level_2_split_{split}_{part}.h5" for split in ("train", "test") for part in "xy"]
VALID = [name.replace("train", "valid") for name in FILES[:2]]


class Few(Pcam):
    sizes = {"train": 24, "valid": 6, "test": 8}


def lay_out(folder: Path, **changed: np.ndarray) -> Path:
    generator = np.random.default_rng(0)
    (folder / "pcam").mkdir(exist_ok=True)
    for split, size in Few.sizes.items():
        images = generator.integers(0, 256, (size, 96, 96, 3), np.uint8)
        labels = (np.arange(size, dtype=np.uint8) % 2).reshape(-1, 1, 1, 1)
        for part, values in (("x", images), ("y", labels)):
            write(
                folder / f"pcam/camelyonpatch_level_2_split_{split}_{part}.h5", part, changed.get(split + part, values)
            )
    return folder / "pcam"


def write(file: Path, key: str, values: np.ndarray) -> None:
    with h5py.File(file, "w") as archive:
        archive.create_dataset(key, data=values, chunks=True)


class TestLaws(DatasetLaws):
    dataset = Pcam(fraction=0.5)

    @pytest.fixture(autouse=True)
    def files(self, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Pcam, "sizes", Few.sizes)
        lay_out(data_folder)


def test_images_and_labels_are_those_that_torchvision_reads(data_folder: Path) -> None:
    from torchvision.datasets import PCAM

    lay_out(data_folder)
    splits = Few().load()
    for split, name in ((splits.train, "train"), (splits.test, "test")):
        theirs = PCAM(str(data_folder), split=name)
        assert split.labels.tolist() == [label for _, label in theirs]
        for index in range(len(theirs)):
            assert split.images[index].mode == "RGB"
            assert split.images[index].tobytes() == theirs[index][0].tobytes()


def test_a_fraction_keeps_the_same_patches_always_and_smaller_ones_lie_within_larger_ones(data_folder: Path) -> None:
    lay_out(data_folder)
    kept = {}
    for fraction in (0.125, 0.5, 1.0):
        splits = Few(fraction=fraction).load()
        kept[fraction] = {splits.train.images[row].tobytes() for row in range(len(splits.train.images))}
        assert len(splits.train.labels) == len(kept[fraction]) == 24 * fraction
        assert len(splits.test.images) == 8
        assert splits.digest == Few().load().digest
    assert kept[0.125] < kept[0.5] < kept[1.0]
    assert hdf5.choose_rows_by_hash(10, 4).tolist() == [3, 4, 8, 9]  # by sha256sum of the ten digits, sorted


def test_labels_stay_with_their_patches(data_folder: Path) -> None:
    lay_out(data_folder, trainx=np.tile(np.arange(24, dtype=np.uint8)[:, None, None, None] % 2, (1, 96, 96, 3)))
    train = Few(fraction=0.3).load().train
    assert [train.images[row].getpixel((0, 0)) for row in range(7)] == [(label,) * 3 for label in train.labels]


def test_missing_data_says_what_to_fetch_and_where_it_looked(data_folder: Path) -> None:
    with pytest.raises(DataMissing) as caught:
        Pcam().load()
    for said in (*FILES, "7.2 GB", "`dpbench data fetch pcam`", hdf5.PAGE, str(data_folder), "DPBENCH_DATA"):
        assert said in str(caught.value)


@pytest.mark.parametrize(("val", "splits"), [("leave-out", ["train", "test"]), ("train", ["train", "val", "test"])])
def test_checksums_are_those_of_torchvision_and_validation_is_fetched_where_it_is_read(
    val: Literal["leave-out", "train"], splits: list[str]
) -> None:
    from torchvision.datasets import PCAM

    source = Pcam(val=val).source()
    stated = {name: f"md5:{md5}" for split in splits for name, _, md5 in PCAM._FILES[split].values()}
    assert {Path(download.path).name: download.checksum for download in source.downloads} == stated
    assert [download.url for download in source.downloads] == [
        f"{hdf5.RECORD}/files/{name}.gz?download=1" for name in stated
    ]
    assert tuple(download.path for download in source.downloads) == source.homes[0]
    assert all(download.unpack for download in source.downloads)
    assert source.size == sum(download.size for download in source.downloads)


def test_the_validation_split_becomes_part_of_training_by_an_option(data_folder: Path) -> None:
    lay_out(data_folder)
    alone, whole = Few().load(), Few(val="train").load()
    assert len(alone.train.labels) == 24
    assert len(whole.train.labels) == len(whole.train.images) == 30
    assert contents(whole.train)[:24] == contents(alone.train)
    with h5py.File(data_folder / "pcam" / VALID[0]) as file:
        assert contents(whole.train)[24:] == [row.tobytes() for row in file["x"]]
    assert contents(whole.test) == contents(alone.test)
    assert whole.digest != alone.digest


def contents(split: Split) -> list[bytes]:
    return [split.images[row].tobytes() for row in range(len(split.images))]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(data_folder: Path, name: str) -> None:
    (lay_out(data_folder) / name).unlink()
    with pytest.raises(DataMissing, match=rf"which lacks pcam/{name};"):
        Few().load()


def test_sizes_other_than_the_published_ones_are_refused(data_folder: Path) -> None:
    lay_out(data_folder)
    with pytest.raises(
        DataError, match=r"Expected uint8 \(262144, 96, 96, 3\) as 'x' in .*, got uint8 \(24, 96, 96, 3\)"
    ):
        Pcam().load()


@pytest.mark.parametrize("shape", [(24, 96, 96), (24, 96, 96, 4), (24, 64, 64, 3)])
def test_grey_rgba_or_smaller_images_are_refused(data_folder: Path, shape: tuple[int, ...]) -> None:
    lay_out(data_folder, trainx=np.zeros(shape, np.uint8))
    with pytest.raises(DataError, match=r"Expected uint8 \(24, 96, 96, 3\) as 'x'"):
        Few().load()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("keep", [0, 600])
def test_a_damaged_file_is_named(data_folder: Path, name: str, keep: int) -> None:
    file = lay_out(data_folder) / name
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(DataError, match=rf"Expected '[xy]' in HDF5 file .*{name}"):
        Few().load()


def test_a_file_with_another_table_is_named(data_folder: Path) -> None:
    write(lay_out(data_folder) / FILES[1], "labels", np.zeros(24, np.uint8))
    with pytest.raises(DataError, match=rf"Expected 'y' in HDF5 file .*{FILES[1]}: its keys are labels\."):
        Few().load()


def test_more_labels_than_images_are_refused(data_folder: Path) -> None:
    lay_out(data_folder, trainy=np.zeros((25, 1, 1, 1), np.uint8))
    with pytest.raises(DataError, match=r"Expected one label an image, got 24 images in .* and 25 labels in .*\. Down"):
        Few().load()


def test_a_label_that_is_neither_0_nor_1_is_refused(data_folder: Path) -> None:
    lay_out(data_folder, testy=np.full((8, 1, 1, 1), 2, np.uint8))
    with pytest.raises(DataError, match=rf"Expected labels 0 and 1 in .*{FILES[3]}, got 2\."):
        Few().load()


@pytest.mark.parametrize("change", ["trainx", "trainy", "testx", "testy"])
def test_the_digest_changes_with_the_data(data_folder: Path, change: str) -> None:
    lay_out(data_folder)
    first = Few().load().digest
    size = Few.sizes[change[:-1]]
    shape = (size, 96, 96, 3) if change[-1] == "x" else (size, 1, 1, 1)
    lay_out(data_folder, **{change: np.ones(shape, np.uint8)})
    assert Few().load().digest != first


def test_without_h5py_the_message_says_what_to_install(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(data_folder)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(DataError, match="pip install h5py"):
        Few().load()
