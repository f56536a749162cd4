"""Features are found by the images themselves: what was extracted once is never extracted again."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from dpbench_plugins.datasets.image_folders import ImageFolder
from dpbench_plugins.extractors.pixels import Pixels
from PIL import Image
from torch import Tensor

from dpbench import DataError, Dataset, Extractor, Records, Split, Splits
from dpbench.data import cache, duplicates, extraction, outlook
from dpbench.data.holdings import list_cache_entries
from dpbench.data.keys import identify_images
from dpbench.errors import LawBroken, OutputError
from dpbench.harness.roles import extract_examples_by_role
from dpbench.harness.source import DataSource
from dpbench.harness.split_images import assign_images
from dpbench.records.protocol import SplitRule
from dpbench.records.spec import make_spec
from dpbench.support import progress
from dpbench.testing import DatasetLaws
from tests.harness.test_roles import parts
from tests.helpers.commands import Output, call

CPU = torch.device("cpu")
TRAIN, TEST = 20, 5  # images of each of two classes


def write(file: Path, seed: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (6, 6, 3), np.uint8)).save(file)


@pytest.fixture
def photos(tmp_path: Path, fresh_cache: Path) -> Path:
    for split, count, first in (("train", TRAIN, 0), ("test", TEST, 1000)):
        for kind in range(2):
            for number in range(count):
                file = tmp_path / "photos" / split / f"class{kind}" / f"p{number // 2}_{number}.png"
                write(file, first + 100 * kind + number)
    return tmp_path / "photos"


@pytest.fixture
def extracted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each extraction since then was of."""
    counts: list[int] = []
    real = extraction.extract_features

    def counting(images: Any, extractor: Extractor, folder: Path, device: Any, rows: Sequence[int], keys: Any) -> Any:
        counts.append(len(rows))
        return real(images, extractor, folder, device, rows, keys)

    monkeypatch.setattr(extraction, "extract_features", counting)
    return counts


def features(dataset: Dataset, extractor: Extractor | None = None, share: float = 0.25) -> Tensor:
    """Prepare the features of a run, and return those of the training split."""
    spec = make_spec({"learner": "any", "delta": 1e-3, "unit": "image", "public_fraction": share}, "the test")
    images = assign_images(DataSource(parts(dataset, None, extractor or Pixels()), spec.split_rule, CPU), spec.budget)
    train = extract_examples_by_role(images).private.x
    images.load_test_split()
    return train


def table(folder: Path) -> Path:
    file = folder.parent / "patients.csv"
    places = sorted(str(file.relative_to(folder)) for file in folder.rglob("*.png"))
    file.write_text("file,unit\n" + "".join(f"{place},{place.split('_')[0]}\n" for place in places))
    return file


def with_patients(photos: Path) -> None:
    features(ImageFolder(str(photos), units=str(table(photos)), unit="patient"))


def with_another_public_share(photos: Path) -> None:
    features(ImageFolder(str(photos)), share=0.5)


def by_advise(photos: Path) -> None:
    from dpbench_lab.advise.folder import open_public_folder_data

    open_public_folder_data(photos, SplitRule(0.25, 1.0, None, 0), Pixels(), CPU)


def with_other_labels(photos: Path) -> None:
    (photos / "train" / "class0" / "p0_0.png").rename(photos / "train" / "class1" / "moved.png")
    features(ImageFolder(str(photos)))


def in_a_zip(photos: Path) -> None:
    with zipfile.ZipFile(photos.parent / "photos.zip", "w") as archive:
        for file in photos.rglob("*.png"):
            archive.write(file, file.relative_to(photos))
    features(ImageFolder(str(photos.parent / "photos.zip")))


