"""`dpbench advise`: it opens public images alone, and its intervals hold on datasets that it has not seen."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpbench_plugins.datasets.image_folders import ImageFolder
from PIL import Image
from sklearn.datasets import load_digits

from dpbench import Records
from dpbench.harness.cutting import cut_rows
from dpbench.records.protocol import SplitRule
from dpbench_lab.advise.advice import FEWEST_REHEARSED
from dpbench_lab.advise.folder import assign_unit_numbers, list_training_images
from dpbench_lab.advise.forecast import Forecaster, ForecastInput, read_board_records
from tests.helpers import readme
from tests.helpers.commands import Output, Refusal, call
from tests.lab import advice

RULE = SplitRule(0.25, 1.0, None, 0)
FAST = ("--public-fraction", "0.25", "--extractor", "pixels", "--device", "cpu")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of 240 digits of 3 classes, and a test split that no image can be read from."""
    folder, digits = tmp_path_factory.mktemp("photos"), load_digits()
    for kind in range(3):
        for number, row in enumerate(np.flatnonzero(digits.target == kind)[:80]):
            file = folder / "train" / f"class {kind}" / f"{number:03}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((digits.images[row] * 15).astype(np.uint8)).save(file)
        (folder / "test" / f"class {kind}").mkdir(parents=True)
        (folder / "test" / f"class {kind}" / "none.png").symlink_to("nowhere")
    return folder


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """Yield the paths that this process opens, whichever the thread."""
    found: list[str] = []
    watching = [True]

    def hook(event: str, details: tuple[Any, ...]) -> None:
        if event == "open" and watching[0]:
            found.append(str(details[0]))

    sys.addaudithook(hook)
    yield found
    watching[0] = False


def advised(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert call("advise", str(folder), "--json", *FAST, *more) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.slow
def test_no_private_image_is_opened(
    photos: Path, opened: list[str], capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPBENCH_CACHE", str(tmp_path / "cache"))
    photos = shutil.copytree(photos, tmp_path / "photos", symlinks=True)  # other tests read what is spoilt here
    opened.clear()  # by the copying
    files, *_ = list_training_images(photos)
    public, private = (part.tolist() for part in cut_rows(np.arange(len(files)), RULE, None))
    before = advised(photos, capsys, "--epsilon", "1")
    read = [path for path in opened if path.startswith(str(photos))]
    assert set(read) == {str(files[row]) for row in public}
    for row in private:
        files[row].unlink()
        files[row].symlink_to("nowhere")
    assert advised(photos, capsys, "--epsilon", "1") == before
    assert before["private"] == len(private)


def test_public_images_are_those_of_a_run(tmp_path: Path) -> None:
    for split, kind, name in (("train", "b", "2.PNG"), ("train", "a", "10.jpg"), ("train", "a", "9.png"),
                              ("train", "b", "1.png"), ("test", "a", "1.png"), ("test", "b", "1.png")):  # fmt: skip
        file = tmp_path / split / kind / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(file, format="PNG")
    (tmp_path / "train" / "a" / "notes.txt").write_text("no image")
    (tmp_path / "train" / "a" / ".hidden.png").write_text("no image")
    dataset = ImageFolder(str(tmp_path))
    splits = dataset.load()
    assert isinstance(splits.train.images, Records)
    files, labels, classes = list_training_images(tmp_path)
    assert [str(place.path) for place in splits.train.images.places] == [str(file) for file in files]
    assert (labels == splits.train.labels).all()
    assert classes == dataset.classes


@pytest.fixture
def patients(photos: Path, tmp_path: Path) -> Path:
    """Return the digits as images of 60 patients, in folders of their own and in a table."""
    lines = ["file,unit"]
    for file in sorted((photos / "train").rglob("*.png")):
        owner = f"p{int(file.stem) * 7 % 20:02}-{file.parent.name[-1]}"
        place = tmp_path / "train" / file.parent.name / owner / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)
        lines.append(f"train/{file.parent.name}/{owner}/{file.name},{owner}")
        (tmp_path / "test" / file.parent.name).mkdir(parents=True, exist_ok=True)
    for kind in range(3):
        shutil.copy(file, tmp_path / "test" / f"class {kind}" / "p1_0.png")
        lines.append(f"test/class {kind}/p1_0.png,p{kind}")
    (tmp_path / "units.csv").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("units", ["units.csv", r"(p\d+)[-_]"])
def test_public_images_of_patients_are_those_of_a_run(patients: Path, units: str) -> None:
    named = str(patients / units) if units.endswith(".csv") else units
    dataset = ImageFolder(str(patients), units=named, unit="patient")
    train = dataset.load().train
    files, *_ = list_training_images(patients)
    rule = SplitRule(0.25, 1.0, None, 0, "patient")
    ours, theirs = (
        cut_rows(np.arange(len(files)), rule, numbers)
        for numbers in (assign_unit_numbers(patients, files, dataset), train.units)
    )
    assert all((mine == other).all() for mine, other in zip(ours, theirs, strict=True))


def test_advice_for_patients_counts_patients(patients: Path, capsys: Output) -> None:
    dataset = f"imagefolder:{patients},units={patients / 'units.csv'},unit=patient"
    asked = ("--dataset", dataset, *FAST, "--no-public-labels", "--json")
    assert call("advise", *asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["unit"], found["private"]) == ("patient", 45)
    assert call("advise", *asked, "--unit", "image", "--accuracy", "0.99") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["unit"], found["private"], found["wish"]["units"]) == ("image", 180, None)


