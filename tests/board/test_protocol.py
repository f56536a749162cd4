"""Boards: frozen protocols, what they fix of a run, and what is refused."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from dpbench.board.verify.checks import find_protocol_differences
from dpbench.errors import SpecError
from dpbench.records.board import Board, find_board, list_board_files
from dpbench.records.checksums import evidence_digest
from dpbench.records.result import Result
from dpbench.records.spec import Spec, make_spec
from dpbench.registry import Registry, boards
from dpbench.registry import components as parts
from dpbench.registry.boards import make_entry_spec
from tests.helpers.commands import call

TEXT = """
name = "tiny"
title = "Tiny"
dataset = "digits"
extractor = "pixels"
epsilon = 2.0
delta = 1e-5
accountant = "pld"
adjacency = "add-or-remove-one"
public_fraction = 0.2
public_labels = true
train_fraction = 1.0
split_seed = 3
seeds = 2
metric = "balanced_accuracy"
selection = ["default", "public-validation"]
"""


def written(folder: Path, text: str = TEXT, name: str = "tiny") -> Path:
    file = folder / f"{name}.toml"
    file.write_text(text, encoding="utf-8")
    return file


def spelled_out(spec: Spec, plugins: Registry) -> Spec:
    return parts.resolve(spec, plugins).spec


@pytest.mark.parametrize("name", sorted(list_board_files()))
def test_a_committed_board_can_be_read_and_asks_for_what_is_installed(name: str, plugins: Registry) -> None:
    board = find_board(name)
    spec = spelled_out(make_entry_spec(board, {"learner": "dp-sgd"}, plugins, "the test"), plugins)
    assert find_protocol_differences(boards.fill_in_board_defaults(board, plugins), spec) == []
    assert ("public-validation" in board.selection) == (board.public_fraction > 0)


def test_a_board_fixes_everything_but_learner_search_and_randomness(tmp_path: Path, plugins: Registry) -> None:
    board = Board.read(written(tmp_path))
    spec = make_entry_spec(board, {"learner": "pillar:k=5", "secure_rng": True}, plugins, "the test")
    assert (spec.epsilon, spec.public_fraction, spec.split_seed, spec.seeds) == (2.0, 0.2, 3, (0, 1))
    assert spec.secure_rng and spec.learner.options == {"k": "5"}


@pytest.mark.parametrize("key", ["epsilon", "dataset", "seeds", "accountant", "public_labels"])
def test_what_the_board_fixes_cannot_be_given(tmp_path: Path, plugins: Registry, key: str) -> None:
    board = Board.read(written(tmp_path))
    with pytest.raises(SpecError, match=rf"no {key} in the test: board 'tiny' fixes them"):
        make_entry_spec(board, {"learner": "pillar", key: 1}, plugins, "the test")


def test_the_ceiling_runs_without_privacy_and_is_no_departure(tmp_path: Path, plugins: Registry) -> None:
    board = Board.read(written(tmp_path))
    spec = spelled_out(make_entry_spec(board, {"learner": "non-private"}, plugins, "the test"), plugins)
    assert math.isinf(spec.epsilon)
    assert find_protocol_differences(boards.fill_in_board_defaults(board, plugins), spec) == []


def test_a_selection_that_the_board_does_not_rank_is_refused_before_it_runs(tmp_path: Path, plugins: Registry) -> None:
    board = Board.read(written(tmp_path))
    search = {"rule": "private-unaccounted"}
    with pytest.raises(SpecError, match=r"board 'tiny' ranks .default, public-validation., got private-unaccounted"):
        make_entry_spec(board, {"learner": "pillar", "search": search}, plugins, "the test")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("epsilon", 1.0, "epsilon: expected 2.0, got 1.0"),
        ("seeds", 3, r"seeds: expected \(0, 1\), got \(0, 1, 2\)"),
        ("extractor", "pixels:size=4", "extractor: expected pixels:.*size=None.*, got pixels:.*size=4"),
        ("public_labels", False, "public_labels: expected True, got False"),
    ],
)
def test_a_departure_is_named_with_what_was_expected(
    tmp_path: Path, plugins: Registry, key: str, value: Any, said: str
) -> None:
    board = Board.read(written(tmp_path))
    whole = json.loads(make_entry_spec(board, {"learner": "pillar"}, plugins, "the test").model_dump_json())
    spec = spelled_out(make_spec({**whole, key: value}, "the test"), plugins)
    ((at, expected, got),) = find_protocol_differences(boards.fill_in_board_defaults(board, plugins), spec)
    assert re.match(said, f"{at}: expected {expected}, got {got}")


@pytest.mark.parametrize(
    ("line", "changed", "said"),
    [
        ("epsilon = 2.0\n", "", "every key of a protocol is spelled out, and 'epsilon' is not"),
        ("epsilon = 2.0", "epsilon = 0.0", r"epsilon=0.0 in board .* does not fit: expected a value greater than 0"),
        ("split_seed = 3", "split_sed = 3", "Unknown key 'split_sed' of board .*Did you mean 'split_seed'"),
        ('"default", ', '"oracle", ', "oracle is never ranked"),
        ('"tiny"', '"other"', "to be named as its file, 'tiny', got 'other'"),
        ('"tiny"', '"../up"', "name='../up' in board .* does not fit"),
        ('"balanced_accuracy"', '"speed"', "metric='speed' in board .* does not fit"),
    ],
)
def test_a_bad_board_is_refused_by_name(tmp_path: Path, line: str, changed: str, said: str) -> None:
    assert line in TEXT
    with pytest.raises(SpecError, match=said):
        Board.read(written(tmp_path, TEXT.replace(line, changed, 1)))


def test_words_about_a_board_may_change_and_nothing_else(tmp_path: Path) -> None:
    first = Board.read(written(tmp_path))
    assert Board.read(written(tmp_path, TEXT.replace('"Tiny"', '"Small"'))).digest == first.digest
    assert Board.read(written(tmp_path, TEXT.replace("split_seed = 3", "split_seed = 4"))).digest != first.digest
    assert Board.read(written(tmp_path, TEXT.replace("balanced_", ""))).digest != first.digest


def test_an_unknown_board_is_refused_with_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"Unknown board 'digits-epsilon1'. Did you mean 'digits-eps1'"):
        find_board("digits-epsilon1")


def test_run_takes_everything_from_a_board_and_seals_what_it_writes(tmp_path: Path, plugins: Registry) -> None:
    file = written(tmp_path)
    assert call("run", "--board", str(file), "--learner", "class-means", "--out", str(tmp_path / "out")) == 0
    (found,) = (tmp_path / "out").glob("*.json")
    assert (
        find_protocol_differences(boards.fill_in_board_defaults(Board.read(file), plugins), Result.read(found).spec)
        == []
    )
    content = json.loads(found.read_text(encoding="utf-8"))
    assert content["evidence_digest"] == evidence_digest(content)


def test_a_flag_that_the_board_fixes_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path)
    assert call("run", "--board", str(file), "--learner", "class-means", "--epsilon", "3") == 1
    assert "Expected no epsilon in the flags of dpbench run" in capsys.readouterr().err
