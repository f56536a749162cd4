"""Stability of rank 1 over halves of the test set: against known answers, and what it is not said of."""

from __future__ import annotations

import numpy as np
import pytest

from dpbench.analysis.paired import RankingScores
from dpbench.board.stability import HALF_COUNT, SEED, measure_winner_stability


def scored(*correct: np.ndarray) -> list[RankingScores]:
    """Return entries that were right on the examples given, (seeds, n) each."""
    return [RankingScores(tuple(bits.mean(1)), lambda bits=bits: bits) for bits in correct]  # type: ignore[misc]


def test_an_entry_that_is_right_wherever_another_is_wins_on_every_half() -> None:
    worse = np.random.default_rng(0).random((3, 200)) < 0.6
    found = measure_winner_stability(scored(np.ones((3, 200), bool), worse), 1)
    assert found is not None
    assert (found.halves, found.seed, found.first, found.shared) == (HALF_COUNT, SEED, HALF_COUNT, HALF_COUNT)


def test_an_entry_that_is_ahead_by_one_example_wins_where_that_example_is() -> None:
    # Half of all halves hold the example; on the others both have the same answers, and neither is higher.
    best, other = np.ones((1, 100), bool), np.ones((1, 100), bool)
    other[0, 7] = False
    found = measure_winner_stability(scored(best, other), 1)
    assert found is not None and found.first == HALF_COUNT
    swapped = measure_winner_stability(scored(other, best), 1)
    assert swapped is not None
    assert abs(swapped.first / HALF_COUNT - 0.5) < 4 * 0.5 / np.sqrt(HALF_COUNT)


def test_the_share_of_two_rivals_is_that_of_the_hypergeometric_distribution() -> None:
    # The first is right on 52 examples, the other on the 48 others: the first wins where a half has 25 or more of 52.
    from scipy.stats import hypergeom

    first = np.arange(100)[None] < 52
    found = measure_winner_stability(scored(first, ~first), 1)
    assert found is not None
    expected = hypergeom(100, 52, 50).sf(24)
    assert found.first / HALF_COUNT == pytest.approx(expected, abs=4 * 0.5 / np.sqrt(HALF_COUNT))


def test_entries_on_rank_one_count_together_beside_the_first() -> None:
    rows = [np.random.default_rng(seed).random((5, 80)) < 0.7 for seed in range(4)]
    rows.sort(key=lambda bits: -int(bits.sum()))
    alone, both, everybody = (measure_winner_stability(scored(*rows), tied) for tied in (1, 2, 4))
    assert alone is not None and both is not None and everybody is not None
    assert alone.first == alone.shared == both.first == everybody.first
    assert alone.shared <= both.shared <= everybody.shared == HALF_COUNT


def test_the_same_board_has_the_same_stability() -> None:
    rows = [np.random.default_rng(seed).random((5, 80)) < 0.7 for seed in range(4)]
    assert measure_winner_stability(scored(*rows), 2) == measure_winner_stability(scored(*rows), 2)


def test_there_is_none_for_one_entry_one_example_or_a_metric_that_is_no_mean_over_examples() -> None:
    bits = np.ones((2, 50), bool)
    assert measure_winner_stability(scored(bits), 1) is None
    assert measure_winner_stability(scored(bits[:, :1], bits[:, :1]), 1) is None
    assert measure_winner_stability([RankingScores((0.5, 0.6), None), RankingScores((0.4, 0.5), None)], 1) is None
    assert measure_winner_stability([], 0) is None
