"""Ranks: against an independent analysis of variance, ties, learners without noise, one seed, many comparisons."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from scipy import stats

from dpbench.analysis.paired import (
    LEVEL,
    PairedComparison,
    RankingScores,
    collect_ranking_scores,
    compare_entries,
    compare_over_examples,
    compare_over_seeds,
    holm_correction,
)
from dpbench.board.ranking import (
    compute_corrected_ranks,
    compute_sort_value,
    compute_uncorrected_ranks,
    rank_within_groups,
)
from dpbench.records.board import find_board
from tests.helpers import boards


def drawn(seed: int, p: float, shape: tuple[int, int] = (5, 300)) -> np.ndarray:
    """Return bits with example and seed effects of their own."""
    chance = np.random.default_rng(seed)
    effects = chance.normal(0, 1, shape[1]) + chance.normal(0, 0.3, (shape[0], 1))
    drawn: np.ndarray = stats.norm.ppf(p) + effects + chance.normal(0, 0.5, shape) > 0
    return drawn


def anova(first: np.ndarray, second: np.ndarray) -> tuple[float, float, float]:
    """Return difference, standard error and degrees of freedom by the textbook's mean squares."""
    d = first.astype(float) - second.astype(float)
    seeds, n = d.shape
    rows, columns = d.mean(1, keepdims=True), d.mean(0, keepdims=True)
    ms_seed = n * ((rows - d.mean()) ** 2).sum() / (seeds - 1)
    ms_example = seeds * ((columns - d.mean()) ** 2).sum() / (n - 1)
    ms_rest = ((d - rows - columns + d.mean()) ** 2).sum() / ((seeds - 1) * (n - 1))
    variance = max(ms_seed + ms_example - ms_rest, ms_seed, ms_example) / (n * seeds)
    parts = ms_seed**2 / (seeds - 1) + ms_example**2 / (n - 1) + ms_rest**2 / ((seeds - 1) * (n - 1))
    return d.mean(), math.sqrt(variance), (variance * n * seeds) ** 2 / parts


@pytest.mark.parametrize("case", range(20))
def test_the_comparison_is_that_of_a_two_way_analysis_of_variance(case: int) -> None:
    shape = (2 + case % 4, 50 + 37 * case)
    first, second = drawn(case, 0.6, shape), drawn(case + 1, 0.65, shape)
    found = compare_over_examples(first, second)
    difference, error, freedom = anova(first, second)
    assert (found.difference, found.error, found.degrees_of_freedom) == pytest.approx(
        (difference, error, freedom), rel=1e-9
    )
    assert found.p == pytest.approx(2 * stats.t.sf(abs(difference) / error, freedom), rel=1e-6)


def test_equal_entries_are_told_apart_about_one_time_in_twenty() -> None:
    told = [compare_over_examples(drawn(2 * case, 0.7), drawn(2 * case + 1, 0.7)).is_significant for case in range(400)]
    assert 0.01 < np.mean(told) < 0.09


def test_learners_without_noise_are_compared_over_examples_alone() -> None:
    chance = np.random.default_rng(0)
    first, second = (np.tile(chance.random(200) < p, (5, 1)) for p in (0.8, 0.6))
    found = compare_over_examples(first, second)
    paired = stats.ttest_rel(first[0].astype(float), second[0].astype(float))
    assert found.error == pytest.approx(abs(found.difference / paired.statistic), rel=1e-9)
    assert found.p == pytest.approx(paired.pvalue, rel=1e-6)


def test_a_single_seed_is_compared_over_examples_alone() -> None:
    first, second = drawn(0, 0.8, (1, 200)), drawn(1, 0.6, (1, 200))
    paired = stats.ttest_rel(first[0].astype(float), second[0].astype(float))
    assert compare_over_examples(first, second).p == pytest.approx(paired.pvalue, rel=1e-6)


def test_copies_of_an_image_in_one_unit_count_once() -> None:
    first, second, units = drawn(0, 0.7, (5, 60)), drawn(1, 0.6, (5, 60)), np.repeat(np.arange(60), 4)
    copied = compare_over_examples(np.repeat(first, 4, axis=1), np.repeat(second, 4, axis=1), units)
    alone = compare_over_examples(first, second)
    assert vars(copied) == pytest.approx(vars(alone), rel=1e-9)
    assert vars(compare_over_examples(first, second, np.arange(60))) == pytest.approx(vars(alone), rel=1e-9)


