"""CIFAR-100 from its pickles: read without running them, checked, and the same as torchvision reads."""

from __future__ import annotations

import hashlib
import pickle
import struct
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpbench_plugins.datasets.torchvision import Cifar100, cifar100
from dpbench_plugins.datasets.torchvision.pickles import read_arrays

from dpbench import DataError, DataMissing
from dpbench.testing import DatasetLaws

SIZES = {"train": 200, "test": 20}
MINUS_ONE = b"J\xff\xff\xff\xff"


def text(value: bytes) -> bytes:
    """A string of Python 2, which Python 3 no longer writes."""
    return b"T" + struct.pack("<i", len(value)) + value


def numbers(values: Sequence[int]) -> bytes:
    return b"](" + b"".join(b"J" + struct.pack("<i", value) for value in values) + b"e"


def array(values: np.ndarray, module: str = "numpy.core.multiarray") -> bytes:
    """A uint8 array as Python 2 and numpy 1 pickled it: an empty one, then its state."""
    shape = b"(" + b"".join(b"J" + struct.pack("<i", size) for size in values.shape) + b"t"
    empty = f"c{module}\n_reconstruct\n".encode() + b"(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR"
    dtype = b"cnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR(K\x03" + text(b"|") + b"NNN" + MINUS_ONE * 2 + b"K\x00tb"
    return empty + b"(K\x01" + shape + dtype + b"\x89" + text(values.tobytes()) + b"tb"


def pickled(items: Mapping[str, bytes]) -> bytes:
    pairs = b"".join(text(key.encode()) + value for key, value in items.items())
    return b"\x80\x02}(" + pairs + b"u."


def batch(split: str) -> dict[str, bytes]:
    size = SIZES[split]
    pixels = np.random.default_rng(size).integers(0, 256, (size, 3072), np.uint8)
    names = b"](" + b"".join(text(f"image_{row}.png".encode()) for row in range(size)) + b"e"
    return {
        "filenames": names,
        "batch_label": text(b"one of one"),
        "fine_labels": numbers([row % 100 for row in range(size)]),
        "coarse_labels": numbers([row % 20 for row in range(size)]),
        "data": array(pixels),
    }


def lay_out(folder: Path, **contents: bytes) -> Cifar100:
    """Write both files and return the dataset that expects their MD5."""
    files = {split: contents.get(split, pickled(batch(split))) for split in SIZES}
    (folder / "cifar-100-python").mkdir(exist_ok=True)
    for split, content in files.items():
        (folder / "cifar-100-python" / split).write_bytes(content)
    published = {split: hashlib.md5(content).hexdigest() for split, content in files.items()}
    few: Any = type("Few", (Cifar100,), {"md5": published, "__module__": Cifar100.__module__})
    return few()  # type: ignore[no-any-return]


class TestLaws(DatasetLaws):
    dataset = Cifar100()

    @pytest.fixture(autouse=True)
    def files(self, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Cifar100, "md5", lay_out(data_folder).md5)


def test_images_and_labels_are_those_that_torchvision_reads(data_folder: Path) -> None:
    from torchvision.datasets import CIFAR100

    splits = lay_out(data_folder).load()
    names = [f"{kind}{row}" for kind in "fc" for row in range(100)]
    meta = pickle.dumps({"fine_label_names": names[:100], "coarse_label_names": names[100:120]}, 2)
    (data_folder / "cifar-100-python/meta").write_bytes(meta)

    class Theirs(CIFAR100):  # type: ignore[misc]
        train_list = [["train", None]]
        test_list = [["test", None]]
        meta = {**CIFAR100.meta, "md5": None}

    for split, train in ((splits.train, True), (splits.test, False)):
        theirs = Theirs(str(data_folder), train=train)
        assert split.labels.tolist() == theirs.targets
        for index in (0, 7, len(split.labels) - 1):
            assert split.images[index].mode == "RGB"
            assert split.images[index].tobytes() == theirs[index][0].tobytes()


def test_fine_and_coarse_labels_are_of_the_same_images(data_folder: Path) -> None:
    few = lay_out(data_folder)
    fine, coarse = few.load(), type(few)(labels="coarse").load()
    assert fine.digest == coarse.digest
    assert (fine.train.labels % 20 == coarse.train.labels).all()
    assert len(Cifar100(labels="coarse").classes) == 20
    assert len(Cifar100().classes) == len(Cifar100.classes) == 100
    for classes in (Cifar100().classes, Cifar100(labels="coarse").classes):
        assert list(classes) == sorted(classes)


