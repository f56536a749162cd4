"""`dpbench data` as its users meet it: lists, one sentence for what is wrong, and never a traceback."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpbench.data.fetch import download, store
from tests.cli.test_cli import refusal
from tests.helpers.commands import Output, call

Install = Callable[[str], None]

TINY = '''
from dataclasses import dataclass
import numpy as np
from PIL import Image
from dpbench import DataError, Dataset, Source, Split, Splits, hookimpl, locate
from tests.helpers.commands import Output, call

@dataclass(frozen=True)
class Tiny(Dataset):
    """A text, and two images."""
    name = "tiny"
    classes = ("a", "b")
    licence = "CC0 [really]"
    citation = "none"
    size: int = 2
    def source(self):
        return Source([["tiny.txt"]], page="https://x.org", size=5_000_000)
    def load(self):
        if "bad" in locate(self).paths[0].read_text():
            raise DataError("Expected otherwise.")
        split = Split([Image.new("L", (self.size, 2))] * 2, np.array([0, 1]))
        return Splits(split, split, f"digest-{self.size}")

@dataclass(frozen=True)
class Broken(Tiny):
    """Its source raises."""
    name = "broken"
    def source(self):
        raise RuntimeError("no [source]")

@hookimpl
def dpbench_datasets():
    return [Tiny, Broken]
'''


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a distribution with two datasets on the path."""
    info = tmp_path / "site/tiny_wheel-1.0.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site/tiny_data.py").write_text(TINY)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-wheel\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dpbench]\ntiny = tiny_data\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("COLUMNS", "200")


def said(capsys: Output, *arguments: str) -> str:
    assert call("data", *arguments) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def rows(capsys: Output) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(said(capsys, "list", "--json"))}


def test_list_says_what_is_here_and_how_to_get_the_rest(capsys: Output, data_folder: Path) -> None:
    found = rows(capsys)
    assert found["digits"]["present"] is True
    assert found["digits"]["how"] == ""
    assert (found["pcam"]["present"], found["pcam"]["how"]) == (False, "dpbench data fetch pcam")
    assert found["pneumonia"]["how"] == "dpbench data import pneumonia PATH"
    assert found["hf"]["present"] is None
    assert found["hf"]["how"].startswith("--dataset hf:")
    (data_folder / "chest_xray").mkdir()
    assert rows(capsys)["pneumonia"]["where"] == str(data_folder)