def test_the_error_over_units_is_that_of_a_bootstrap_over_units() -> None:
    chance = np.random.default_rng(0)
    sizes = chance.integers(1, 9, 80)
    units = np.repeat(np.arange(80), sizes)
    bits = [np.repeat(chance.random((1, 80)) < 0.6, sizes, axis=1) for _ in range(2)]
    found, totals = (
        compare_over_examples(bits[0], bits[1], units),
        np.bincount(units, bits[0][0].astype(int) - bits[1][0]),
    )
    draws = chance.integers(80, size=(5000, 80))
    assert found.error == pytest.approx(np.std(totals[draws].sum(1) / sizes[draws].sum(1)), rel=0.05)
    mixed = chance.permutation(len(units))
    first, second = (bit[:, mixed].copy() for bit in bits)
    assert vars(compare_over_examples(first, second, units[mixed])) == pytest.approx(vars(found))


def test_the_same_predictions_are_no_difference() -> None:
    bits = drawn(0, 0.7)
    assert compare_over_examples(bits, bits).p == 1.0


@pytest.mark.parametrize("seeds", [1, 5])
def test_one_that_is_always_right_differs_from_one_that_never_is(seeds: int) -> None:
    right = np.ones((seeds, 20), bool)
    assert compare_over_examples(right, ~right).p == 0.0


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_single_test_example_tells_nothing_apart(seeds: int) -> None:
    right = np.ones((seeds, 1), bool)
    assert not compare_over_examples(right, ~right).is_significant


def test_noise_over_seeds_counts_where_every_example_moves_with_it() -> None:
    rows = np.array([0.9, 0.5, 0.9, 0.5, 0.9])
    first = np.random.default_rng(0).random((5, 10_000)) < rows[:, None]
    second = np.random.default_rng(1).random((5, 10_000)) < 0.6
    found = compare_over_examples(first, second)
    assert found.difference > 0.1 and not found.is_significant
    assert found.degrees_of_freedom == pytest.approx(4, abs=0.1)


def test_other_metrics_are_compared_over_paired_seeds() -> None:
    first, second = (0.71, 0.72, 0.74, 0.70), (0.69, 0.71, 0.71, 0.69)
    assert compare_over_seeds(first, second).p == pytest.approx(stats.ttest_rel(first, second).pvalue)


def test_a_single_seed_of_another_metric_tells_nothing_apart() -> None:
    assert not compare_over_seeds((0.9,), (0.1,)).is_significant


def test_the_level_is_five_percent() -> None:
    edge = stats.t.ppf(0.975, 9)
    assert PairedComparison(edge * 1.001, 1.0, 9).is_significant
    assert not PairedComparison(edge * 0.999, 1.0, 9).is_significant


def scored(*means: float, spread: float = 0.01) -> list[RankingScores]:
    wiggle = np.array([[1, -1, 0, 0, 0], [0, 1, -1, 0, 0], [0, 0, 1, -1, 0]]) * spread
    return [RankingScores(tuple(m + wiggle[i % 3]), None) for i, m in enumerate(means)]


def test_ranks_are_places_shared_with_the_best_entry_that_does_not_differ() -> None:
    entries = scored(0.9, 0.899, 0.8, 0.799, 0.798, 0.5)
    assert compute_corrected_ranks(entries) == compute_uncorrected_ranks(entries) == [1, 1, 3, 3, 3, 6]


def test_only_entries_that_read_public_labels_are_ranked_among_those_that_do() -> None:
    entries = scored(0.9, 0.899, 0.8, 0.799, 0.5)
    assert rank_within_groups(entries, [True, False, False, True, False]) == [(1, 1), (1, 1), (2, 2), (3, 3), (3, 3)]
    assert rank_within_groups(entries, [False] * 5) == rank_within_groups(entries, [True] * 5)
    assert rank_within_groups([], []) == []


@pytest.mark.parametrize("answers", [True, False])
def test_five_challenge_seeds_are_compared_with_a_reference_of_two_seeds(answers: bool) -> None:
    chance = np.random.default_rng(0)
    many, few = (chance.random((seeds, 60)) < 0.7 for seeds in (5, 2))
    entry, reference, first = (
        RankingScores(tuple(bits.mean(1)), partial(np.copy, bits) if answers else None)
        for bits in (many, few, many[:2])
    )
    assert compare_entries(entry, reference) == compare_entries(first, reference)
    assert compare_entries(reference, entry).difference == -compare_entries(first, reference).difference != 0


def test_holm_refuses_what_the_textbook_refuses() -> None:
    # Step down: the smallest of m is held to 5% / m, the next to 5% / (m - 1), until one is not below its bound.
    chance = np.random.default_rng(0)
    for _ in range(200):
        p = chance.random(7) ** 3
        refused = np.zeros(7, bool)
        for step, place in enumerate(np.argsort(p)):
            if p[place] >= LEVEL / (7 - step):
                break
            refused[place] = True
        assert (holm_correction(p.tolist()) < LEVEL).tolist() == refused.tolist()
    assert holm_correction([]).tolist() == []


