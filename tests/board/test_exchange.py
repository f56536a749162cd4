"""The exchange rate: where the learning curve of public labels crosses a learner's score."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench import registry
from dpbench.board.build import build_index
from dpbench.board.curve import list_curve_sizes, write_learning_curves
from dpbench.board.exchange import LearningCurve, compute_label_equivalent, interpolate_label_counts
from dpbench.board.index import Worth
from dpbench.errors import ChecksFailed, SpecError
from dpbench.records.board import Board
from dpbench.registry.boards import make_entry_spec
from tests.cli.test_cli import refusal
from tests.helpers import boards
from tests.helpers.commands import Output
from tests.helpers.sessions import session

LABELS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


def curve(*draws: tuple[float, ...], labels: tuple[int, ...] = LABELS) -> LearningCurve:
    about = {"board": "tiny", "digest": "0", "metric": "accuracy", "learner": {"name": "public-only"}}
    rest: dict[str, dict[str, str]] = {"split_digests": {}, "components": {}, "provenance": {}}
    return LearningCurve.model_validate({**about, **rest, "labels": labels, "scores": draws})


def straight(labels: float) -> float:
    """Return an accuracy that is linear in the logarithm of the number of labels."""
    return 0.1 + 0.1 * math.log(labels)


@given(st.floats(10, 5000))
def test_on_a_curve_that_is_straight_the_crossing_is_exact(labels: float) -> None:
    points = np.array([[straight(count) for count in LABELS]])
    assert interpolate_label_counts(LABELS, points, np.array([straight(labels)]))[0] == pytest.approx(labels, rel=1e-6)


@given(st.floats(11, 4900))
def test_on_a_bent_curve_the_crossing_lies_between_the_points_around_it(labels: float) -> None:
    points = np.array([[1 - count**-0.3 for count in LABELS]])
    found = interpolate_label_counts(LABELS, points, np.array([1 - labels**-0.3]))[0]
    below, above = max(count for count in LABELS if count <= labels), min(count for count in LABELS if count >= labels)
    assert below * 0.999 <= found <= above * 1.001
    assert found == pytest.approx(labels, rel=0.1)


def test_a_dip_in_the_curve_is_passed_over() -> None:
    points = np.array([[0.1, 0.4, 0.3, 0.6]])
    assert interpolate_label_counts((10, 20, 40, 80), points, np.array([0.4]))[0] == pytest.approx(20)
    assert 40 < interpolate_label_counts((10, 20, 40, 80), points, np.array([0.5]))[0] < 80


def test_a_score_above_the_whole_curve_is_worth_more_than_all_labels() -> None:
    found = compute_label_equivalent(curve(*[tuple(map(straight, LABELS))] * 3), [0.999, 0.998])
    assert found == Worth(labels=None, low=None, high=None, all=5000)
    assert str(found) == "more than all 5,000"


def test_a_score_below_the_whole_curve_is_worth_the_first_point() -> None:
    assert compute_label_equivalent(curve(*[tuple(map(straight, LABELS))] * 3), [0.1, 0.1]).labels == 10


def test_without_noise_the_interval_is_the_number_itself() -> None:
    found = compute_label_equivalent(curve(*[tuple(map(straight, LABELS))] * 3), [straight(300)] * 5)
    assert found == Worth(labels=300, low=300, high=300, all=5000)
    assert str(found) == "300"


def test_the_interval_widens_with_draws_and_with_seeds_and_contains_the_number() -> None:
    shifted = curve(*(tuple(straight(count) + shift for count in LABELS) for shift in (-0.02, 0, 0.02)))
    by_draws, by_seeds = (
        compute_label_equivalent(shifted, [straight(300)] * 5),
        compute_label_equivalent(shifted, [straight(200), straight(450)] * 3),
    )
    for found in (by_draws, by_seeds):
        assert found.low is not None and found.labels is not None and found.high is not None
        assert found.low < found.labels < found.high
    assert by_draws.high is not None and by_seeds.high is not None and by_seeds.high > by_draws.high


def test_an_interval_may_reach_beyond_all_labels() -> None:
    found = compute_label_equivalent(
        curve(*[tuple(map(straight, LABELS))] * 2), [straight(4000), straight(4900), straight(6000)]
    )
    assert found.high is None and str(found).endswith("to more than 5,000)")


def test_numbers_of_labels_end_with_all_of_them() -> None:
    assert list_curve_sizes(144) == (10, 20, 50, 100, 144)
    assert list_curve_sizes(100) == (10, 20, 50, 100)
    with pytest.raises(SpecError, match="Expected more than 10 public labels for a learning curve, got 9"):
        list_curve_sizes(9)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = boards.world(tmp_path_factory)
    assert [file.name for file in write_learning_curves((), root, session())] == ["tiny.json"]
    return root


@pytest.fixture
def root(world: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world, tmp_path / "leaderboard"))


@pytest.mark.slow
def test_the_last_point_of_a_curve_is_the_result_of_public_labels_alone(root: Path) -> None:
    found = LearningCurve.model_validate_json((root / "curves" / "tiny.json").read_bytes())
    board = Board.read(root / "boards" / "tiny.toml")
    whole = session().run(make_entry_spec(board, {"learner": "public-only"}, registry.load(), "the test"))
    assert {row[-1] for row in found.scores} == {whole.metrics["accuracy"].mean}
    assert found.labels[-1] == whole.task.public
    assert all(row[0] < row[-1] for row in found.scores)


def test_entries_that_read_private_data_are_worth_a_number_of_labels(root: Path) -> None:
    standing = next(
        standing for standing in build_index(root, registry.load()).standings if standing.board.name == "tiny"
    )
    by_learner = {entry.learner: entry.worth for entry in standing.entries}
    assert by_learner["public-only"] is None and by_learner["non-private"] is None
    assert by_learner["class-means"] is not None and by_learner["class-means"].all == standing.public


def test_an_entry_that_learns_from_public_labels_is_worth_none_of_them(root: Path) -> None:
    boards.enter(root, "adadps:steps=5")
    standing = next(
        standing for standing in build_index(root, registry.load()).standings if standing.board.name == "tiny"
    )
    (entry,) = (entry for entry in standing.entries if entry.learner == "adadps")
    assert entry.reads == "features and labels" and entry.reads_private
    assert entry.worth is None


@pytest.mark.slow
def test_boards_that_differ_in_epsilon_alone_share_their_fits(root: Path) -> None:
    made = [json.loads(file.read_text("utf-8")) for file in write_learning_curves(("tiny", "tiny-2"), root, session())]
    assert made[0]["scores"] == made[1]["scores"]
    assert made[0]["digest"] != made[1]["digest"]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("digest", "0" * 64, "expected a curve of board tiny as it is"),
        ("labels", [10, 10, 20, 100, 144], "ascending"),
        ("scores", [[0.5], [0.5]], "expected 5 scores in each draw"),
        ("scores", [[0.5] * 4 + [1.5]] * 2, "less than or equal to 1"),
        ("split_digests", {"private": "0", "public": "0"}, "expected the data of the board's results"),
    ],
)
def test_a_curve_that_does_not_fit_stops_the_build(root: Path, field: str, value: object, said: str) -> None:
    file = root / "curves" / "tiny.json"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), field: value}), encoding="utf-8")
    with pytest.raises(ChecksFailed, match=said):
        build_index(root, registry.load())


def test_a_curve_of_no_board_stops_the_build(root: Path) -> None:
    shutil.copy(root / "curves" / "tiny.json", root / "curves" / "other.json")
    with pytest.raises(ChecksFailed, match="no board is called 'other'"):
        build_index(root, registry.load())


def test_the_command_refuses_a_board_that_is_not_there_or_has_no_labels(capsys: Output, root: Path) -> None:
    ask = ("leaderboard", "exchange", "--root", str(root), "--device", "cpu")
    assert "Unknown board 'tinny'. Did you mean 'tiny'" in refusal(capsys, *ask, "tinny")
    file = root / "boards" / "dark.toml"
    text = (root / "boards" / "tiny.toml").read_text("utf-8")
    file.write_text(text.replace('"tiny"', '"dark"').replace("public_labels = true", "public_labels = false"), "utf-8")
    assert "Expected labelled public data on board 'dark'" in refusal(capsys, *ask, "dark")
