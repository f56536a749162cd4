"""ODIR-5K: fundus photographs labelled by a table, cut by patient; patients with two numbers are one."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpbench_plugins.datasets import odir
from dpbench_plugins.datasets.odir import IMAGES, KINDS, SAME_PERSON, Odir

from dpbench import DataError, DataMissing, Splits
from dpbench.data.fetch import store
from dpbench.support.paths import restrict_data_search
from dpbench.testing import DatasetLaws
from dpbench.testing.datasets import expect_at_most_one_changed_image
from tests.helpers.trees import Tree, lay_out, pack, picture, pixels, read

PATIENTS = [*range(60), 352, 973, 398, 668]  # two people have two numbers
LINE = "{image},{patient},{eye},{age},{sex},{label}"
FULL = (
    '{patient},{age},{sex},{patient}_left.jpg,{patient}_right.jpg,"a，b",b,1,0,0,0,0,0,0,0,'
    "['{label}'],\"[1, 0]\",{image}.jpg"
)
HEADERS = {
    "odir.csv": "image_id,patient_id,eye,age,sex,label",
    "full_df.csv": "ID,Patient Age,Patient Sex,Left-Fundus,Right-Fundus,Left-Diagnostic Keywords,"
    "Right-Diagnostic Keywords,N,D,G,C,A,H,M,O,labels,target,filename",
}


def rows(patients: list[int] = PATIENTS) -> list[dict[str, Any]]:
    """Return both eyes of each patient, of whom every seventh has no right one; ages run from 30, or are unknown."""
    eyes = [(patient, eye) for patient in patients for eye in ("left", "right") if eye == "left" or patient % 7]
    return [
        {
            "image": f"{patient}_{eye}", "patient": patient, "eye": eye, "age": 30 + patient % 50 if patient % 9 else 1,
            "sex": ("Female", "Male")[patient % 2], "label": KINDS[(patient + (eye == "right")) % 8],
        }
        for patient, eye in eyes
    ]  # fmt: skip


def table(name: str, lines: list[dict[str, Any]]) -> bytes:
    form = LINE if name == "odir.csv" else FULL
    return "\n".join([HEADERS[name], *(form.format(**line) for line in lines), ""]).encode()


def files(name: str = "full_df.csv", patients: list[int] = PATIENTS) -> Tree:
    lines = rows(patients)
    images = {f"{IMAGES}/{line['image']}.jpg": picture(40 * line["patient"] + len(line["eye"])) for line in lines}
    return {**images, name: table(name, lines)}


def put(data: Path, name: str = "full_df.csv", patients: list[int] = PATIENTS) -> Path:
    return lay_out(data / "odir", files(name, patients))


class TestLaws(DatasetLaws):
    dataset = Odir()

    @pytest.fixture(autouse=True)
    def files(self, data_folder: Path) -> None:
        put(data_folder)


def people(splits: Splits) -> tuple[set[int], set[int]]:
    assert splits.train.units is not None and splits.test.units is not None
    return set(splits.train.units.tolist()), set(splits.test.units.tolist())


def names(splits: Splits) -> tuple[list[str], list[str]]:
    train, test = ([Path(place.file).stem for place in split.images.places] for split in (splits.train, splits.test))  # type: ignore[union-attr]
    return train, test


def test_no_patient_is_in_both_splits_and_the_hash_of_the_number_decides(data_folder: Path) -> None:
    put(data_folder)
    splits = Odir().load()
    train, test = people(splits)
    assert (splits.unit, len(train | test), train & test) == ("patient", 62, set())
    tested = {name.partition("_")[0] for name in names(splits)[1]}
    first = {str(patient): SAME_PERSON.get(str(patient), str(patient)) for patient in PATIENTS}
    assert tested == {
        patient for patient, image in first.items() if int(hashlib.sha256(image.encode()).hexdigest(), 16) % 5 == 0
    }
    assert 0 < len(tested) < len(PATIENTS) / 2


def test_two_numbers_of_one_person_are_one_patient(data_folder: Path) -> None:
    put(data_folder)
    splits = Odir().load()
    unit: dict[str, int] = {}
    for split, images in zip((splits.train, splits.test), names(splits), strict=True):
        assert split.units is not None
        unit |= dict(zip(images, split.units.tolist(), strict=True))
    assert unit["352_left"] == unit["352_right"] == unit["973_left"]
    assert unit["398_left"] == unit["668_right"] != unit["352_left"]
    assert len(set(unit.values())) == 62


def test_labels_and_groups_are_those_of_the_table(data_folder: Path) -> None:
    put(data_folder)
    splits, by_name = Odir().load(), {line["image"]: line for line in rows()}
    for split, images in zip((splits.train, splits.test), names(splits), strict=True):
        assert [KINDS[label] for label in split.labels] == [by_name[image]["label"] for image in images]
    assert splits.train.groups is None and splits.test.groups is not None
    for place, image in enumerate(names(splits)[1]):
        age = by_name[image]["age"]
        assert splits.test.groups["sex"][place] == by_name[image]["sex"].lower()
        known = "under 40" if age < 40 else "70 or older" if age >= 70 else f"{age // 10}0-{age // 10}9"
        assert splits.test.groups["age"][place] == ("" if age == 1 else known)


def test_both_tables_and_the_zip_are_the_same_data(data_folder: Path, tmp_path: Path) -> None:
    put(data_folder)
    first = read(Odir().load())
    put(tmp_path / "short", "odir.csv")
    (tmp_path / "zip/odir").mkdir(parents=True)
    raw = {f"ODIR-5K/ODIR-5K/Training Images/{number}_left.jpg": picture(number) for number in range(3)}
    pack(tmp_path / "zip/odir" / odir.ARCHIVE, {**raw, **files()})
    for place in ("short", "zip"):
        with restrict_data_search(tmp_path / place):
            assert read(Odir().load()) == first


def test_a_copy_without_some_patients_leaves_the_others_in_their_splits(data_folder: Path, tmp_path: Path) -> None:
    put(data_folder)
    whole = names(Odir().load())
    put(tmp_path / "fewer", patients=PATIENTS[5:])
    with restrict_data_search(tmp_path / "fewer"):
        fewer = names(Odir().load())
    gone = {str(patient) for patient in PATIENTS[:5]}
    assert fewer == tuple([image for image in images if image.partition("_")[0] not in gone] for images in whole)


def test_a_copy_without_one_image_gives_all_others_equal_bit_for_bit(data_folder: Path, tmp_path: Path) -> None:
    put(data_folder)
    whole = Odir().load()
    gone = names(whole)[0][4]
    folder = put(tmp_path / "fewer")
    (folder / IMAGES / f"{gone}.jpg").unlink()
    (folder / "full_df.csv").write_bytes(table("full_df.csv", [line for line in rows() if line["image"] != gone]))
    with restrict_data_search(tmp_path / "fewer"):
        changed = Odir().load()
    assert len(changed.train.labels) == len(whole.train.labels) - 1
    expect_at_most_one_changed_image(whole.train, changed.train, "without an image", replaced=False)


def test_the_copy_is_named_by_its_count_and_digest(data_folder: Path) -> None:
    put(data_folder)
    splits = Odir().load()
    said = f"{len(rows())} of the 6,392 photographs of Kaggle's ODIR-5K, digest {splits.digest[:12]}; no split is "
    assert splits.edition.startswith(said)


@pytest.mark.parametrize("change", ["image", "label", "patient", "sex"])
def test_the_digest_changes_with_the_data(data_folder: Path, change: str) -> None:
    folder, lines = put(data_folder), rows()
    first = Odir().load().digest
    if change == "image":
        (folder / IMAGES / "3_left.jpg").write_bytes(picture(1))
    else:
        lines[0][change] = {"label": "O", "patient": 77, "sex": "Male"}[change]
        (folder / "full_df.csv").write_bytes(table("full_df.csv", lines))
    assert Odir().load().digest != first


def test_missing_data_says_what_to_get_and_where_it_looked(data_folder: Path) -> None:
    with pytest.raises(DataMissing) as caught:
        Odir().load()
    for said in ("odir/{preprocessed_images,full_df.csv}", odir.PAGE, "dpbench data import odir", str(data_folder)):
        assert said in str(caught.value)


def test_images_without_a_table_are_told(data_folder: Path) -> None:
    (put(data_folder) / "full_df.csv").unlink()
    with pytest.raises(DataMissing, match=r"which lacks odir/full_df\.csv"):
        Odir().load()


def test_lines_without_an_image_are_counted_and_named(data_folder: Path) -> None:
    (put(data_folder) / IMAGES / "3_left.jpg").unlink()
    with pytest.raises(DataError, match=rf"got none for 1 of {len(rows())} \(such as 3_left\.jpg\)\."):
        Odir().load()


def test_images_without_a_line_are_counted_and_named(data_folder: Path) -> None:
    (put(data_folder) / "full_df.csv").write_bytes(table("full_df.csv", rows()[2:]))
    with pytest.raises(DataError, match=r"Expected a line of .*full_df\.csv for every image in .*, got none for 2 of "):
        Odir().load()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"label": "X"},
            r"Expected one of the labels N, D, .* for every image in .*full_df\.csv, got \"\['X'\]\" for 0_",
        ),
        (
            {"patient": ""},
            r"Expected the number of a patient for every image in .*full_df\.csv, got '' for 0_left\.jpg\.",
        ),
        ({"image": "1_left"}, r"Expected every image once in .*full_df\.csv, got 118 lines for 117 images\."),
    ],
)
def test_a_line_that_does_not_fit_is_refused(data_folder: Path, change: dict[str, str], said: str) -> None:
    folder, lines = put(data_folder), rows()
    lines[0] |= change
    (folder / "full_df.csv").write_bytes(table("full_df.csv", lines))
    with pytest.raises(DataError, match=said) as caught:
        Odir().load()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("packed", [False, True])
def test_a_download_is_imported(data_folder: Path, tmp_path: Path, packed: bool) -> None:
    place = tmp_path / "archive"
    download = pack(place.with_suffix(".zip"), files()) if packed else lay_out(place, files())
    kept = store.import_dataset(Odir(), download, data_folder)
    assert kept.digest == Odir().load().digest
    shutil.rmtree(data_folder / "odir")
    with pytest.raises(DataMissing):
        Odir().load()


@pytest.mark.slow
def test_the_real_photographs_are_of_3354_people(real_data: Path) -> None:
    if not (real_data / "odir").exists():
        pytest.skip(f"put the images and the table of {odir.PAGE} into {real_data}/odir")
    splits = Odir().load()
    train, test = people(splits)
    assert (len(splits.train.labels), len(splits.test.labels)) == (5042, 1350)
    assert (len(train), len(test), train & test) == (2651, 703, set())
    labels = np.concatenate([splits.train.labels, splits.test.labels])
    assert np.bincount(labels).tolist() == [2873, 1608, 284, 293, 266, 128, 232, 708]
    assert splits.test.groups is not None
    assert Counter(splits.test.groups["sex"].tolist()) == {"male": 743, "female": 607}
    assert (splits.test.groups["age"] == "").sum() == 4
    assert len(set(pixels(splits.test.images))) == 1350
