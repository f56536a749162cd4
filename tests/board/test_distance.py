"""One number a learner over all boards: which boards count, how they are averaged, and what the interval covers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest

from dpbench.board.distance import compute_mean_distances
from dpbench.board.index import Entry, MeanDistanceFromBest, Standing
from dpbench.records.board import find_board
from dpbench.records.protocol import Component
from dpbench.records.result import Interval
from dpbench.records.search import SelectionRule
from tests.helpers.boards import synthetic
from tests.site.test_site import standing_of

BOARD = find_board("digits-eps1")
BARE = standing_of(BOARD, synthetic(BOARD, 2, seed=0))


def board(scores: Mapping[str, float], data: str = "digits", *, epsilon: float = 1.0, seed: int = 0) -> Standing:
    """Return a board whose learners have the scores given at their defaults, best first; `seed` makes the family."""
    update = {
        "dataset": Component(name=data),
        "epsilon": epsilon,
        "split_seed": seed,
        "name": f"{data}-{epsilon}-{seed}",
    }
    order = sorted(scores.items(), key=lambda pair: -pair[1])
    entries = tuple(entry(learner, score) for learner, score in order)
    return BARE.model_copy(update={"board": BOARD.model_copy(update=update), "entries": entries})


def entry(learner: str, score: float, selection: SelectionRule = "default") -> Entry:
    metrics = {"accuracy": Interval(mean=score, low=None, high=None)}
    first = next(entry for entry in BARE.entries if entry.role == "entry")
    return first.model_copy(update={"learner": learner, "metrics": metrics, "selection": selection, "rank": 1})


def of(learner: str, *standings: Standing) -> MeanDistanceFromBest:
    (found,) = (distance for distance in compute_mean_distances(standings) if distance.learner == learner)
    return found


def test_a_distance_is_from_the_best_entry_of_each_board_whatever_its_settings() -> None:
    tuned = board({"a": 0.8})
    tuned = tuned.model_copy(update={"entries": (entry("b", 0.9, "public-validation"), *tuned.entries)})
    assert of("a", tuned).points == pytest.approx(10)
    assert [distance.learner for distance in compute_mean_distances([tuned])] == ["a"]


def test_epsilons_count_within_a_family_families_within_a_data_set_and_data_sets_alike() -> None:
    boards = [
        board({"best": 0.9, "a": 0.9 - gap / 100}, "digits", epsilon=epsilon, seed=seed)
        for seed, epsilon, gap in ((0, 0.1, 8.0), (0, 1.0, 4.0), (0, 8.0, 0.0), (1, 1.0, 2.0))
    ]
    boards.append(board({"best": 0.9, "a": 0.89}, "cifar10"))
    found = of("a", *boards)
    assert found.points == pytest.approx(((8 + 4 + 0) / 3 + 2) / 2 / 2 + 1 / 2)
    assert (found.boards, found.data_sets) == (5, 2)


def test_a_board_without_the_learner_is_left_out_of_its_mean() -> None:
    boards = [board({"best": 0.9, "a": 0.8}, epsilon=1.0), board({"best": 0.9}, epsilon=3.0)]
    found = of("a", *boards)
    assert found.points == pytest.approx(10) and found.boards == 1


def test_a_board_where_one_learner_alone_is_ranked_compares_nothing() -> None:
    lone = board({"a": 0.8}, "cifar10")
    again = lone.model_copy(update={"entries": (*lone.entries, entry("a", 0.9, "public-validation"))})
    assert not compute_mean_distances([lone, again])
    assert of("a", board({"best": 0.9, "a": 0.8}), lone, again).data_sets == 1


def test_only_entries_that_read_public_labels_are_compared_with_those_that_do() -> None:
    reads = entry("reader", 0.9).model_copy(update={"reads": "features and labels"})
    other = entry("poor-reader", 0.7).model_copy(update={"reads": "features and labels"})
    whole = board({"a": 0.8, "b": 0.75})
    whole = whole.model_copy(update={"entries": (*whole.entries, reads, other)})
    assert [of(name, whole).points for name in ("a", "b", "reader", "poor-reader")] == pytest.approx([0, 5, 0, 20])
    poor = whole.model_copy(update={"entries": (*whole.entries[:2], other)})
    assert of("poor-reader", poor).points == pytest.approx(10)
    alone = whole.model_copy(update={"entries": (reads, other)})
    assert of("poor-reader", alone).points == pytest.approx(20)


def test_lines_and_unranked_results_neither_count_nor_are_the_best() -> None:
    standing = board({"a": 0.8, "b": 0.7})
    line = entry("non-private", 0.99).model_copy(update={"role": "ceiling", "rank": None})
    other = entry("c", 0.95).model_copy(update={"role": "unranked", "rank": None})
    found = compute_mean_distances([standing.model_copy(update={"entries": (*standing.entries, line, other)})])
    assert [(each.learner, each.points) for each in found] == [("a", 0.0), ("b", pytest.approx(10))]


def test_a_learner_that_lacks_a_data_set_comes_after_those_that_have_them_all() -> None:
    whole = [board({"best": 0.9, "a": 0.8}, "digits"), board({"best": 0.9, "a": 0.8, "b": 0.9}, "cifar10")]
    assert [(distance.learner, distance.data_sets) for distance in compute_mean_distances(whole)] == [
        ("best", 2),
        ("a", 2),
        ("b", 1),
    ]


def test_the_interval_is_that_of_all_samples_of_data_sets() -> None:
    gaps = (0.5, 1.0, 4.0, 9.0)
    boards = [
        board({"best": 0.9, "a": 0.9 - gap / 100}, f"data-{place}", epsilon=epsilon)
        for place, gap in enumerate(gaps)
        for epsilon in (0.1, 1.0, 8.0)
    ]
    every = [np.mean(sample) for sample in itertools.product(gaps, repeat=4)]  # 256, as likely each
    low, high = np.quantile(every, (0.025, 0.975), method="inverted_cdf")
    found = of("a", *boards)
    assert found.low == pytest.approx(low) and found.high == pytest.approx(high)


def test_many_epsilons_of_one_data_set_are_no_interval() -> None:
    boards = [board({"best": 0.9, "a": 0.9 - gap / 100}, epsilon=gap) for gap in (1.0, 2.0, 3.0, 4.0)]
    found = of("a", *boards)
    assert (found.low, found.high, found.data_sets) == (None, None, 1)


def test_options_make_another_data_set_and_no_boards_make_no_distance() -> None:
    low, high = (board({"a": 0.9, "b": 0.8}, epsilon=epsilon) for epsilon in (1.0, 3.0))
    options = high.board.model_copy(update={"dataset": Component(name="digits", options={"size": 8})})
    assert of("a", low, high.model_copy(update={"board": options})).data_sets == 2
    assert compute_mean_distances([]) == compute_mean_distances([BARE.model_copy(update={"entries": ()})]) == ()