def with_three_images_more(photos: Path) -> None:
    for number in range(3):
        write(photos / "train" / f"class{number % 2}" / f"new{number}.png", 5000 + number)
    features(ImageFolder(str(photos)))


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("again", "count"),
    [
        (with_patients, 0), (with_another_public_share, 0), (with_other_labels, 0), (in_a_zip, 0),
        pytest.param(by_advise, 0, marks=pytest.mark.lab),
        (with_three_images_more, 3),
    ],
)  # fmt: skip
def test_only_new_images_are_extracted(
    photos: Path, extracted: list[int], again: Callable[[Path], None], count: int
) -> None:
    features(ImageFolder(str(photos)))
    assert extracted == [2 * TRAIN, 2 * TEST]
    again(photos)
    assert sum(extracted[2:]) == count


@pytest.mark.lab
def test_a_run_extracts_what_advise_has_not(photos: Path, extracted: list[int]) -> None:
    by_advise(photos)
    features(ImageFolder(str(photos)))
    assert extracted == [10, 30, 2 * TEST]


def test_a_folder_that_has_grown_has_the_features_of_a_new_one(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features(ImageFolder(str(photos)))
    with_three_images_more(photos)
    grown = features(ImageFolder(str(photos))).clone()
    monkeypatch.setenv("DPBENCH_CACHE", str(tmp_path / "another"))
    assert torch.equal(features(ImageFolder(str(photos))), grown)
    assert len(grown) == 2 * TRAIN + 3


def test_each_mode_has_features_of_its_own(photos: Path) -> None:
    assert features(ImageFolder(str(photos))).shape[1] == 3 * features(ImageFolder(str(photos), mode="L")).shape[1]


def test_copies_are_not_looked_for_again_with_a_patient_table(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ImageFolder(str(photos)).load()
    owned = ImageFolder(str(photos), units=str(table(photos)), unit="patient").load()
    assert plain.digest != owned.digest
    first = duplicates.compute_hashes(plain.train, plain.digest, "train")
    monkeypatch.setattr(duplicates, "hash_images", None)
    assert duplicates.compute_hashes(owned.train, owned.digest, "train").digest == first.digest


def twin(content: bytes) -> bytes:
    """Return other bytes of the same length and CRC-32: the last four undo what a change before them does."""
    changed = content[:-5] + bytes([content[-5] ^ 1])
    start = zlib.crc32(changed + bytes(4))
    effect = [zlib.crc32(changed + (1 << bit).to_bytes(4)) ^ start for bit in range(32)]
    rows = [(column, 1 << bit) for bit, column in enumerate(effect)]
    wanted, chosen = zlib.crc32(content) ^ start, 0
    for bit in range(32):  # elimination over two elements
        pivot = next(row for row in rows if row[0] >> bit & 1)
        rows = [(a ^ pivot[0], b ^ pivot[1]) if a >> bit & 1 else (a, b) for a, b in rows if (a, b) != pivot]
        if wanted >> bit & 1:
            wanted, chosen = wanted ^ pivot[0], chosen ^ pivot[1]
    return changed + chosen.to_bytes(4)


def test_images_of_one_checksum_are_not_taken_for_each_other(photos: Path) -> None:
    """A CRC-32, which the digest of a folder is made of, is no key."""
    file = photos / "train" / "class0" / "p0_0.ppm"
    Image.open(photos / "train" / "class0" / "p0_0.png").save(file)
    before, digest = features(ImageFolder(str(photos))).clone(), ImageFolder(str(photos)).load().digest
    file.write_bytes(twin(file.read_bytes()))
    assert ImageFolder(str(photos)).load().digest == digest
    assert (features(ImageFolder(str(photos))) != before).any(1).sum() == 1


@pytest.mark.slow
def test_shards_are_of_the_very_images_that_they_were_made_of(
    photos: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An extraction of new images that stops, and goes on where other images are new."""
    monkeypatch.setattr(extraction, "SHARD", 2)
    features(ImageFolder(str(photos)))
    first = next(path for path in (fresh_cache / "features").glob("*/keys.bin") if path.stat().st_size == 64 * TRAIN)
    with_new = [photos / "train" / f"class{number % 2}" / f"new{number}.png" for number in range(4)]
    for number, file in enumerate(with_new):
        write(file, 5000 + number)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(cache, "_write_keys", interrupted)
        features(ImageFolder(str(photos)))
    assert len(list((fresh_cache / "features").glob("*.partial/shard-*"))) == 2
    shutil.rmtree(first.parent)
    found = features(ImageFolder(str(photos))).clone()
    monkeypatch.setenv("DPBENCH_CACHE", str(fresh_cache / "another"))
    assert torch.equal(found, features(ImageFolder(str(photos))))


def interrupted(*_: object) -> str:
    raise KeyboardInterrupt


@pytest.mark.lab
def test_a_damaged_entry_lends_no_row_and_is_named(
    photos: Path, fresh_cache: Path, extracted: list[int], capsys: Output
) -> None:
    features(ImageFolder(str(photos)))
    for file in (fresh_cache / "features").glob("*/features.npy"):
        file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
    by_advise(photos)
    assert extracted[2:] == [10]
    assert capsys.readouterr().err.count("features.npy fails its checksum. Nothing of it is used.") == 1


@pytest.mark.lab
def test_features_of_two_versions_of_torch_are_not_mixed(
    photos: Path, extracted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    features(ImageFolder(str(photos)))
    monkeypatch.setattr(extraction, "describe_environment", lambda engine: "another torch")
    by_advise(photos)
    assert extracted[2:] == [10]
    with_three_images_more(photos)
    assert sum(extracted[3:]) == 2 * TRAIN + 3 - 10


@pytest.mark.lab
@pytest.mark.parametrize("kind", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
def test_advise_reads_what_a_folder_reads_and_names_it_alike(tmp_path: Path, kind: str) -> None:
    ending = "tif" if kind == "CMYK" else "png"
    for split, name in (("train", "a"), ("train", "b"), ("test", "a"), ("test", "b")):
        write(tmp_path / split / name / f"1.{ending}", 1)
        Image.open(tmp_path / split / name / f"1.{ending}").convert(kind).save(tmp_path / split / name / f"1.{ending}")
    from dpbench_lab.advise.folder import READER, read_image

    images = ImageFolder(str(tmp_path)).load().train.images
    assert isinstance(images, Records)
    assert images.reader == READER
    assert images[0].tobytes() == read_image(str(tmp_path / "train" / "a" / f"1.{ending}")).tobytes()


def test_keys_that_identify_no_image_are_refused() -> None:
    def read(place: int) -> Image.Image:
        return Image.new("L", (2, 2), place)

    with pytest.raises(DataError, match="to name their reader"):
        Records([1], read, keys=[bytes(32)])
    with pytest.raises(DataError, match="a key for each of 2 records, got 1"):
        Records([1, 2], read, keys=[bytes(32)], reader="grey-1")
    crc = Records([1], read, keys=[zlib.crc32(b"1").to_bytes(4)], reader="grey-1")
    with pytest.raises(DataError, match=r"Expected the SHA-256 of stored bytes \(32 bytes\)"):
        identify_images(Split(crc, np.zeros(1, np.int64)), "data", "train")


@pytest.mark.parametrize("key", [lambda level: level % 2, lambda level: secrets.randbits(8)])
def test_the_laws_refuse_keys_that_images_share_and_keys_that_change(key: Callable[[int], int]) -> None:
    @dataclass(frozen=True)
    class Greys(Dataset):
        name: ClassVar[str] = "greys"
        classes: ClassVar[tuple[str, ...]] = ("dark", "light")
        licence: ClassVar[str] = "CC0"
        citation: ClassVar[str] = "none"

        def load(self) -> Splits:
            keys = [hashlib.sha256(bytes([key(level)])).digest() for level in range(4)]
            records = Records(range(4), partial(Image.new, "L", (2, 2)), keys=keys, reader="grey-1")
            split = Split(records, np.array([0, 0, 1, 1]))
            return Splits(split, split, "greys")

    class Laws(DatasetLaws):
        dataset = Greys()

    with pytest.raises(LawBroken, match=r"keys of images change|shares the key"):
        Laws().test_keys_tell_images_apart()


def test_places_that_are_bytes_are_their_own_keys() -> None:
    def keys(places: list[bytes], reader: str) -> tuple[str, bool]:
        records = Records(places, lambda place: Image.frombytes("L", (1, 1), place), "as published", reader=reader)
        found = identify_images(Split(records, np.zeros(len(places), np.int64)), "data", "train")
        return found.digest, found.keys is not None

    assert keys([b"1", b"2"], "grey-1") == keys([b"1", b"2"], "grey-1")
    assert len({keys(places, reader) for places in ([b"1", b"2"], [b"2", b"1"]) for reader in ("a", "b")}) == 4
    assert not keys([b"1"], "")[1]


def test_a_long_extraction_says_how_long_how_large_and_what_is_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """Once, after the first batches; a shorter extraction says how long alone."""
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=10**12))
    for images, at in ((262_144, 3.2), (1_000, 3.2)):
        clock = iter([0.0, at / 2, at, 2 * at])
        monkeypatch.setattr(progress, "monotonic", lambda clock=clock: next(clock))
        told = outlook.ExtractionEstimate(Network(), CPU, tmp_path, images)
        for done in (32, 64, 96, 128):
            told.update(np.zeros((32, 1280), np.float32), 224, images - done, images)
    assert capsys.readouterr().err.splitlines() == [
        "Extracting resnet50: 262,048 to go at 20 a second, 3 h 38 min. On disk: 1.3 GB in the end, 2.7 GB until then. "
        "Faster: size=128 of resnet50 (about 3 times, if its network takes that size), or the extractor "
        "efficientnet-lite0:size=128, or a GPU."
    ]


class Network(Pixels):
    """No extractor that leaves numbers as they are."""

    name: ClassVar[str] = "resnet50"
    identity: ClassVar[bool] = False


def test_what_is_faster_fits_the_extractor() -> None:
    assert outlook.suggest_faster_extraction(Network(), 224, CPU) == (
        "size=128 of resnet50 (about 3 times, if its network takes that size), or the extractor "
        "efficientnet-lite0:size=128, or a GPU"
    )
    assert (
        outlook.suggest_faster_extraction(Network(), 128, torch.device("cuda"))
        == "the extractor efficientnet-lite0:size=128"
    )


def test_features_that_do_not_fit_on_the_disk_are_refused_after_a_batch(
    photos: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = 6 * 6 * 3 * 4
    monkeypatch.setattr(extraction, "SHARD", 8)
    disk = SimpleNamespace(free=2 * 2 * TRAIN * row - 1)  # the features, and all shards until they are whole
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: disk)
    with pytest.raises(OutputError, match=r"^Expected 1 MB free for the features of 40 images \(1 MB in the end\) in "):
        features(ImageFolder(str(photos)))
    assert not list((fresh_cache / "features").rglob("shard-*"))
    disk.free += 1
    features(ImageFolder(str(photos)))


def test_entries_of_earlier_versions_are_listed_as_unused(fresh_cache: Path) -> None:
    entry = fresh_cache / "features" / hashlib.sha256(b"old").hexdigest()[:32]
    entry.mkdir(parents=True)
    made = {"data": "d", "split": "train", "rows": 9, "extractor": "pixels", "options": {}}
    (entry / "manifest.json").write_text(json.dumps(made))
    assert [entry.what for entry in list_cache_entries()] == [
        "9 train examples by pixels (not used: of an earlier version)"
    ]
    assert call("cache", "clear", entry.name[:12]) == 0
    assert not entry.exists()


def test_two_images_with_one_key_are_refused() -> None:
    @dataclass(frozen=True)
    class Reader:
        def __call__(self, place: int) -> Image.Image:
            return Image.new("L", (4, 4), place)

    places = [1, 2, 2, 3]
    keys = [hashlib.sha256(bytes([place // 2])).digest() for place in places]  # of 2, 2 and 3 the same
    split = Split(Records(places, Reader(), keys=keys, reader="levels-1"), np.zeros(4, np.int64))
    with pytest.raises(DataError, match=r"images 1 and 3 have the same key and other pixels"):
        cache.load_features(split, identify_images(split, "data", "train"), Pixels(), torch.device("cpu"))