def test_advice_for_few_patients_says_how_many_it_needs(patients: Path, refusal: Refusal) -> None:
    dataset = f"imagefolder:{patients},units={patients / 'units.csv'},unit=patient"
    few = ("--public-fraction", "0.1", *FAST[2:])
    said = refusal.command("advise", "--dataset", dataset, *few)
    assert "at least 10 labelled public patients to rehearse on, got 6 of 60: use --public-fraction 0.17" in said


@pytest.mark.parametrize("classes", [2, 4])
def test_no_learner_is_expected_to_be_worse_than_chance(classes: int) -> None:
    for basis, rehearsal in (("rehearsal", 0.4 / classes), ("numbers", None)):
        asked = ForecastInput(20, classes, 0.03, rehearsal)
        found = Forecaster(read_board_records(), basis).predict(asked, "jl")  # type: ignore[arg-type]
        assert 1 / classes <= found.low <= found.mean <= found.high


@pytest.mark.slow
def test_patients_are_rehearsed_whole(patients: Path, capsys: Output) -> None:
    dataset = f"imagefolder:{patients},units={patients / 'units.csv'},unit=patient"
    assert call("advise", "--dataset", dataset, *FAST) == 0
    assert "45 private patients" in capsys.readouterr().out


def test_advice_without_labels_does_not_read_them(photos: Path, capsys: Output) -> None:
    found = advised(photos, capsys, "--epsilon", "0.5,2", "--no-public-labels")
    assert not found["labels_read"]
    assert found["alone"] is None
    assert [point["rehearsal"] for point in found["at"]] == [None, None]
    assert [point["pick"] for point in found["at"]] == ["thrift", "thrift"]


def test_a_wished_accuracy_has_its_epsilon(photos: Path, capsys: Output) -> None:
    call("advise", str(photos), "--accuracy", "0.6", "--no-public-labels", *FAST)
    said = capsys.readouterr().out
    assert "60% is expected from ε " in said and re.search(r"At ε 1 it takes about [0-9,]+ private images", said)


@pytest.mark.slow
@pytest.mark.parametrize(("fraction", "warned"), [("0.1", True), ("0.7", False)])
def test_few_public_images_are_warned_of(photos: Path, capsys: Output, fraction: str, warned: bool) -> None:
    assert call("advise", str(photos), "--epsilon", "1", *FAST[2:], "--public-fraction", fraction) == 0
    assert ("the true intervals are wider" in capsys.readouterr().out) == warned


