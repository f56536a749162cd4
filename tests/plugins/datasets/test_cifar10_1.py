"""CIFAR-10.1: its NumPy files, and a run with it as public data."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpbench_plugins.datasets.cifar10_1 import FOLDER, IMAGES, Cifar101

from dpbench import DataError, DataMissing, SpecError, registry
from dpbench.records.spec import make_spec
from dpbench.testing import DatasetLaws
from tests.helpers.sessions import session

FIRST, SECOND = (f"cifar10.1_v6_{part}.npy" for part in ("data", "labels"))


def lay_out(folder: Path, version: str = "v6") -> Path:
    """Write look-alikes of both files and return their folder."""
    place = folder / FOLDER
    place.mkdir(parents=True, exist_ok=True)
    generator, size = np.random.default_rng(7), IMAGES[version]
    pixels = generator.integers(0, 256, (size, 32, 32, 3), dtype=np.uint8)
    np.save(place / f"cifar10.1_{version}_data.npy", pixels)
    np.save(place / f"cifar10.1_{version}_labels.npy", np.arange(size, dtype=np.int32) % 10)
    return place


class TestLaws(DatasetLaws):
    dataset = Cifar101()

    @pytest.fixture(autouse=True)
    def files(self, data_folder: Path) -> None:
        lay_out(data_folder)


@pytest.mark.parametrize(("version", "size"), [("v4", 2021), ("v6", 2000)])
def test_every_image_is_for_training_and_none_for_testing(data_folder: Path, version: Any, size: int) -> None:
    place = lay_out(data_folder, version)
    splits = Cifar101(version).load()
    assert (len(splits.train.images), len(splits.test.images), len(splits.test.labels)) == (size, 0, 0)
    pixels = np.load(place / f"cifar10.1_{version}_data.npy")
    assert (np.array(splits.train.images[5]) == pixels[5]).all()
    assert splits.train.labels.dtype == np.int64
    assert splits.train.labels[:12].tolist() == [*range(10), 0, 1]


def test_versions_have_digests_of_their_own(data_folder: Path) -> None:
    for version in IMAGES:
        lay_out(data_folder, version)
    assert Cifar101("v4").load().digest != Cifar101("v6").load().digest


def test_an_array_has_the_size_that_the_download_states() -> None:
    for version, size in IMAGES.items():
        header = 128  # of NumPy's format as the files have it
        assert Cifar101.published[f"{version}_data"][0] == header + size * 32 * 32 * 3
        assert Cifar101.published[f"{version}_labels"][0] == header + size * 4


def test_downloads_lead_home() -> None:
    source = Cifar101("v4").source()
    assert [download.path for download in source.downloads] == list(source.homes[0])
    assert all(
        download.url.endswith(Path(download.path).name) and len(download.checksum) == 7 + 64
        for download in source.downloads
    )


@pytest.mark.parametrize(
    ("name", "array"),
    [
        (FIRST, np.zeros((2000, 3, 32, 32), np.uint8)),
        (FIRST, np.zeros((2000, 32, 32, 3), np.float32)),
        (FIRST, np.zeros((2021, 32, 32, 3), np.uint8)),  # v4 under the name of v6
        (SECOND, np.zeros((1999,), np.int32)),
        (SECOND, np.zeros((2000,), np.float64)),
        (SECOND, np.full((2000,), 10, np.int32)),
        (SECOND, np.full((2000,), -1, np.int32)),
    ],
)
def test_other_arrays_are_refused_by_name(data_folder: Path, name: str, array: np.ndarray) -> None:
    place = lay_out(data_folder)
    np.save(place / name, array)
    with pytest.raises(DataError, match=rf"Expected an array .* in {place / name}, got .* Download it again"):
        Cifar101().load()


@pytest.mark.parametrize("name", [FIRST, SECOND])
@pytest.mark.parametrize("keep", [0, 3, 60, 200, -1])
def test_a_damaged_file_is_refused_by_name(data_folder: Path, name: str, keep: int) -> None:
    place = lay_out(data_folder)
    (place / name).write_bytes((place / name).read_bytes()[:keep])
    with pytest.raises(DataError, match=f"Expected a NumPy array in {place / name}"):
        Cifar101().load()


def test_pickled_objects_are_refused(data_folder: Path) -> None:
    place = lay_out(data_folder)
    np.save(place / SECOND, np.array([print], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="allow_pickle"):
        Cifar101().load()
    (place / SECOND).write_bytes(pickle.dumps([0]))
    with pytest.raises(DataError, match="Expected a NumPy array"):
        Cifar101().load()


def test_missing_files_are_named_with_command_size_and_page(data_folder: Path) -> None:
    (lay_out(data_folder) / SECOND).unlink()
    with pytest.raises(DataMissing) as refusal:
        Cifar101().load()
    for part in (
        f"lacks {FOLDER}/{SECOND}",
        "dpbench data fetch cifar10.1",
        "6 MB",
        "github.com/modestyachts/CIFAR-10.1",
    ):
        assert part in str(refusal.value)


def test_another_version_is_refused() -> None:
    with pytest.raises(SpecError, match="version=v5"):
        registry.load().build("dataset", "cifar10.1", {"version": "v5"})


@pytest.mark.slow
def test_it_is_public_data_for_cifar10(
    data_folder: Path, cifar_mirror: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(data_folder)
    monkeypatch.setenv("DPBENCH_DATA", f"{cifar_mirror}:{data_folder}")
    values = {
        "dataset": "cifar10",
        "public_dataset": "cifar10.1",
        "learner": "pillar:k=4,steps=3",
        "extractor": "pixels",
        "seeds": 1,
    }
    task = session().run(make_spec(values, "the test")).task
    assert (task.private, task.public, task.test, task.example_shape) == (1000, 2000, 200, (3072,))
    assert task.digests["public"] == Cifar101().load().digest != task.digests["private"]
