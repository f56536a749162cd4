"""A board that is written from a result: it has the result's protocol, and its data are matched by digest."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from dpbench import registry
from dpbench.board.new_board import write_board
from dpbench.board.verify.checks import find_protocol_differences
from dpbench.errors import OutputError, SpecError
from dpbench.records.board import Board, find_board, is_expected_dataset
from dpbench.records.protocol import Component, Protocol
from dpbench.records.result import Result
from dpbench.registry.boards import fill_in_board_defaults, make_entry_spec
from tests.helpers import boards
from tests.helpers.commands import Output, Refusal, call

FOLDER = {"name": "imagefolder", "options": {"path": "/here/xrays", "units": "folder", "unit": "patient"}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return boards.world(tmp_path_factory)


@pytest.fixture
def result(world: Path) -> Result:
    return Result.read(boards.file_of(world, "class-means"))


def moved(result: Result, **options: str) -> Result:
    """Return the result as if its data were a folder of images."""
    dataset = Component(name="imagefolder", options={**FOLDER["options"], **options})  # type: ignore[dict-item]
    return result.model_copy(update={"spec": result.spec.model_copy(update={"dataset": dataset})})


def test_a_board_of_a_result_has_its_protocol_and_takes_it(result: Result, tmp_path: Path) -> None:
    file = write_board(tmp_path, result.spec, result.task.digests, None, "")
    board = fill_in_board_defaults(Board.read(file), registry.load())
    assert file == tmp_path / "boards" / "digits-eps1.toml" and board.title == "digits, pixels, ε 1"
    assert {key: getattr(board, key) for key in Protocol.model_fields} == {
        key: getattr(result.spec, key) for key in Protocol.model_fields
    }
    assert find_protocol_differences(board, result.spec, result) == []
    other = result.model_copy(update={"task": result.task.model_copy(update={"digests": {"private": "0" * 64}})})
    assert [key for key, *_ in find_protocol_differences(board, other.spec, other)] == ["dataset"]


def test_the_file_of_a_board_names_every_key_that_its_owner_may_fill_in(result: Result, tmp_path: Path) -> None:
    text = write_board(tmp_path, result.spec, None, None, "").read_text(encoding="utf-8")
    keys = {line.removeprefix("# ").split()[0] for line in text.splitlines()}
    assert {"name", "title", "about", "selection", *Protocol.model_fields} == keys
    assert [line.split()[1] for line in text.splitlines() if line.startswith("# ")] == [
        "public_dataset", "imbalance", "unit",
    ]  # fmt: skip


def test_the_path_of_the_data_may_differ_and_nothing_else(result: Result, tmp_path: Path) -> None:
    here = moved(result)
    file = write_board(tmp_path, here.spec, here.task.digests, "xrays", "Our X-rays")
    board = Board.read(file).model_copy(update={"extractor": here.spec.extractor})
    elsewhere, grey = moved(result, path="/elsewhere/images"), moved(result, mode="L")
    assert find_protocol_differences(board, elsewhere.spec, elsewhere) == []
    assert [key for key, *_ in find_protocol_differences(board, grey.spec, grey)] == ["dataset"]
    bare = board.model_copy(update={"data": None})
    assert [key for key, *_ in find_protocol_differences(bare, elsewhere.spec, elsewhere)] == ["dataset"]


def test_an_entry_may_name_where_its_images_lie_if_the_board_has_digests(
    result: Result, tmp_path: Path, refusal: Refusal
) -> None:
    here, plugins = moved(result), registry.load()
    board = Board.read(write_board(tmp_path, here.spec, here.task.digests, "xrays", ""))

    def enter(board: Board, dataset: Any) -> Component:
        return make_entry_spec(board, {"learner": "pillar", "dataset": dataset}, plugins, "the flags").dataset

    given = "imagefolder:/elsewhere,units=folder,unit=patient"
    assert enter(board, given).options[""] == "/elsewhere"
    for other, dataset in ((board, "imagefolder:/elsewhere,mode=L"), (board.model_copy(update={"data": None}), given)):
        said = refusal(lambda other=other, dataset=dataset: enter(other, dataset), SpecError)  # type: ignore[misc]
        assert "board 'xrays' fixes them" in said


@pytest.mark.parametrize("units", ["folder", "(.+)", ""])
def test_a_rule_for_units_may_not_differ_as_no_digest_covers_it(units: str) -> None:
    wanted = Component(**FOLDER)  # type: ignore[arg-type]
    other = Component(name="imagefolder", options={**FOLDER["options"], "units": units})  # type: ignore[dict-item]
    board = Board.model_construct(data={"private": "0" * 64})
    assert is_expected_dataset(board, other, wanted) == (units == "folder")


def test_a_digest_with_a_strange_name_writes_no_other_keys(result: Result, tmp_path: Path) -> None:
    strange = 'private = "x"}\nabout = "planted"\n#'
    file = write_board(tmp_path, moved(result).spec, {**result.task.digests, strange: "0" * 64}, None, "strange")
    assert "planted" not in str(tomllib.loads(file.read_text()).get("about", ""))


def test_a_board_is_found_by_folder_and_name_or_within_its_folder(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_board(tmp_path / "ward", result.spec, None, "mine", "")
    monkeypatch.chdir(tmp_path)
    assert find_board("ward/mine").data is None
    monkeypatch.chdir(tmp_path / "ward")
    assert find_board("mine").name == "mine"


def test_what_no_board_can_fix_is_refused(result: Result, tmp_path: Path, refusal: Refusal) -> None:
    write_board(tmp_path, result.spec, None, "mine", "")
    free = result.spec.model_copy(update={"epsilon": float("inf")})
    assert "A board with results is never edited" in refusal(
        lambda: write_board(tmp_path, result.spec, None, "mine", ""), OutputError
    )
    assert "Expected a finite ε" in refusal(lambda: write_board(tmp_path, free, None, None, ""))
    assert "Expected --name in lower-case letters" in refusal(
        lambda: write_board(tmp_path, result.spec, None, "../Mine", "")
    )


def test_the_command_starts_a_leaderboard_that_takes_the_result_it_is_from(
    world: Path, result: Result, tmp_path: Path, capsys: Output, refusal: Refusal
) -> None:
    file, mine = boards.file_of(world, "class-means"), tmp_path / "mine"
    assert call("leaderboard", "new", mine, "--from", file, "--title", "Our digits") == 0
    steps = [line.strip() for line in capsys.readouterr().out.splitlines() if line.startswith("  dpbench ")]
    assert steps[0] == f"dpbench leaderboard add {file} --root {mine}"
    assert steps[1] == f"dpbench run --board {mine / 'digits-eps1'} --learner thrift"
    assert 'title = "A leaderboard of private learners"' in (mine / "site.toml").read_text(encoding="utf-8")
    assert call("leaderboard", "add", file, "--root", mine) == 0
    spec = tmp_path / "spec.toml"
    spec.write_text('learner = "pillar"\nextractor = "pixels"\nepsilon = 2\n', encoding="utf-8")
    assert "Expected delta in" in refusal.command("leaderboard", "new", mine, "--from", spec)
    spec.write_text('learner = "pillar"\nextractor = "pixels"\nepsilon = 2\ndelta = 1e-6\n', encoding="utf-8")
    assert call("leaderboard", "new", mine, "--from", spec) == 0
    board = Board.read(mine / "boards" / "digits-eps2.toml")
    assert (board.delta, board.data, board.extractor.name) == (1e-6, None, "pixels")
