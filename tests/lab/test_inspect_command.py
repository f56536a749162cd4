"""`dpbench inspect`: bad input is one sentence, good input is printed, written and drawn."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dpbench_lab.inspect.report import Inspection
from tests.helpers.commands import Output, Refusal, call

QUICK = ("inspect", "--k", "2,8")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def inspection_in(folder: Path) -> Inspection:
    (file,) = folder.glob("inspection-*.json")
    return Inspection.model_validate_json(file.read_text())


def test_it_prints_a_table_and_writes_json_and_plot(tmp_path: Path, capsys: Output) -> None:
    plot = tmp_path / "drawn" / "plot.svg"
    assert call(*QUICK, "--out", str(tmp_path), "--plot", str(plot)) == 0
    said = capsys.readouterr().out
    assert "pixels on digits: 144 public examples with 64 features, labels read" in said
    assert re.search(r"^ 2 +\d+\.\d% +\d\.\d{3} \(\d\.\d\d–\d\.\d\d\) +\d\.\d{3} .* -?\d\.\d{4} *$", said, re.MULTILINE)
    assert "over all 45 class pairs" in said
    assert "guarantee: epsilon 0: reads public data alone" in said
    assert "non-private" not in said.lower()
    found = inspection_in(tmp_path)
    assert (found.asked.k, found.asked.rows, found.examples) == ((2, 8), "public", 144)
    assert "non-private" not in plot.read_text().lower()


def test_json_is_all_that_is_printed(tmp_path: Path, capsys: Output) -> None:
    assert call(*QUICK, "--out", str(tmp_path), "--json") == 0
    printed = Inspection.model_validate_json(capsys.readouterr().out)
    assert printed == inspection_in(tmp_path)
    assert "test" not in printed.digests


def test_the_same_question_gives_the_same_numbers(tmp_path: Path) -> None:
    for name in ("first", "second"):
        assert call(*QUICK, "--out", str(tmp_path / name)) == 0
    first, second = (inspection_in(tmp_path / name) for name in ("first", "second"))
    assert first.model_dump(exclude={"seconds"}) == second.model_dump(exclude={"seconds"})


@pytest.mark.slow
def test_reading_private_data_is_marked_everywhere(tmp_path: Path, capsys: Output) -> None:
    plot = tmp_path / "plot.svg"
    assert call(*QUICK, "--read-private", "--out", str(tmp_path), "--plot", str(plot)) == 0
    said = capsys.readouterr().out
    assert said.startswith("NON-PRIVATE ANALYSIS")
    assert "1,294 private examples" in said
    (file,) = (tmp_path / "not-private").glob("inspection-*.json")
    assert not [*tmp_path.glob("*.json")]
    assert "without noise" in (tmp_path / "not-private" / "NOT-PRIVATE.txt").read_text(encoding="utf-8")
    written = json.loads(file.read_text())
    assert (written["mark"], written["guarantee"]) == ("non-private analysis", "none: reads private data")
    assert "NON-PRIVATE ANALYSIS" in plot.read_text()


def test_few_pairs_are_drawn_and_said(tmp_path: Path, capsys: Output) -> None:
    assert call(*QUICK, "--public-only", "--pairs", "3", "--out", str(tmp_path)) == 0
    assert "over 3 (sampled) of 45 class pairs" in capsys.readouterr().out


def test_split_and_c_are_flags(tmp_path: Path) -> None:
    flags = ("--public-fraction", "0.2", "--split-seed", "4", "--svm-c", "1", "--k", "3", "--device", "cpu")
    assert call(*QUICK, *flags, "--out", str(tmp_path)) == 0
    found = inspection_in(tmp_path)
    assert (found.examples, found.asked.split_seed, found.asked.svm_c, found.asked.k) == (288, 4, 1, (2, 3, 8))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--k", "0"), "Expected --k to be numbers of dimensions >= 1, like 10,40,200, got '0'."),
        (("--k", "many"), "got 'many'"),
        (("--k", "65"), "Expected --k 65 <= 64"),
        (("--pairs", "0"), "Expected --pairs 0 >= 1"),
        (("--svm-c", "0"), "Expected --svm-c 0.0 to be positive and finite"),
        (("--svm-c", "inf"), "Expected --svm-c inf"),
        (("--public-fraction", "0"), "Expected public data to inspect, got none"),
        (("--public-fraction", "1"), "public_fraction=1.0 in the flags of dpbench inspect"),
        (("--public-fraction", "0.1", "--public-dataset", "digits"), "not from both"),
        (("--dataset", "digit"), "Did you mean 'digits'?"),
        (("--extractor", "pixel"), "Did you mean 'pixels'?"),
        (("--extractor", "pixels:side=3"), "Unknown option 'side'"),
        (("--plot", "plot.gif"), "Expected --plot plot.gif to end in .png, .svg or .pdf"),
        (("--plot", "/dev/null/plot.png"), "got /dev/null, which is a file"),
        (("--out", "/dev/null/x"), "Cannot write /dev/null/x"),
        (("--device", "nowhere"), "Device 'nowhere' cannot be used"),
    ],
)
def test_bad_input_is_one_sentence(
    flags: tuple[str, ...], message: str, tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refusal.command("inspect", *flags)
    assert not list(tmp_path.rglob("*.json"))


def test_a_disk_that_fills_up_loses_nothing(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpbench.errors import OutputError

    def full(self: Inspection, folder: Path) -> Path:
        raise OutputError(f"Cannot write {folder}: No space left on device.")

    monkeypatch.setattr(Inspection, "write", full)
    assert call(*QUICK, "--out", str(tmp_path)) == 1
    captured = capsys.readouterr()
    assert Inspection.model_validate_json(captured.out).examples == 144
    assert "No space left" in captured.err
