"""What a stranger wrote is read to an end, shows nothing of its own in a terminal, and breaks no table."""

from __future__ import annotations

import io
import json
import lzma
import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dpbench
from dpbench.analysis.paired import collect_ranking_scores
from dpbench.errors import DataError, SpecError
from dpbench.receipts import Training, gaussian_steps, receipt
from dpbench.receipts.check import check
from dpbench.records import packed
from dpbench.records.journal import RunJournal
from dpbench.records.result import Result
from dpbench.registry import load
from dpbench.support.files import open_append_file
from dpbench.support.untrusted import check_texts_and_integers, parse_json, read_regular_file, read_toml
from dpbench.sweep.cell_files import SweepFolder
from dpbench.sweep.grid import read_grid
from tests.helpers import boards, trees
from tests.helpers.commands import call

Content = dict[str, Any]
TITLE = "\x1b]0;title\x07"
UNSHOWN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
DEEP = b'{"spec": 1, "privacy": 1, "seeds": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Content:
    found = dpbench.run("class-means:k=5", dataset="digits", seeds=1, out=tmp_path_factory.mktemp("made"))
    content: Content = json.loads(found.file.read_bytes())
    return content


def write(content: Content, folder: Path) -> Path:
    file = folder / "result.json"
    file.write_text(json.dumps(boards.resealed(content)), encoding="utf-8")
    return file