def test_a_difference_that_only_the_uncorrected_test_sees_is_a_tie_on_a_board_of_many() -> None:
    best, rival = scored(0.9, 0.881)
    p = compare_entries(best, rival).p
    assert LEVEL / 10 < p < LEVEL
    others = [rival] * 9
    assert compute_corrected_ranks([best, rival]) == [1, 2]
    assert compute_uncorrected_ranks([best, *others]) == [1] + [2] * 9
    assert compute_corrected_ranks([best, *others]) == [1] * 10


@pytest.mark.slow
def test_equal_entries_share_rank_one_on_nearly_all_boards_only_where_ranks_are_corrected() -> None:
    split = {compute_corrected_ranks: 0, compute_uncorrected_ranks: 0}
    for case in range(200):
        rows = [drawn(20 * case + place, 0.7, (5, 150)) for place in range(15)]
        fixed = [RankingScores((), lambda bits=bits: bits) for bits in rows]  # type: ignore[misc]
        for ranked in split:
            split[ranked] += ranked(fixed) != [1] * 15
    assert split[compute_corrected_ranks] < 18  # 9%
    assert split[compute_uncorrected_ranks] > 40  # 20%


def test_a_chain_of_small_steps_is_not_one_rank() -> None:
    means = [0.9 - 0.004 * step for step in range(12)]
    found = compute_corrected_ranks(scored(*means))
    assert found[:2] == [1, 1] and found[-1] > 1
    assert found == sorted(found)


def test_the_best_of_a_rank_is_unpacked_once() -> None:
    asked: list[int] = []

    def entry(number: int) -> RankingScores:
        def bits() -> np.ndarray:
            asked.append(number)
            return np.resize(np.array([True, False]), (3, 200))

        return RankingScores((0.5,) * 3, bits)

    assert compute_corrected_ranks([entry(number) for number in range(4)]) == [1, 1, 1, 1]
    assert sorted(asked) == [0, 1, 2, 3]


def test_no_entries_have_no_ranks() -> None:
    assert compute_corrected_ranks([]) == []


def test_a_result_is_compared_by_its_bits_for_accuracy_and_by_its_seeds_otherwise() -> None:
    _, first, second = boards.synthetic(find_board("digits-eps1"), 3, seed=0)
    scores = [collect_ranking_scores(result, "accuracy") for result in (first, second)]
    bits = [score.bits() for score in scores if score.bits is not None]
    assert [bit.mean(1).tolist() for bit in bits] == [pytest.approx(score.per_seed) for score in scores]
    assert collect_ranking_scores(first, "balanced_accuracy").bits is None


def test_seeds_that_score_the_same_but_for_rounding_are_one_rank() -> None:
    first = (0.3, 0.6, 0.9)
    second = tuple(math.nextafter(value, 0) for value in first)
    assert compare_over_seeds(first, second).p == 1.0
    assert compute_corrected_ranks([RankingScores(first, None), RankingScores(second, None)]) == [1, 1]


def test_results_are_sorted_by_answers_that_are_counted_and_other_metrics_by_whole_millionths() -> None:
    _, result, other = boards.synthetic(find_board("digits-eps1"), 3, seed=0)
    metrics = {
        name: value.model_copy(update={"mean": math.nextafter(value.mean, 2)}) for name, value in result.metrics.items()
    }
    nudged = result.model_copy()
    vars(nudged)["metrics"] = metrics
    for metric in metrics:
        assert compute_sort_value(nudged, metric) == compute_sort_value(result, metric)
        larger = result.metrics[metric].mean > other.metrics[metric].mean
        assert (compute_sort_value(result, metric) > compute_sort_value(other, metric)) == larger
    assert compute_sort_value(result, "auroc") == -1


@pytest.mark.slow
def test_a_rank_costs_one_comparison_an_entry_at_most() -> None:
    chance = np.random.default_rng(0)
    entries = [RankingScores(tuple(m + chance.normal(0, 0.01, 5)), None) for m in np.linspace(1, 0, 2000)]
    counted = []

    def count(first: tuple[float, ...], second: tuple[float, ...]) -> PairedComparison:
        counted.append(1)
        return compare_over_seeds(first, second)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpbench.analysis.paired.compare_over_seeds", count)
        compute_uncorrected_ranks(entries)
        assert len(counted) == len(entries) - 1
        counted.clear()
        found = compute_corrected_ranks(entries)
    assert len(counted) <= len(set(found)) * len(entries)
