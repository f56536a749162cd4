"""Folders as hospitals have them: one folder per patient, DICOM files, tables of patients, and files of other kinds."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpbench_plugins.datasets.image_folders import ImageFolder

from dpbench import DataError, DataMissing, Records, SpecError
from dpbench.data.survey import survey_dataset
from dpbench.models.model import find_unreadable_images
from dpbench.registry.components import make_component_record
from dpbench.support import progress
from dpbench.support.files import IMAGE_ENDINGS
from tests.cli.test_cli import refusal
from tests.helpers.commands import Output, call
from tests.helpers.dicoms import dicom
from tests.helpers.trees import Tree, lay_out, pack, picture, planted, read
from tests.test_extras import run

PATIENTS = {  # healthy and ill, two images each; p1 has images of both classes
    f"{split}/{kind}/{patient}/{number}.png": picture(
        zlib.crc32(f"{split}{kind}{patient}{number}".encode()), form="PNG"
    )
    for split, patients in (("train", ("p1", "p2", "p2-b")), ("test", ("p1", "p8")))
    for kind in ("healthy", "ill")
    for patient in patients
    for number in "ab"
}
QUICK = (
    "--learner", "class-means", "--extractor", "pixels:size=8", "--seeds", "1", "--epsilon", "8", "--public-fraction",
    "0.5",
)  # fmt: skip


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    return lay_out(tmp_path / "scans", PATIENTS)


@pytest.fixture
def dicoms(tmp_path: Path) -> Path:
    """Return forty training images of twenty patients in two classes, and a test split."""
    random, files = np.random.default_rng(0), {}
    for split, count in (("train", 10), ("test", 3)):
        for level, kind in ((900, "healthy"), (1500, "ill")):
            for place in [f"{split}/{kind}/{kind[0]}{split[1]}{n}/{k}.dcm" for n in range(count) for k in "ab"]:
                pixels = random.normal(level, 200, (12, 10)).clip(0, 4095).astype(np.uint16)
                files[place] = dicom(pixels, WindowCenter=1200, WindowWidth=1500)
    return lay_out(tmp_path / "dicoms", files)


def opened(folder: Path, **options: Any) -> ImageFolder:
    return ImageFolder(str(folder), **options)


def test_images_in_folders_below_a_class_are_images_of_the_class(scans: Path) -> None:
    splits = opened(scans).load()
    assert splits.train.labels.tolist() == [0] * 6 + [1] * 6
    assert isinstance(splits.train.images, Records)
    assert {place.path.relative_to(scans).as_posix() for place in splits.train.images.places} == {
        name for name in PATIENTS if name.startswith("train")
    }
    assert opened(scans).classes == ("healthy", "ill")


def test_a_zip_is_the_same_data_as_its_folder_of_folders(scans: Path, tmp_path: Path) -> None:
    packed = pack(tmp_path / "scans.zip", {f"scans/{name}": content for name, content in reversed(PATIENTS.items())})
    assert read(opened(packed, units="folder").load()) == read(opened(scans, units="folder").load())


def test_folders_below_a_class_may_be_named_like_splits_and_may_be_deep(tmp_path: Path) -> None:
    files = {f"{split}/{kind}/p1/train/x/{kind}.png": picture(7) for split in ("train", "test") for kind in "ab"}
    splits = opened(lay_out(tmp_path, files), units="folder", unit="patient").load()
    assert (splits.train.labels.tolist(), splits.test.labels.tolist()) == ([0, 1], [0, 1])


@pytest.mark.parametrize("files", [planted(["train/a", "train/b", "test/a", "test/b"], 2)])
def test_a_folder_without_folders_below_its_classes_keeps_its_digest(files: Tree, tmp_path: Path) -> None:
    lines = [f"{name}\0{len(files[name])}\0{zlib.crc32(files[name]):08x}\n" for name in sorted(files)]
    by_split = [line for split in ("test", "train") for line in lines if line.startswith(split)]
    assert opened(lay_out(tmp_path, files)).load().digest == hashlib.sha256("".join(by_split).encode()).hexdigest()


def test_new_options_at_their_defaults_are_not_in_a_spec() -> None:
    assert set(make_component_record(ImageFolder("x")).options) == {"path", "mode", "units", "unit"}


def test_the_folder_below_the_class_names_the_unit_in_all_classes_and_splits(scans: Path) -> None:
    splits = opened(scans, units="folder", unit="patient").load()
    assert splits.train.units is not None and splits.test.units is not None
    assert (
        splits.train.units.tolist() == [0, 0, 2, 2, 1, 1] * 2 or splits.train.units.tolist() == [0, 0, 1, 1, 2, 2] * 2
    )
    assert splits.test.units.tolist() == [0, 0, 3, 3] * 2
    assert splits.unit == "patient"
    assert opened(scans).load().train.units is None


def test_images_beside_the_folders_of_units_are_refused(scans: Path) -> None:
    lay_out(scans, {"train/ill/loose.png": picture(3)})
    with pytest.raises(DataError, match=r"outside of a unit's folder: train/ill/loose\.png \(1 of 21\)\. Move"):
        opened(scans, units="folder").load()
    assert len(opened(scans).load().train.images) == 13


def test_a_table_and_a_pattern_name_images_in_folders(scans: Path, tmp_path: Path) -> None:
    table = written(tmp_path, ["file,unit", *(f"{name},{name.split('/')[2]}" for name in PATIENTS)])
    by_folder, *others = (opened(scans, units=units).load() for units in ("folder", table, "^([^/]+)/"))
    for found in others:
        assert found.train.units is not None and by_folder.train.units is not None
        assert (found.train.units == by_folder.train.units).all()


def written(folder: Path, lines: list[str]) -> str:
    (folder / "table.csv").write_text("\n".join(lines))
    return str(folder / "table.csv")


NOISE = {
    "train/ill/p1/1.heic": b"", "train/ill/p1/2.HEIC": b"", "notes.txt": b"", "train/ill/.x.png": b"",
    ".git/config": b"", "train/ill/p1/IM01": b"", "valid/ill/1.png": b"", "train/stray.png": b"",
    "train/ill/p1/scan.Doe junior": b"",
}  # fmt: skip
SAID = (
    "ignored 2 .heic files (convert to .jpg or .png), 2 files without an ending (DICOM files must end in .dcm), "
    "2 hidden files, 2 images in an unused place, 1 .txt file."
)


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_ignored_is_counted_on_standard_error_without_names(
    packed: bool, scans: Path, tmp_path: Path, capsys: Output
) -> None:
    path = pack(tmp_path / "scans.zip", PATIENTS | NOISE) if packed else lay_out(scans, NOISE)
    expected = f"dpbench: imagefolder:{path}: {SAID}\n"
    assert call("data", "info", f"imagefolder:{path}", "--json") == 0
    assert capsys.readouterr().err == expected
    assert call("run", *QUICK, "--dataset", f"imagefolder:{path}", "--out", str(tmp_path / "out")) == 0
    assert capsys.readouterr().err == expected
    (result,) = (tmp_path / "out").glob("*.json")
    assert "heic" not in result.read_text()


def test_quiet_runs_and_folders_of_images_alone_say_nothing(scans: Path, tmp_path: Path, capsys: Output) -> None:
    assert call("data", "info", f"imagefolder:{scans}", "--json") == 0
    lay_out(scans, NOISE)
    assert call("run", *QUICK, "--quiet", "--dataset", f"imagefolder:{scans}", "--out", str(tmp_path / "out")) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.lab
def test_advice_is_on_the_images_of_a_run_and_says_what_it_ignores(scans: Path, capsys: Output) -> None:
    from dpbench_lab.advise.folder import list_training_images

    progress.set_verbosity(nothing=False, everything=False)  # another test may have asked for quiet
    lay_out(scans, NOISE)
    files, labels, classes = list_training_images(scans)
    assert capsys.readouterr().err == (
        f"dpbench: {scans}/train: ignored 2 .heic files (convert to .jpg or .png), 2 files without an ending (DICOM "
        "files must end in .dcm), 1 hidden file, 1 image in an unused place.\n"
    )
    dataset = opened(scans)
    train = dataset.load().train
    assert isinstance(train.images, Records)
    assert [place.path for place in train.images.places] == files
    assert (labels == train.labels).all() and classes == dataset.classes


@pytest.mark.lab
def test_advice_shows_dicom_files_as_a_run_does(dicoms: Path) -> None:
    from dpbench_lab.advise.folder import list_training_images, read_image

    files, *_ = list_training_images(dicoms)
    images = opened(dicoms).load().train.images
    assert [read_image(str(file)).tobytes() for file in files] == [images[n].tobytes() for n in range(len(files))]


def test_the_endings_of_images_are_those_that_advice_and_predictions_know(tmp_path: Path) -> None:
    endings = sorted(IMAGE_ENDINGS)
    files = {f"{split}/{kind}/1{ending}": b"x" for split in ("train", "test") for kind in "ab" for ending in endings}
    splits = opened(lay_out(tmp_path, files | {"train/a/1.heic": b"x"})).load()
    assert (len(splits.train.labels), splits.ignored) == (2 * len(endings), ["train/a/1.heic"])


@pytest.mark.parametrize("place", ["train/ill/p1/lost.png", "train/ill/p5", "train/worse"])
def test_a_link_to_nowhere_is_said(scans: Path, place: str, capsys: Output) -> None:
    (scans / place).symlink_to("nowhere")
    said = refusal(capsys, "data", "info", f"imagefolder:{scans}")
    assert f"behind the link {scans / place}, which points to nothing. Correct or remove it." in said


def test_image_folders_run_on_a_networks_features_by_default() -> None:
    assert ImageFolder("/nowhere").default_extractor == "efficientnet-lite0:size=128"


GROUPS = ["file,Sex,age", *(f"{name},{'fm'[name[-5] == 'b']},{['40-59', ''][name[-7] == '8']}" for name in PATIENTS)]

SEX = [GROUPS[0].lower(), *GROUPS[1:]]


def test_groups_are_columns_of_the_test_images(scans: Path, tmp_path: Path) -> None:
    table = written(tmp_path, GROUPS)
    splits = opened(scans, groups="Sex+age", table=table).load()
    assert splits.test.groups is not None and splits.train.groups is None
    assert {column: values.tolist() for column, values in splits.test.groups.items()} == {
        "sex": ["f", "m"] * 4, "age": ["40-59", "40-59", "", ""] * 2,
    }  # fmt: skip
    assert splits.digest == opened(scans).load().digest


def test_groups_may_be_known_of_units_and_of_the_images_of_val(scans: Path, tmp_path: Path) -> None:
    lines = ["unit,sex", "p1,f", "p8,m", "p99,f"]
    groups = opened(scans, units="folder", groups="sex", table=written(tmp_path, lines)).load().test.groups
    assert groups is not None and groups["sex"].tolist() == ["f", "f", "m", "m"] * 2
    (scans / "test").rename(scans / "val")
    table = written(tmp_path, [line.replace("test/", "val/") for line in GROUPS])
    groups = opened(scans, groups="Sex", table=table).load().test.groups
    assert groups is not None and groups["sex"].tolist() == ["f", "m"] * 4


def test_groups_may_stand_in_the_table_of_units(scans: Path, tmp_path: Path) -> None:
    table = written(tmp_path, ["file,unit,sex", *(f"{name},{name.split('/')[2]},f" for name in PATIENTS)])
    plain = opened(scans, units=table).load()
    splits = opened(scans, units=table, groups="sex").load()
    assert splits.digest == plain.digest
    assert splits.test.groups is not None and set(splits.test.groups["sex"]) == {"f"}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([*SEX[:-1]], r"misses test images: test/ill/p8/b\.png \(1 in all\)\. Correct the table\."),
        ([*SEX, "test/ill/no.png,f,"], r"names images that are not there: test/ill/no\.png"),
        ([*SEX, SEX[-1]], r"names images more than once: test/ill/p8/b\.png"),
        (["file,age"], r"whose first line is sex in .*table\.csv, got file,age\."),
        (["name,sex", "x,f"], r"Expected a column file in .*, which names images, .* got name,sex\."),
        (["unit,sex", "p1,f"], r"Expected a column file in .*or a column unit and the option units, got unit,sex\."),
        ([], r"got an empty file\."),
        (
            ["file,sex", *(f"{name},{place}" for place, name in enumerate([*PATIENTS] * 3))],
            r"at most 50 different values in the column sex of .*, got 60: .*Write bands",
        ),
    ],
)
def test_a_table_of_groups_that_does_not_fit_is_one_sentence(
    scans: Path, tmp_path: Path, lines: list[str], said: str
) -> None:
    with pytest.raises(DataError, match=said) as caught:
        opened(scans, groups="sex", table=written(tmp_path, lines)).load()
    assert "\n" not in str(caught.value)


def test_a_table_of_units_that_does_not_fit_is_one_sentence(scans: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"misses units of test images: p8 \(1 in all\)"):
        opened(scans, units="folder", groups="sex", table=written(tmp_path, ["unit,sex", "p1,f"])).load()
    with pytest.raises(DataError, match="names units more than once: p1"):
        opened(
            scans, units="folder", groups="sex", table=written(tmp_path, ["unit,sex", "p1,f", "p8,m", "p1,m"])
        ).load()
    with pytest.raises(DataMissing, match=r"Expected a table of sex in /nowhere\.csv, which does not exist"):
        opened(scans, groups="sex", table="/nowhere.csv").load()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "x.csv"}, r"Expected groups beside table=x\.csv"),
        ({"groups": "sex"}, r"Expected a table beside groups=sex"),
        ({"groups": "sex", "units": "folder"}, r"Expected a table beside groups=sex"),
        ({"groups": "sex", "table": "x.xlsx"}, r"Expected table=x\.xlsx to be a CSV file"),
        ({"groups": "sex+", "table": "x.csv"}, r"Expected different columns joined by \+ in groups=sex\+,"),
        ({"groups": "sex+sex", "table": "x.csv"}, r"Expected different columns"),
        ({"groups": "unit", "table": "x.csv"}, r"none of them file or unit"),
    ],
)
def test_options_of_groups_that_lack_another_one_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        ImageFolder("any", **options)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_folder_of_dicom_files_runs_in_a_fresh_process(dicoms: Path, tmp_path: Path) -> None:
    dataset = f"imagefolder:{dicoms},units=folder,unit=patient"
    program = [sys.executable, "-c", "from dpbench.cli import main; main()"]
    command = [*program, "run", *QUICK, "--dataset", dataset, "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (result,) = (tmp_path / "out").glob("*.json")
    assert json.loads(result.read_text())["spec"]["unit"] == "patient"


@pytest.mark.slow
def test_without_pydicom_dicom_files_are_one_sentence_with_the_command(dicoms: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "pydicom", "data", "info", f"imagefolder:{dicoms}")
    assert done.returncode == 1
    (said,) = done.stderr.splitlines()
    assert "Expected pydicom, which reads train image healthy/hr0/a.dcm" in said
    assert "Run pip install 'dpbench-vision[dicom]'." in said


@pytest.mark.parametrize(
    ("content", "said"),
    [(lambda: dicom(None), "without pixels"), (lambda: b"a poem", "are not a DICOM file")],
)
def test_a_dicom_file_that_cannot_be_shown_is_named(
    dicoms: Path, content: Callable[[], bytes], said: str, capsys: Output
) -> None:
    (dicoms / "train/ill/ir0/a.dcm").write_bytes(content())
    told = refusal(capsys, "data", "info", f"imagefolder:{dicoms}")
    assert f"train image ill/ir0/a.dcm in {dicoms}" in told and said in told


def test_a_saved_model_reads_dicom_files(dicoms: Path) -> None:
    files = sorted((dicoms / "test/ill/ie0").iterdir())
    assert find_unreadable_images(files, "RGB") == {}
    files[0].write_bytes(dicom(None))
    assert find_unreadable_images(files, "RGB").keys() == {files[0]}


def test_units_and_images_of_a_dicom_folder_are_counted(dicoms: Path) -> None:
    found = survey_dataset(opened(dicoms, units="folder", unit="patient"))
    assert found.units is not None
    assert (found.units.unit, found.units.count, found.units.largest) == ("patient", 20, 2)
    assert (found.train, found.image) == ((20, 20), "RGB 10 x 12")
