"""HAM10000: images of two folders or zips, labelled by a table, cut by lesion."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from dpbench_plugins.datasets import ham10000
from dpbench_plugins.datasets.ham10000 import KINDS, PARTS, Ham10000

from dpbench import DataError, DataMissing, Splits
from dpbench.testing import DatasetLaws
from tests.helpers.trees import lay_out, pack, picture, pixels, read

HEADER = "lesion_id,image_id,dx,dx_type,age,sex,localization,dataset"
LESIONS = 10  # of each class; every third has two images


class Few(Ham10000):
    count = 98


def table() -> list[tuple[str, str, str]]:
    """Return (lesion, image, class) of every image."""
    lines: list[tuple[str, str, str]] = []
    for label, kind in enumerate(KINDS):
        for lesion in range(LESIONS):
            for _ in range(2 if lesion % 3 == 0 else 1):
                lines.append((f"HAM_{label}{lesion:06d}", f"ISIC_{len(lines):07d}", kind))
    return lines


def put(data: Path, lines: list[tuple[str, str, str]] | None = None) -> Path:
    """Lay out the data as published: the first half of the images in the first part."""
    names = [name for _, name, _ in table()]
    files = {f"{PARTS[2 * place >= len(names)]}/{name}.jpg": picture(place * 40) for place, name in enumerate(names)}
    folder = lay_out(data / "ham10000", files)
    write(folder, table() if lines is None else lines)
    return folder


def write(folder: Path, lines: list[tuple[str, str, str]], delimiter: str = ",", name: str = "") -> None:
    rows = [HEADER, *(f"{lesion},{image},{kind},histo,50.0,male,scalp,rosendahl" for lesion, image, kind in lines)]
    (folder / (name or "HAM10000_metadata.csv")).write_text("\n".join(rows).replace(",", delimiter))


class TestLaws(DatasetLaws):
    dataset = Ham10000()

    @pytest.fixture(autouse=True)
    def files(self, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Ham10000, "count", len(table()))
        put(data_folder)


def lesions(splits: Splits) -> tuple[set[int], set[int]]:
    assert splits.train.units is not None and splits.test.units is not None
    return set(splits.train.units.tolist()), set(splits.test.units.tolist())


def test_a_fifth_of_the_lesions_of_each_class_is_tested_on_and_no_lesion_is_in_both_splits(data_folder: Path) -> None:
    put(data_folder)
    splits = Few().load()
    train, test = lesions(splits)
    assert (splits.unit, len(train), len(test), train & test) == ("lesion", 56, 14, set())
    assert splits.test.units is not None
    of_class = {(int(unit), int(label)) for unit, label in zip(splits.test.units, splits.test.labels, strict=True)}
    assert Counter(label for _, label in of_class) == dict.fromkeys(range(7), 2)


def test_a_cut_by_image_tests_on_a_fifth_of_the_images_and_lesions_are_in_both_splits(data_folder: Path) -> None:
    put(data_folder)
    splits = Few(cut="image").load()
    assert (len(splits.train.labels), len(splits.test.labels)) == (77, 21)  # 14 images of each class
    train, test = lesions(splits)
    assert train & test


def test_labels_and_lesions_are_those_of_the_table(data_folder: Path) -> None:
    put(data_folder)
    splits = Few().load()
    by_pixels = {}
    for split in (splits.train, splits.test):
        assert split.units is not None
        for image, label, unit in zip(pixels(split.images), split.labels, split.units, strict=True):
            by_pixels[image] = (KINDS[label], int(unit))
    names = sorted({lesion for lesion, _, _ in table()})
    folder = {f"{name}.jpg" for _, name, _ in table()}
    assert len(by_pixels) == len(folder) == 98
    found = sorted((kind, names[unit]) for kind, unit in by_pixels.values())
    assert found == sorted((kind, lesion) for lesion, _, kind in table())


def test_another_seed_is_another_split_and_the_same_one_is_stated(data_folder: Path) -> None:
    put(data_folder)
    first, second = Few().load(), Few(seed=1).load()
    assert lesions(first) == lesions(Few().load()) != lesions(second)
    assert first.digest != second.digest


@pytest.mark.parametrize("packed", [[0], [1], [0, 1]], ids=str)
def test_zips_are_the_same_data_as_folders(data_folder: Path, packed: list[int]) -> None:
    folder = put(data_folder)
    unpacked = read(Few().load())
    for part in (PARTS[place] for place in packed):
        pack(folder / f"{part}.zip", {file.name: file.read_bytes() for file in sorted((folder / part).iterdir())})
        shutil.rmtree(folder / part)
    assert read(Few().load()) == unpacked


@pytest.mark.parametrize(("name", "delimiter"), [("HAM10000_metadata", ","), ("HAM10000_metadata.tab", "\t")])
def test_the_table_may_be_as_dataverse_names_it(data_folder: Path, name: str, delimiter: str) -> None:
    folder = put(data_folder)
    first = read(Few().load())
    (folder / "HAM10000_metadata.csv").unlink()
    write(folder, table(), delimiter, name)
    assert read(Few().load()) == first


@pytest.mark.parametrize("change", ["content", "name", "lesion", "class"])
def test_the_digest_changes_with_the_data(data_folder: Path, change: str) -> None:
    folder, lines = put(data_folder), table()
    first = Few().load().digest
    lesion, name, kind = lines[-1]
    image = folder / PARTS[1] / f"{name}.jpg"
    if change == "content":
        image.write_bytes(picture(1))
    elif change == "name":
        image.rename(image.with_name("ISIC_9999999.jpg"))
        write(folder, [*lines[:-1], (lesion, "ISIC_9999999", kind)])
    else:
        both = lines[-2:] if change == "class" else lines[-1:]  # the last lesion has two images
        new = [("HAM_new", image, kind) if change == "lesion" else (of, image, KINDS[0]) for of, image, _ in both]
        write(folder, [*lines[: -len(both)], *new])
    assert Few().load().digest != first


def test_missing_data_says_what_to_get_and_where_it_looked(data_folder: Path) -> None:
    with pytest.raises(DataMissing) as caught:
        Ham10000().load()
    for said in ("ham10000/{HAM10000_images_part_1,", ham10000.PAGE, "dpbench data import ham10000", str(data_folder)):
        assert said in str(caught.value)


def test_counts_other_than_the_published_ones_are_refused(data_folder: Path) -> None:
    put(data_folder)
    with pytest.raises(DataError, match=r"Expected 10,015 images in .* and in HAM10000_metadata\.csv, got 98 and 98\."):
        Ham10000().load()


def test_a_table_that_misses_an_image_is_refused(data_folder: Path) -> None:
    put(data_folder, table()[:-1])
    with pytest.raises(DataError, match=r"Expected 98 images in .*, got 98 and 97\."):
        Few().load()


def test_an_image_that_the_table_does_not_name_is_named(data_folder: Path) -> None:
    lesion, _, kind = table()[-1]
    put(data_folder, [*table()[:-1], (lesion, "ISIC_9999999", kind)])
    with pytest.raises(
        DataError, match=r"the images that .*HAM10000_metadata\.csv names in .*, ISIC_0000097 is one alone"
    ):
        Few().load()


@pytest.mark.parametrize("line", [("", "ISIC_0000000", "akiec"), ("HAM_0", "ISIC_0000000", "")])
def test_an_image_whose_lesion_or_class_is_left_out_is_refused(data_folder: Path, line: tuple[str, str, str]) -> None:
    put(data_folder, [line, *table()[1:]])
    with pytest.raises(DataError, match=r"in every line of .*, got a line that lacks one: ISIC_0000000\."):
        Few().load()


def test_a_line_that_ends_early_is_refused(data_folder: Path) -> None:
    file = put(data_folder) / "HAM10000_metadata.csv"
    file.write_text(f"{file.read_text()}\nHAM_7000000")
    with pytest.raises(DataError, match=r"Expected image_id, lesion_id, dx in every line of .*, line 100 ends early\."):
        Few().load()


def test_one_lesion_for_all_images_is_refused(data_folder: Path) -> None:
    put(data_folder, [("HAM_0000000", name, kind) for _, name, kind in table()])
    with pytest.raises(DataError, match=r"Expected one class a lesion in .*, got 7 of HAM_0000000"):
        Few().load()


@pytest.mark.parametrize("text", ["", "lesion_id,dx\na,b\n", "a;b\n1;2\n", "image_id,dx\na,b\n"])
def test_a_table_that_does_not_parse_is_refused(data_folder: Path, text: str) -> None:
    (put(data_folder) / "HAM10000_metadata.csv").write_text(text)
    with pytest.raises(DataError, match=r"HAM10000_metadata\.csv"):
        Few().load()


def test_a_lesion_of_two_classes_is_refused(data_folder: Path) -> None:
    (_, name, kind), *others = table()
    put(data_folder, [(table()[-1][0], name, kind), *others])
    with pytest.raises(DataError, match=r"Expected one class a lesion in .*, got 2 of HAM_6000009"):
        Few().load()


def test_an_unknown_class_is_refused(data_folder: Path) -> None:
    (lesion, name, _), second, *others = table()
    put(data_folder, [(lesion, name, "wart"), (lesion, second[1], "wart"), *others])
    with pytest.raises(DataError, match=r"Expected the classes akiec, .* not so wart\."):
        Few().load()


def test_groups_of_the_test_split_are_sex_age_band_and_source(data_folder: Path) -> None:
    folder = put(data_folder)
    first = Few().load()
    assert first.train.groups is None and first.test.groups is not None
    assert {name: set(texts) for name, texts in first.test.groups.items()} == {
        "sex": {"male"}, "age": {"50-59"}, "source": {"rosendahl"},
    }  # fmt: skip
    assert all(len(texts) == len(first.test.labels) for texts in first.test.groups.values())
    file = folder / "HAM10000_metadata.csv"
    file.write_text(file.read_text().replace("50.0,male", ",unknown"))
    second = Few().load()
    assert second.test.groups is not None and set(second.test.groups) == {"source"}
    assert (second.digest, second.test.labels.tolist()) == (first.digest, first.test.labels.tolist())


@pytest.mark.slow
def test_the_real_images_are_those_of_7470_lesions(real_data: Path) -> None:
    if not (real_data / "ham10000").exists():
        pytest.skip(f"put the images and the table of {ham10000.PAGE} into {real_data}/ham10000")
    splits = Ham10000().load()
    train, test = lesions(splits)
    assert (len(splits.train.labels), len(splits.test.labels)) == (7991, 2024)
    assert (len(train), len(test), train & test) == (5975, 1495, set())
    assert splits.train.units is not None and splits.test.units is not None
    _, images = np.unique(np.concatenate([splits.train.units, splits.test.units]), return_counts=True)
    assert (images > 1).sum() == 1956 and images.max() == 6
    assert np.bincount(splits.train.labels).tolist() == [262, 408, 887, 96, 888, 5338, 112]
    assert splits.test.groups is not None
    assert Counter(splits.test.groups["sex"].tolist()) == {"male": 1076, "female": 937, "": 11}
    assert splits.train.images[0].mode == "RGB"
