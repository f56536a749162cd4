"""The chest X-rays: found, counted, named by a digest and decoded, from a zip or from a folder."""

from __future__ import annotations

import io
import pickle
import re
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from dpbench_plugins.datasets import kermany as dpbench_kermany
from dpbench_plugins.datasets.image_trees import listing
from dpbench_plugins.datasets.kermany import PAGE, Pneumonia
from PIL import Image

from dpbench import DataError, DataMissing, Splits
from tests.helpers.trees import Tree, lay_out, pack, picture, pixels, read


class Few(Pneumonia):
    """The same dataset with the counts of `tree`."""

    accepted = (((3, 4), (2, 3)),)


def tree() -> Tree:
    """Kaggle's layout in small: one image of each class lies in val, one is in colour."""
    counts = {"train/NORMAL": 2, "train/PNEUMONIA": 3, "val/NORMAL": 1, "val/PNEUMONIA": 1}
    counts |= {"test/NORMAL": 2, "test/PNEUMONIA": 3}
    places = [f"chest_xray/{place}/{place[:2]}{n}.jpeg" for place, count in counts.items() for n in range(count)]
    return {place: picture(20 * level, "RGB" if level == 4 else "L") for level, place in enumerate(places)}


def load(folder: Path, files: Tree, name: str = "chest_xray.zip") -> Splits:
    pack(folder / name, files)
    return Few().load()


def test_training_images_are_those_of_train_and_val(data_folder: Path) -> None:
    splits = load(data_folder, tree())
    assert splits.train.labels.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert splits.test.labels.tolist() == [0, 0, 1, 1, 1]


def test_images_come_as_they_are_stored_with_the_label_of_their_folder(data_folder: Path) -> None:
    files = tree()
    split = load(data_folder, files).train
    normal = {Image.open(io.BytesIO(content)).tobytes() for name, content in files.items() if "/NORMAL/" in name}
    assert [image not in normal for image in pixels(split.images)] == split.labels.tolist()
    assert sorted(split.images[index].mode for index in range(7)) == ["L"] * 6 + ["RGB"]


def test_a_folder_is_the_same_data_as_its_zip(data_folder: Path) -> None:
    zipped = read(load(data_folder, tree()))
    (data_folder / "chest_xray.zip").unlink()
    lay_out(data_folder, tree())
    assert read(Few().load()) == zipped


def test_neither_order_nor_compression_nor_the_folder_val_changes_the_data(data_folder: Path) -> None:
    first = read(load(data_folder, tree()))
    pack(data_folder / "chest_xray.zip", dict(reversed(tree().items())), zipfile.ZIP_STORED)
    assert read(Few().load()) == first
    published = {name.replace("/val/", "/train/"): content for name, content in tree().items()}
    assert read(load(data_folder, published)) == first


@pytest.mark.parametrize("change", ["content", "name", "class"])
def test_the_digest_changes_with_the_data(data_folder: Path, change: str) -> None:
    files, here, there = tree(), "chest_xray/test/NORMAL/te0.jpeg", "chest_xray/test/PNEUMONIA/te0.jpeg"
    before = load(data_folder, files).digest
    if change == "content":
        files[here] = picture(255)
    elif change == "name":
        files["chest_xray/test/NORMAL/other.jpeg"] = files.pop(here)
    else:
        files[here], files[there] = files[there], files[here]
    assert load(data_folder, files).digest != before


def test_hidden_files_and_resource_forks_are_ignored(data_folder: Path) -> None:
    odd = ["__MACOSX/chest_xray/train/NORMAL/._0.jpeg", "chest_xray/__MACOSX/chest_xray/test/NORMAL/0.jpeg"]
    odd += ["chest_xray/train/NORMAL/._0.jpeg", "chest_xray/train/.DS_Store", "chest_xray/train/NORMAL/readme.txt"]
    assert load(data_folder, tree() | dict.fromkeys(odd, b"odd")).digest == load(data_folder, tree()).digest


def test_the_second_tree_in_kaggles_archive_is_ignored(data_folder: Path) -> None:
    inner = {f"chest_xray/{name}": content for name, content in tree().items()}
    both, single = load(data_folder, inner | tree()), load(data_folder, tree())
    assert both.digest == single.digest
    assert load(data_folder, inner).digest == single.digest