def test_no_board_rehearses_on_fewer_public_images_than_the_warning_says() -> None:
    rehearsed = {record.board for record in read_board_records() if record.rehearsal is not None}
    assert (
        min(standing.public for standing in readme.index().standings if standing.board.name in rehearsed)
        == FEWEST_REHEARSED
    )


def test_bad_input_is_one_sentence(photos: Path, tmp_path: Path, refusal: Refusal) -> None:
    assert "which is not a folder" in refusal.command("advise", str(tmp_path / "none"))
    assert "train/CLASS/IMAGE" in refusal.command("advise", str(tmp_path))
    assert "--epsilon to be finite, got inf" in refusal.command("advise", str(photos), "--epsilon", "inf")
    assert "each value of --epsilon once" in refusal.command("advise", str(photos), "--epsilon", "1,1")
    assert "--accuracy 90 to be between 0 and 1" in refusal.command("advise", str(photos), "--accuracy", "90")
    assert "below 0.00" in refusal.command("advise", str(photos), "--delta", "0.1", *FAST)
    few = ("--public-fraction", "0.02", "--extractor", "pixels")
    said = refusal.command("advise", str(photos), *few)
    assert "at least 10 labelled public images to rehearse on, got 5 of 240: use --public-fraction 0.05" in said
    share = ("--public-fraction", "0.042", "--extractor", "pixels")
    assert "10 public images are too few to rehearse on" in refusal.command("advise", str(photos), *share)
    assert "Expected a FOLDER of images, or --dataset" in refusal.command("advise")
    assert "Expected --dataset imagefolder:FOLDER, got digits" in refusal.command("advise", "--dataset", "digits")
    assert "units=folder,unit=patient" in refusal.command("advise", str(photos), "--unit", "patient")
    grey = f"imagefolder:{photos},mode=L"
    assert "Expected mode=RGB, as advice reads images" in refusal.command("advise", "--dataset", grey)


@pytest.mark.parametrize("basis", ["rehearsal", "numbers"])
def test_intervals_hold_on_data_sets_that_were_left_out(basis: Any) -> None:
    assert advice.coverage(advice.assess(read_board_records(), basis)) >= 0.85


@pytest.mark.quick(1)
@pytest.mark.parametrize("basis", ["rehearsal", "numbers"])
def test_the_pick_is_within_a_point_of_the_best_on_average(basis: Any) -> None:
    found = advice.assess(read_board_records(), basis)
    assert np.mean([regret for assessment in found for regret in assessment.regrets]) < 1
    # There, ten learners are tied and intervals are ten points wide: every pick is a guess.
    found = advice.assess(
        [record for record in read_board_records() if record.board != "cifar10-1000-lite0-eps0.03"], basis
    )
    most = {"pneumonia": 3.1, "gtsrb": 7.0, "fashion-mnist": 1.5, "cifar10": 1.6}  # other children; 43 classes, not ten
    assert all(max(assessment.regrets) < most.get(assessment.dataset, 1.3) for assessment in found)


@pytest.mark.slow
def test_what_it_knows_of_the_boards_is_what_committed_results_say() -> None:
    assert advice.written(read_board_records()) == advice.written(advice.collect())


def test_a_data_set_has_no_part_in_its_own_prediction() -> None:
    whole = read_board_records()
    changed = [
        record.model_copy(update={"accuracy": dict.fromkeys(record.accuracy, 0.5)})
        if record.dataset == "digits"
        else record
        for record in whole
    ]
    asked = ForecastInput(1294, 10, 1.0, 0.8)
    left = [
        Forecaster(boards, "rehearsal").without_dataset("digits").predict(asked, "thrift")
        for boards in (whole, changed)
    ]
    assert left[0] == left[1]
    assert Forecaster(whole, "rehearsal").predict(asked, "thrift") != Forecaster(changed, "rehearsal").predict(
        asked, "thrift"
    )