def test_the_digest_changes_with_the_data(data_folder: Path) -> None:
    first = lay_out(data_folder).load().digest
    other = {**batch("test"), "fine_labels": numbers([1] * 20)}
    assert lay_out(data_folder, test=pickled(other)).load().digest != first


def test_files_other_than_the_published_ones_are_refused(data_folder: Path) -> None:
    lay_out(data_folder)
    with pytest.raises(DataError, match=r"Expected MD5 16019d7e\w+ of .*cifar-100-python/train, got"):
        Cifar100().load()


def test_missing_data_says_what_to_fetch_and_where_it_looked(data_folder: Path) -> None:
    with pytest.raises(DataMissing) as caught:
        Cifar100().load()
    for said in ("{train,", "169 MB", "`dpbench data fetch cifar100`", cifar100.PAGE, str(data_folder)):
        assert said in str(caught.value)


@pytest.mark.parametrize("split", SIZES)
def test_a_missing_part_is_named(data_folder: Path, split: str) -> None:
    dataset = lay_out(data_folder)
    (data_folder / "cifar-100-python" / split).unlink()
    with pytest.raises(DataMissing, match=f"which lacks cifar-100-python/{split};"):
        dataset.load()


def test_addresses_and_checksums_are_those_of_torchvision() -> None:
    from torchvision.datasets import CIFAR100

    (archive,) = Cifar100().source().downloads
    assert (archive.url, archive.checksum) == (CIFAR100.url, f"md5:{CIFAR100.tgz_md5}")
    assert archive.url.endswith(f"/{CIFAR100.base_folder}.tar.gz")
    assert Cifar100().source().size == archive.size
    assert Cifar100.md5 == dict([*CIFAR100.train_list, *CIFAR100.test_list])


def test_the_archive_unpacks_to_where_the_files_are_looked_for(data_folder: Path, tmp_path: Path) -> None:
    dataset = lay_out(tmp_path)
    with tarfile.open(tmp_path / "published", "w:gz") as archive:
        archive.add(tmp_path / "cifar-100-python", "cifar-100-python")
    with tarfile.open(tmp_path / "published") as archive:
        archive.extractall(data_folder / dataset.source().downloads[0].path, filter="data")
    assert len(dataset.load().train.images) == SIZES["train"]


class Hostile:
    def __init__(self, call: Callable[..., object], *arguments: object) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call, self.arguments


def test_a_hostile_pickle_is_refused_and_does_not_run_even_under_the_right_md5(data_folder: Path) -> None:
    proof = data_folder / "proof"
    few = lay_out(data_folder, train=pickle.dumps(Hostile(Path.mkdir, proof), 2))
    with pytest.raises(DataError, match="it asks for "):
        few.load()
    assert not proof.exists()


@pytest.mark.parametrize(
    "wanted", ["os system", "builtins eval", "builtins getattr", "numpy fromfile", "numpy.core.multiarray fromfile"]
)
def test_only_what_rebuilds_arrays_is_found(wanted: str) -> None:
    module, name = wanted.split()
    for content in (
        f"\x80\x02c{module}\n{name}\n.",
        f"\x80\x04\x8c{chr(len(module))}{module}\x8c{chr(len(name))}{name}\x93.",
    ):
        with pytest.raises(DataError, match=f"it asks for {module}.{name}, which arrays do not need"):
            read_arrays(content.encode("latin1"), "here")


@pytest.mark.parametrize("module", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_arrays_of_numpy_1_and_2_are_read(module: str) -> None:
    values = np.arange(6, dtype=np.uint8).reshape(2, 3)
    held = read_arrays(pickled({"data": array(values, module)}), "here")
    assert (held[b"data"] == values).all()


@pytest.mark.parametrize("damage", [b"", b"no pickle", pickled(batch("train"))[:-3000], b"\x80\x02N."])
def test_a_damaged_file_is_named_even_under_the_right_md5(data_folder: Path, damage: bytes) -> None:
    with pytest.raises(DataError, match=r"in .*cifar-100-python/train"):
        lay_out(data_folder, train=damage).load()


@pytest.mark.parametrize(
    "change",
    [
        {"fine_labels": numbers([1] * 19)},
        {"data": array(np.zeros((20, 3071), np.uint8))},
        {"data": numbers([1] * 20)},
        {"fine_labels": b"](" + text(b"cat") + b"e"},
    ],
)
def test_contents_of_another_shape_are_refused(data_folder: Path, change: dict[str, bytes]) -> None:
    with pytest.raises(DataError, match=r"uint8 data \(n, 3072\) and n fine_labels"):
        lay_out(data_folder, test=pickled({**batch("test"), **change})).load()