@pytest.mark.parametrize("name", dpbench_kermany.ARCHIVES)
def test_an_archive_is_found_in_any_folder_under_each_of_its_names(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("DPBENCH_DATA", f"/nowhere:{data_folder}")
    assert len(load(data_folder, tree(), name).train.images) == 7


def test_missing_data_says_what_to_fetch_and_where_it_looked_and_no_other_archive_is_opened(data_folder: Path) -> None:
    pack(data_folder / "archive.zip", tree())
    with pytest.raises(DataMissing) as caught:
        Few().load()
    for said in (PAGE, "chest_xray.zip", str(data_folder), "DPBENCH_DATA"):
        assert said in str(caught.value)


@pytest.mark.parametrize("files", [{}, tree()])
def test_counts_other_than_the_published_ones_are_refused(data_folder: Path, files: Tree) -> None:
    (data_folder / "chest_xray").mkdir()
    lay_out(data_folder, files)
    with pytest.raises(DataError) as caught:
        Pneumonia().load()
    got = "3 normal + 4 pneumonia training" if files else "0 normal + 0 pneumonia training"
    expected = "1,349 normal + 3,883 pneumonia training images and 234 normal + 390 pneumonia test images"
    for said in (expected, f"got {got}", str(data_folder / "chest_xray"), PAGE):
        assert said in str(caught.value)


def test_one_image_less_is_refused(data_folder: Path) -> None:
    files = tree()
    del files["chest_xray/val/PNEUMONIA/va0.jpeg"]
    with pytest.raises(DataError, match=r"got 3 normal \+ 3 pneumonia training images"):
        load(data_folder, files)


@pytest.mark.parametrize("damage", [lambda content: b"", lambda content: content[:-40], lambda content: b"<html>"])
def test_what_is_not_a_whole_zip_is_refused(data_folder: Path, damage: Callable[[bytes], bytes]) -> None:
    file = pack(data_folder / "chest_xray.zip", tree())
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataError, match=re.escape(f"Expected a zip archive in {file}")):
        Few().load()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_damaged_member_is_named_when_it_is_read(data_folder: Path, method: int) -> None:
    file = pack(data_folder / "chest_xray.zip", tree(), method)
    with zipfile.ZipFile(file) as archive:
        info = archive.getinfo("chest_xray/test/NORMAL/te0.jpeg")
    content = bytearray(file.read_bytes())
    middle = info.header_offset + 30 + len(info.filename) + info.compress_size // 2
    content[middle : middle + 4] = bytes(byte ^ 255 for byte in content[middle : middle + 4])
    file.write_bytes(content)
    splits = Few().load()
    with pytest.raises(DataError, match=r"test image NORMAL/te0\.jpeg"):
        splits.test.images[0]
    assert splits.test.images[1].size == (12, 8)


def test_a_file_that_changes_after_it_was_listed_is_said(data_folder: Path) -> None:
    lay_out(data_folder, tree())
    splits = Few().load()
    (data_folder / "chest_xray/test/NORMAL/te0.jpeg").write_bytes(picture(255))
    with pytest.raises(DataError, match="do not match their checksum"):
        splits.test.images[0]


@pytest.mark.parametrize("content", [b"", b"no image", picture(9)[:-200]])
def test_an_image_that_does_not_decode_is_named(data_folder: Path, content: bytes) -> None:
    splits = load(data_folder, tree() | {"chest_xray/test/NORMAL/te0.jpeg": content})
    with pytest.raises(DataError, match=rf"NORMAL/te0\.jpeg in .*: its {len(content)} bytes do not decode"):
        splits.test.images[0]


@pytest.mark.parametrize("zipped", [True, False])
def test_an_absurdly_large_image_is_refused(data_folder: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool) -> None:
    bomb = tree() | {"chest_xray/test/NORMAL/te0.jpeg": bytes(200_000)}
    monkeypatch.setattr(listing, "MAX_BYTES", 100_000)
    pack(data_folder / "chest_xray.zip", bomb) if zipped else lay_out(data_folder, bomb)
    with pytest.raises(DataError, match=r"at most 100,000 bytes in image .*te0\.jpeg"):
        Few().load()


def test_a_member_longer_than_listed_is_not_unpacked_to_its_end(data_folder: Path) -> None:
    file = pack(data_folder / "chest_xray.zip", tree() | {"chest_xray/test/NORMAL/te0.jpeg": bytes(5_000_000)})
    file.write_bytes(file.read_bytes().replace((5_000_000).to_bytes(4, "little"), (600).to_bytes(4, "little")))
    with pytest.raises(DataError, match="do not match their checksum"):
        Few().load().test.images[0]


def test_other_ways_of_packing_are_refused(data_folder: Path) -> None:
    pack(data_folder / "chest_xray.zip", tree(), zipfile.ZIP_LZMA)
    with pytest.raises(DataError, match="compressed by method 14"):
        Few().load()


def test_threads_may_read_at_once(data_folder: Path) -> None:
    images = load(data_folder, tree()).train.images
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda index: images[index % 7].tobytes(), range(280))) == pixels(images) * 40


