"""Several learners or budgets in one command, and flags that must not stand twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dpbench.cli import given
from dpbench.errors import SpecError
from dpbench.records.spec import Spec
from dpbench.registry import load
from dpbench.sweep.conduct import get_sweep_overview
from dpbench.sweep.grid import make_sweep_definition
from tests.helpers.commands import call
from tests.helpers.trees import lay_out, planted


def test_learners_with_options_are_told_apart_at_commas() -> None:
    assert given.split_components(["pillar:k=40,steps=30,dp-sgd:clip=2,jl"], "--learner") == [
        "pillar:k=40,steps=30",
        "dp-sgd:clip=2",
        "jl",
    ]
    assert given.split_components(["torchvision:resnet18,tag=DEFAULT,pixels:size=8+scatternet"], "--extractor") == [
        "torchvision:resnet18,tag=DEFAULT",
        "pixels:size=8+scatternet",
    ]
    assert given.split_components(["a", "b,c"], "--learner") == ["a", "b", "c"]
    assert given.split_components([], "--learner") == []


def test_the_same_value_twice_is_refused() -> None:
    with pytest.raises(SpecError, match=r"each value of --epsilon once, got 1\.0 twice"):
        _ = given.UserSettings(
            "run", given.CommandSettings((Spec,), several=("epsilon",)), {"epsilon": ["1,2", "1.0"]}
        ).axes


def read_json(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


RUN = ["run", "--learner", "class-means:k=5,dp-sgd:steps=3,non-private", "--epsilon", "0.5,2", "--seeds", "1"]


@pytest.mark.long
def test_several_run_in_one_command_with_one_table_and_are_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*RUN, "--out", str(tmp_path)) == 0
    first = capsys.readouterr().out
    assert first.index("non-private (no privacy)") > max(first.index("class-means"), first.index("dp-sgd"))
    assert "ε 0.5" in first and "ε 2" in first and "5 cells run, 0 done before, 0 failed" in first
    results = list(map(read_json, tmp_path.glob("*.json")))
    assert sorted((result["spec"]["learner"]["name"], result["spec"]["epsilon"]) for result in results) == [
        ("class-means", 0.5), ("class-means", 2.0), ("dp-sgd", 0.5), ("dp-sgd", 2.0), ("non-private", "Infinity"),
    ]  # fmt: skip
    assert call(*RUN, "--out", str(tmp_path)) == 0
    assert "0 cells run, 5 done before" in capsys.readouterr().out


@pytest.mark.long
def test_cells_are_run_again_where_the_data_have_changed_and_left_where_they_are_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = lay_out(
        tmp_path / "photos", planted([f"{split}/{kind}" for split in ("train", "test") for kind in "ab"], 12)
    )
    run = ["run", "--learner", "class-means:k=1,dp-sgd:steps=3", "--seeds", "1", "--extractor", "pixels:size=8",
           "--dataset", f"imagefolder:{photos}", "--delta", "0.001", "--out", str(tmp_path / "out")]  # fmt: skip
    assert call(*run) == 0
    assert call(*run) == 0
    assert "0 cells run, 2 done before" in capsys.readouterr().out
    lay_out(photos, planted(["train/c", "test/c"], 12))
    assert call(*run) == 0
    said = capsys.readouterr().out
    assert "2 cells run, 0 done before" in said
    assert "2 finished cells were re-run because the data on this machine has changed" in said
    kept = {content["task"]["private"] for content in map(read_json, (tmp_path / "out").glob("*.json"))}
    assert kept == {32}  # nine tenths of three classes
    plugins = load()
    cells = make_sweep_definition(
        {"dataset": f"imagefolder:{photos}", "extractor": "pixels:size=8", "seeds": 1, "delta": 0.001},
        {"learner": ["class-means:k=1", "dp-sgd:steps=3"]}, plugins,
    )  # fmt: skip
    lay_out(photos, planted(["train/d", "test/d"], 12))
    assert get_sweep_overview(cells, tmp_path / "out", plugins, data=True).states == ("other data", "other data")
    assert get_sweep_overview(cells, tmp_path / "out", plugins).states == ("done", "done")  # for a figure
    photos.rename(tmp_path / "elsewhere")
    assert get_sweep_overview(cells, tmp_path / "out", plugins, data=True).states == ("done", "done")


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        (["plugin", "new", "mine", "--out", "a", "--out", "b"], "--out"),
        (["data", "fetch", "digits", "--to", "a", "--to=b"], "--to"),
        (["data", "remove", "digits", "-y", "--yes"], "--yes or -y"),
        pytest.param(
            ["inspect", "--read-private", "--public-only"], "--read-private or --public-only", marks=pytest.mark.lab
        ),
    ],
)
def test_a_flag_of_one_value_is_given_once_whichever_command_it_is_of_and_however_it_is_spelled(
    command: list[str], flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(*command) == 1
    assert f"Expected {flag} once, got it more than once" in capsys.readouterr().err


def test_what_stands_after_two_dashes_is_no_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("list", "--", "-v") == 1
    assert "got '-v'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--learner", "pillar,jl", "--json"], "Expected one value of --learner with --json, got several"),
        (["--learner", "pillar", "--delta", "1e-5", "--delta", "1e-6"], "Expected --delta once, got it more than once"),
        (["--learner", "pillar", "--seeds=2", "--seeds", "3"], "Expected --seeds once"),
        (["--learner", "pillar", "--epsilon", "one"], "a number, or several, like 0.1,1; got 'one'"),
        (["--learner", "pillar,pilar"], "Unknown learner 'pilar'. Did you mean 'pillar'?"),
        (["--learner", "pillar,jl", "--epsilon", "0.1,-1"], "epsilon=-1.0"),
        (["--learner", "pillar,"], "Expected --learner to be a name, or several, like A,B; got 'pillar,'"),
        (["--learner", "pillar,,"], "Expected --learner to be a name, or several, like A,B; got 'pillar,,'"),
        (["--learner", "pillar", "--dataset", "/usr/lib"], "got the folder /usr/lib. Write imagefolder:/usr/lib."),
        (
            ["--learner", "pillar", "--seeds", "0"],
            "seeds='0' in the flags of dpbench run does not fit: expected at least one seed",
        ),
    ],
)
def test_bad_requests_are_one_sentence(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("run", *arguments, "--out", str(tmp_path)) == 1
    assert said in capsys.readouterr().err
    assert list(tmp_path.glob("*.json")) == []


def test_a_comma_in_a_path_is_told_from_several_datasets(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "a,b"
    folder.mkdir()
    assert call("run", "--learner", "jl", "--dataset", f"imagefolder:{folder}") == 1
    said = capsys.readouterr().err
    assert f"The comma in {folder} separates components in --dataset. Rename it, or name it in a spec file" in said


def test_a_delta_that_no_accountant_answers_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", "--learner", "jl", "--delta", "1e-300") == 1
    assert "accountants answer, and agree, for delta from 1e-12" in capsys.readouterr().err