def test_list_is_a_table_too(capsys: Output, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    (pcam,) = [line for line in said(capsys, "list").splitlines() if line.split()[:1] == ["pcam"]]
    assert "7.2 GB" in pcam
    assert "dpbench data fetch pcam" in pcam


@pytest.mark.usefixtures("tiny")
def test_list_survives_a_broken_dataset_and_brackets(
    capsys: Output, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "[bold]").mkdir()
    (tmp_path / "[bold]/tiny.txt").touch()
    monkeypatch.setenv("DPBENCH_DATA", str(tmp_path / "[bold]"))
    monkeypatch.setenv("COLUMNS", "300")
    shown = said(capsys, "list")
    assert "RuntimeError: no [source]" in shown
    assert "CC0 [really]" in shown
    assert str(tmp_path / "[bold]") in shown
    assert "CC0 [really]" in said(capsys, "info", "tiny")


def test_info_tells_what_a_dataset_is(capsys: Output, fresh_cache: Path) -> None:
    shown = said(capsys, "info", "digits")
    for part in ("1,438 training, 359 test", "L 8 x 8", "10: 0, 1, 2", "comes with a Python package"):
        assert part in shown
    found = json.loads(said(capsys, "info", "digits", "--json"))
    assert (sum(found["train"]), sum(found["test"])) == (1438, 359)
    assert found["overlap"]["test, repeated in train"]["among"] == 359


@pytest.mark.usefixtures("tiny")
def test_data_are_imported_shown_and_removed(
    capsys: Output, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "download.txt").write_text("good")
    own = tmp_path / "none/dpbench"  # below XDG_DATA_HOME
    shown = said(capsys, "import", "tiny", str(tmp_path / "download.txt"))
    assert shown == f"tiny is complete: tiny.txt in {own}\nLicence: CC0 [really]. Cite: none.\n"
    assert said(capsys, "fetch", "tiny") == f"tiny is already here: {own}\n"
    assert str(own / "tiny.txt") in said(capsys, "info", "tiny")
    monkeypatch.setattr("sys.stdin", _answer("n\n"))
    assert call("data", "remove", "tiny") == 1
    captured = capsys.readouterr()
    assert f"Delete tiny.txt in {own}? [y/N]" in captured.out
    assert "Traceback" not in captured.err
    assert (own / "tiny.txt").exists()
    monkeypatch.setattr("sys.stdin", _answer("y\n"))
    assert said(capsys, "remove", "tiny").endswith(f"Deleted tiny.txt in {own}\n")
    assert not (own / "tiny.txt").exists()
    assert (tmp_path / "download.txt").read_text() == "good"


def _answer(text: str) -> Any:
    return io.TextIOWrapper(io.BytesIO(text.encode()))


@pytest.mark.usefixtures("tiny")
def test_to_and_from_name_a_data_folder(capsys: Output, data_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "download.txt").write_text("good")
    given = ("tiny:size=3", str(tmp_path / "download.txt"))
    assert str(data_folder) in said(capsys, "import", *given, "--link", "--to", str(data_folder / "../data"))
    assert (data_folder / "tiny.txt").is_symlink()
    assert "has put no files of dataset" in refusal(capsys, "data", "remove", "tiny:size=3", "--yes")
    assert "has put no files of dataset" in refusal(capsys, "data", "remove", "tiny", "--from", str(data_folder))
    assert said(capsys, "remove", "tiny:size=3", "--yes", "--from", str(data_folder)).startswith("Deleted tiny.txt")


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("fetch tiny", "Download it (5 MB, licence: CC0 [really]) from https://x.org, then run `dpbench data import t"),
        ("fetch tiny:size=3", "then run `dpbench data import tiny:size=3 FILE-OR-FOLDER`"),
        ("fetch pneumonia", "then run `dpbench data import pneumonia FILE-OR-FOLDER`"),
        ("fetch digits", "'digits' comes with a Python package: there is nothing to fetch"),
        ("import digits /tmp", "'digits' comes with a Python package: there is nothing to fetch"),
        ("fetch pcan", "Unknown dataset 'pcan'. Did you mean 'pcam'?"),
        ("info pcam:fractio=1", "Unknown option 'fractio' of dataset 'pcam'"),
        ("info pcam", "Run `dpbench data fetch pcam` (7.2 GB"),
        ("remove pcam", "dpbench has put no files of dataset"),
        ("remove pcam:fraction=0.5 --yes", "`dpbench data info pcam:fraction=0.5` shows where the data are"),
        ("import tiny {folder}/gone", "No such file or directory. Check the path."),
        ("import tiny {folder}", "Expected tiny.txt in"),
        ("import tiny {folder}/bad.txt", "is not dataset 'tiny'. Expected otherwise."),
        ("import tiny {folder}/bad.txt --to /tmp", "got /tmp. To use it, add it to DPBENCH_DATA."),
        ("fetch pcam --to {folder}", "To use it, add it to DPBENCH_DATA."),
        ("remove pcam --from {folder}", "To use it, add it to DPBENCH_DATA."),
        ("fetch broken", "no [source]"),
        ("info broken", "no [source]"),
        ("import broken {folder}", "no [source]"),
        ("remove broken", "dpbench has put no files of dataset"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    capsys: Output, data_folder: Path, tmp_path: Path, command: str, part: str
) -> None:
    (tmp_path / "bad.txt").write_text("bad")
    arguments = [argument.replace("{folder}", str(tmp_path)) for argument in command.split()]
    assert part in refusal(capsys, "data", *arguments)
    assert list(data_folder.iterdir()) == []


def test_an_interrupted_fetch_says_how_it_goes_on(
    capsys: Output, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "fetch_dataset", interrupted)
    assert call("data", "fetch", "pcam") == 130
    assert capsys.readouterr().err.startswith("dpbench: Interrupted. The partial download is kept")


def test_without_a_network_a_fetch_is_one_sentence(
    capsys: Output, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(download, "_send_request", unreachable)
    monkeypatch.setattr(download, "time", SimpleNamespace(sleep=lambda _: None))
    assert "to answer, got: no route to host. Try again later" in refusal(capsys, "data", "fetch", "dermamnist")


def test_the_real_pneumonia_is_imported_as_a_link_and_removed(
    capsys: Output, real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = real_data / "chest_xray.zip"
    if not archive.exists():
        pytest.skip(f"no chest_xray.zip in {real_data}")
    monkeypatch.setenv("DPBENCH_DATA", str(tmp_path / "data"))
    assert "chest_xray.zip in" in said(
        capsys, "import", "pneumonia", str(archive), "--link", "--to", str(tmp_path / "data")
    )
    assert (tmp_path / "data/chest_xray.zip").readlink() == archive.resolve()
    said(capsys, "remove", "pneumonia", "--yes", "--from", str(tmp_path / "data"))
    assert not (tmp_path / "data/chest_xray.zip").exists()
    assert archive.exists()


LIGHT = """
import contextlib, io, json, sys
from dpbench.cli import main
for command in sys.argv[1:]:
    code = None
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            main(command.split())
        except SystemExit as ended:
            code = ended.code
    print(json.dumps([code, said.getvalue(), "torch" in sys.modules]))
"""
MISSING = (
    "run --learner dp-sgd --dataset pcam", "run --learner dp-sgd --public-dataset pcam", "data list",
    "data fetch pneumonia", "data info pcam", "data remove pcam",
)  # fmt: skip


def test_missing_data_is_said_before_torch_is_imported(data_folder: Path) -> None:
    process = [sys.executable, "-c", LIGHT, *MISSING]
    done = subprocess.run(process, check=True, timeout=60, capture_output=True, text=True)
    for command, line in zip(MISSING, done.stdout.splitlines(), strict=True):
        code, said, torch = json.loads(line)
        expected = 0 if command == "data list" else 1
        assert (command, code, said.count("\n"), torch) == (command, expected, expected, False)
        if "pcam" in command and "remove" not in command:
            assert "Run `dpbench data fetch pcam` (7.2 GB, licence: " in said
            assert str(data_folder) in said