def test_no_handle_stays_open_so_images_travel_to_other_processes(data_folder: Path) -> None:
    images = load(data_folder, tree()).train.images
    travelled = pickle.loads(pickle.dumps(images))
    assert pixels(travelled) == pixels(images)
    (data_folder / "chest_xray.zip").unlink()
    with pytest.raises(DataError):
        images[0]


PUBLISHED = {
    "NORMAL": ["IM-0115-0001", "IM-0429-0001", "IM-0429-0001-0002", "NORMAL2-IM-0115-0001"],
    "PNEUMONIA": ["person1_bacteria_1", "person1_bacteria_2", "person1_virus_6", "person10_bacteria_43"],
}


def named(names: dict[str, list[str]]) -> Tree:
    """Return these training images, and test images of other patients."""
    test = {"NORMAL": ["IM-0001-0001", "IM-0003-0001"], "PNEUMONIA": ["person3_virus_16", "person3_virus_15"]}
    places = {"train": names, "test": test}
    every = [f"{split}/{kind}/{name}" for split, of in places.items() for kind in of for name in of[kind]]
    return {f"chest_xray/{name}.jpeg": picture(9 * level, "L") for level, name in enumerate(every)}


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Few, "accepted", (((4, 4), (2, 2)),))


@pytest.mark.usefixtures("four")
def test_units_are_the_patients_of_published_file_names(data_folder: Path) -> None:
    splits = load(data_folder, named(PUBLISHED))
    assert splits.unit == "patient"
    assert splits.train.units is not None and splits.test.units is not None
    apart, second, third, other, *sick = splits.train.units.tolist()
    assert second == third and len({apart, second, other}) == 3
    assert sick[1] == sick[2] and len(set(sick)) == 3  # person10 sorts before person1_
    assert len(set(splits.test.units)) == 3 and not set(splits.test.units) & set(splits.train.units)


@pytest.mark.usefixtures("four")
def test_mendeleys_names_tell_patients_too(data_folder: Path) -> None:
    sick = ["BACTERIA-1008087-0001", "BACTERIA-1008087-0002", "VIRUS-1008087-0001", "VIRUS-16628-0001"]
    normal = ["NORMAL-1003233-0001", "NORMAL-1003233-0002", "NORMAL-1003234-0001", "NORMAL-1003235-0001"]
    units = load(data_folder, named({"NORMAL": normal, "PNEUMONIA": sick})).train.units
    assert units is not None and len(set(units.tolist())) == 6


@pytest.mark.usefixtures("four")
def test_where_one_name_is_another_nobody_knows_the_patients(data_folder: Path) -> None:
    names = {**PUBLISHED, "NORMAL": [*PUBLISHED["NORMAL"][:3], "train_00007"]}
    splits = load(data_folder, named(names))
    assert (splits.unit, splits.train.units, splits.test.units) == ("", None, None)


def test_2179_of_the_published_training_images_share_their_patient(real_data: Path) -> None:
    splits = real(real_data)
    if splits.train.units is None or splits.test.units is None:
        pytest.skip("a copy whose file names do not tell patients")
    if len(splits.train.labels) != 5206:
        pytest.skip("a copy with duplicates")
    _, images = np.unique(splits.train.units, return_counts=True)
    assert (len(images), images[images > 1].sum(), images.max()) == (3669, 2179, 30)
    assert not set(splits.train.units) & set(splits.test.units)


def test_the_real_archive_has_the_published_test_split_and_every_sampled_image_decodes(real_data: Path) -> None:
    splits = real(real_data)
    assert (len(splits.train.images), len(splits.test.images)) in {(5232, 624), (5206, 624)}
    for split in (splits.train, splits.test):
        assert {split.images[index].mode for index in range(0, len(split.images), 97)} <= {"L", "RGB"}


def test_the_real_archive_is_the_data_of_the_committed_results(real_data: Path) -> None:
    splits = real(real_data)
    if len(splits.train.images) != 5206 or splits.train.images[0].size != (224, 224):
        pytest.skip("another copy than that of the committed results")
    assert splits.digest == "103b9fe1981a64fbdfe718e7b729ba5bb3b661eb44bf3335bdad53ac1b08620e"
    for split, normal, pneumonia in ((splits.train, 1348, 3858), (splits.test, 234, 390)):
        assert split.labels.tolist() == [0] * normal + [1] * pneumonia


def real(folder: Path) -> Splits:
    if not any((folder / name).exists() for name in (*dpbench_kermany.ARCHIVES, dpbench_kermany.FOLDER)):
        pytest.skip(f"put chest_xray.zip, from {PAGE}, into {folder}")
    return Pneumonia().load()