Change = Callable[[Content], object]
HOSTILE: dict[str, Change] = {
    "a learner": lambda content: content["spec"]["learner"].update(name=f"{TITLE}pillar"),
    "a key": lambda content: content.update({TITLE: 1}),
    "a key of the seal": lambda content: content["provenance"].update({TITLE: 1}),
    "a direction": lambda content: content["task"].update(licence="MIT \u202e\u2066"),
    "half a character": lambda content: content["task"].update(licence="\ud800"),
    "classes": lambda content: content["task"].update(classes=[]),
    "no private images": lambda content: content["task"].update(private=0),
    "seconds": lambda content: content.update(seconds={"fit": 1e308, "score": 1e308}),
    "no scores": lambda content: content.update(metrics={}),
    "a number": lambda content: content["seeds"][0].update(seed=10**40),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_result_is_refused_in_one_line_that_shows_nothing_of_its_own(
    honest: Content, change: Change, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(json.dumps(honest))
    change(content)
    file = write(content, tmp_path)
    for command in (("results", tmp_path), ("results", "show", file), ("report", tmp_path), ("receipt", "from", file)):
        assert call(*command) == 1, command
        said = "".join(capsys.readouterr())
        assert said.startswith("dpbench: ") and not UNSHOWN.search(said)


@pytest.mark.quick("result")
@pytest.mark.parametrize("keep_models", [False, True], ids=["result", "model"])
def test_what_is_written_about_classes_named_by_control_characters_can_be_read_back(
    keep_models: bool, tmp_path: Path
) -> None:
    names = [f"{split}/{name}" for split in ("train", "test") for name in ("cat", f"dog{TITLE}")]
    private = trees.lay_out(tmp_path / "private", trees.planted(names, 12))
    public = trees.lay_out(tmp_path / "public", trees.planted(names, 12, "jpeg"))
    found = dpbench.run(
        "class-means:k=2", dataset=f"imagefolder:{private}", public_dataset=f"imagefolder:{public}",
        extractor="pixels:size=4", seeds=1, out=tmp_path / "out", keep_models=keep_models,
    )  # fmt: skip
    read = found.model().card.classes if keep_models else Result.read(found.file).task.classes
    assert read == ("cat", "dog?]0;title?")


def test_answers_that_cannot_be_counted_are_no_traceback(honest: Content, tmp_path: Path) -> None:
    content = json.loads(json.dumps(honest))
    content["seeds"][0]["correct"] = "!!!"
    result = Result.read(write(content, tmp_path))
    counted = collect_ranking_scores(result, "accuracy").bits
    with pytest.raises(DataError, match="does not say which answers were correct"):
        assert counted is not None and counted()


def test_an_unknown_pair_of_splits_is_a_complaint(
    honest: Content, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(json.dumps(honest))
    content["task"]["overlap"]["x"] = next(iter(content["task"]["overlap"].values()))
    assert call("leaderboard", "verify", write(content, tmp_path)) == 1
    assert "overlap" in "".join(capsys.readouterr())


def test_names_stay_names_in_latex_and_markdown(
    honest: Content, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(json.dumps(honest))
    content["spec"]["dataset"]["name"] = "x\n\\input{/etc/passwd}\n% "
    content["spec"]["learner"]["name"] = "`|<img src=x>\n# H \\input{y}$a^b~"
    write(content, tmp_path)
    assert call("results", tmp_path, "--latex") == 0
    latex = capsys.readouterr().out
    live = [line for line in latex.splitlines() if not line.startswith("%")]
    assert r"\input" not in "".join(live) and r"\textbackslash{}input\{y\}\$a\^{}b\~{}" in latex
    assert call("results", tmp_path, "--markdown") == 0
    markdown = capsys.readouterr().out
    assert not re.search(r"^(#\s|%|\\)", markdown, re.MULTILINE)
    (row,) = [line for line in markdown.splitlines() if "<img" in line]
    assert row.startswith(r"| `'\|<img src=x> # H") and row.count("`") == 2


@pytest.mark.parametrize("place", ["a.json", "a.toml"])
def test_a_pipe_is_refused_and_not_waited_for(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / place)
    commands: dict[str, list[tuple[object, ...]]] = {
        "a.json": [("results", tmp_path), ("report", tmp_path), ("results", "pack", tmp_path)],
        "a.toml": [("run", "--spec", tmp_path / place), ("sweep", tmp_path / place)],
    }
    for command in commands[place]:
        assert call(*command) == 1
        assert "regular file" in capsys.readouterr().err


def test_the_error_of_a_cell_is_kept_whatever_it_says(tmp_path: Path) -> None:
    (cell,) = read_grid({"name": "a", "grid": {"learner": ["jl:k=5"]}}, load()).cells
    folder = SweepFolder(tmp_path)
    folder.record_failure(cell, f"{TITLE}no memory")
    assert folder.read_failure(cell) == "?]0;title?no memory"


def test_a_journal_that_never_ends_or_is_nested_is_no_journal(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert RunJournal(tmp_path / "pipe.jsonl", "identity").seeds() == {}
    (tmp_path / "deep.jsonl").write_bytes(DEEP)
    assert RunJournal(tmp_path / "deep.jsonl", "identity").seeds() == {}


def test_nothing_is_added_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        open_append_file(tmp_path / "log")
    assert not (tmp_path / "victim").exists()


def test_a_file_without_end_is_read_to_a_limit(tmp_path: Path) -> None:
    for place in (Path("/dev/zero"), tmp_path):
        with pytest.raises(DataError, match="regular file, got a folder"):
            read_regular_file(place)
    (tmp_path / "large").write_bytes(bytes(11))
    with pytest.raises(DataError, match="at most 10 bytes"):
        read_regular_file(tmp_path / "large", 10)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (DEEP, "nested too deeply"), (b"\xff", "is not JSON"), (b"1" * 5_000, "is not JSON"), (b"[1", "is not JSON"),
        (b'["\\u001b"]', "control characters"), (b'{"\\u202e": 1}', "control characters"),
        (b"[1" + b"0" * 40 + b"]", "64 bits"),
    ],
)  # fmt: skip
def test_json_that_cannot_be_shown_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(DataError, match=said):
        parse_json(content, "a file")
    check_texts_and_integers({"fine\n": [1, 2.5, None, True, "ε — 汉字 \u200d"]}, "a file")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("learner = " + "[" * 20_000, "deeply"), ("seeds = " + "1" * 5_000, "Exceeds the limit"),
        ("a." * 1_001 + "a = 1", "dots"),
        ("seeds = [0x" + "f" * 8_000 + "]", "64 bits"), ('learner = "\\u001b"', "control characters"),
        ("# " + "x" * 1_000_000, "at most 1,000,000 bytes"),
    ],
)  # fmt: skip
def test_toml_that_cannot_be_read_is_refused(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(text, encoding="utf-8")
    for what in ("spec", "claims of"):
        with pytest.raises(SpecError, match=f"Cannot read the {what} .*{said}"):
            read_toml(file, what)


def archive(folder: Path, *members: tuple[str, bytes, dict[str, str]]) -> Path:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content, headers in members:
            facts = tarfile.TarInfo(name)
            facts.size, facts.pax_headers = len(content), headers
            tar.addfile(facts, io.BytesIO(content))
    (folder / packed.ARCHIVE).write_bytes(lzma.compress(whole.getvalue(), preset=1))
    return folder / "a.json"


@pytest.mark.parametrize(
    "headers",
    [
        {"GNU.sparse.map": "x,y"}, {"GNU.sparse.size": "zz"}, {"size": "9" * 30},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"},
    ],
)  # fmt: skip
def test_an_archive_with_headers_of_no_sense_is_refused(headers: dict[str, str], tmp_path: Path) -> None:
    file = archive(tmp_path, ("a.json", b"x\n" + bytes(510), headers))
    with pytest.raises(DataError, match=r"archive|JSON files"):
        packed.read_record(file)


def test_an_archive_holds_so_many_records_of_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "MAX_RECORDS", 2)
    with pytest.raises(DataError, match="at most 2 records"):
        packed.read_record(archive(tmp_path, *((f"{name}.json", b"", {}) for name in "abc")))
    monkeypatch.setattr(packed, "LARGEST", 10)
    with pytest.raises(DataError, match="of 10 bytes each"):
        packed.read_record(archive(tmp_path, ("a.json", bytes(20), {})))


def test_text_of_others_is_no_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(
        'name = "a"\n[fixed]\nlearner = "jl:k=5"\n[grid]\ndataset = ["imagefolder:/nowhere/[bold][/x]"]\n',
        encoding="utf-8",
    )
    assert call("sweep", file, "--dry-run", "--out", tmp_path / "out") == 0
    assert "[/x]" in "".join(capsys.readouterr().out.split())


def test_a_delta_below_all_numbers_is_no_traceback() -> None:
    made = receipt(
        Training(events=gaussian_steps(sigma=2.0, steps=1), size=100), epsilon=1.0, delta=5e-324, unit="image",
        adjacency="add-or-remove-one",
    )  # fmt: skip
    assert not check(made).passed
