"""Lower bounds on epsilon: those of an independent implementation, and valid where they are certificates."""

from __future__ import annotations

import importlib.util
import math
from functools import partial

import numpy as np
import pytest
from scipy import stats

from dpbench.audit import bounds
from dpbench.audit.attack import CanaryScores, draw_canary_membership
from dpbench.audit.figures import compute_figures, sigma_ratio_interval
from dpbench.records.audit import CanaryAttackResult, NoiseStatistics, StatisticalCheck

# canaries, guesses, correct, delta -> by Steinke et al., by Mahloujifar et al.: what jax_privacy 2.0 gives
GOLDEN = {
    (1_000, 100, 70, 1e-5): (0.469131, 0.653209),
    (1_000, 30, 30, 1e-6): (2.250705, 3.461751),
    (5_000, 200, 199, 1e-3): (0.0, 3.792441),
    (100_000, 3_000, 2_400, 1e-5): (1.296604, 1.536808),
}
Guessed = tuple[int, int, int, float]


@pytest.mark.parametrize("guessed", GOLDEN)
def test_bounds_are_those_that_another_implementation_gave(guessed: Guessed) -> None:
    m, guesses, correct, delta = guessed
    found = (
        bounds.steinke_bound(delta, m, guesses, correct),
        bounds.gaussian_dp_epsilon(bounds.mahloujifar_bound(m, guesses, correct), delta),
    )
    assert found == pytest.approx(GOLDEN[guessed], abs=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("jax_privacy") is None, reason="jax_privacy is not installed")
@pytest.mark.parametrize("guessed", [(2_000, 60, 41, 1e-5), (500, 100, 88, 1e-4), (10_000, 300, 210, 1e-6)])
def test_bounds_are_those_of_jax_privacy(guessed: Guessed) -> None:
    from jax_privacy import auditing

    m, guesses, correct, delta = guessed
    by_steinke = auditing._epsilon_one_run(0, m, guesses, correct, 0.05, delta)
    by_mahloujifar = auditing._epsilon_one_run_fdp(0, m, guesses, correct, 0.05, delta)
    assert bounds.steinke_bound(delta, m, guesses, correct) == pytest.approx(by_steinke, abs=1e-3)
    found = bounds.gaussian_dp_epsilon(bounds.mahloujifar_bound(m, guesses, correct), delta)
    assert found == pytest.approx(by_mahloujifar, abs=1e-3)


@pytest.mark.parametrize("guesses", [1, 30, 3_000, 30_000])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 3.0, 30.0])
def test_a_chance_is_that_of_the_theorem_by_the_tails_of_scipy(guesses: int, epsilon: float) -> None:
    chance, delta, canaries = 1 / (1 + math.exp(-epsilon)), 1e-5, 33 * guesses
    for correct in {0, 1, guesses // 2, round(guesses * min(1.0, 1.02 * chance)), guesses}:
        tails = stats.binom.sf(correct - 1 - np.arange(correct + 1), guesses, chance)  # P[at least correct - i]
        rise = max((tails[1:] - tails[0]) / np.arange(1, correct + 1), default=0.0)
        expected = min(1.0, tails[0] + 2 * canaries * delta * rise)
        assert bounds.steinke_p_value(epsilon, delta, canaries, guesses, correct) == pytest.approx(expected, rel=1e-8)


def test_randomised_response_is_bounded_by_its_epsilon_in_19_of_20_cases() -> None:
    generator, epsilon = np.random.default_rng(0), 1.0
    correct = generator.binomial(200, 1 / (1 + math.exp(-epsilon)), size=400)
    low = [bounds.steinke_bound(1e-6, 200, 200, int(count)) for count in correct]
    assert np.mean([bound > epsilon for bound in low]) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
    assert np.mean(low) > 0.6 * epsilon


def test_a_bound_never_exceeds_what_its_design_could_give() -> None:
    for correct in (0, 50, 80, 100):
        assert bounds.steinke_bound(1e-5, 1_000, 100, correct) <= bounds.steinke_bound(1e-5, 1_000, 100, 100)
        assert bounds.mahloujifar_bound(1_000, 100, correct) <= bounds.mahloujifar_bound(1_000, 100, 100)
    p = 0.05 ** (1 / 100)
    assert bounds.steinke_bound(0.0, 1_000, 100, 100) == pytest.approx(math.log(p / (1 - p)), abs=1e-6)


@pytest.mark.parametrize("near", [0.5, 0.999_999_8, 1.000_000_2, 150.0, 300.0, math.inf, math.nan, -1.0])
def test_a_wrong_number_near_a_bound_does_not_move_it(near: float) -> None:
    guessed = 1_000, 30, 25
    for bound in (partial(bounds.steinke_bound, 1e-5, *guessed), partial(bounds.mahloujifar_bound, *guessed)):
        assert bound(near * bound() if near > 0.5 else near) == bound()
        assert bound(bound() * (1 + 1e-8)) == pytest.approx(bound(), rel=1e-7)


def test_a_bound_is_confirmed_by_two_evaluations() -> None:
    asked: list[float] = []

    def rejected(number: float) -> bool:
        asked.append(number)
        return number <= 2.5

    assert bounds.find_largest_rejected(rejected, near=2.5) == 2.5
    assert len(asked) == 2


def test_guesses_no_better_than_a_coin_bound_nothing() -> None:
    assert bounds.steinke_bound(1e-5, 10_000, 300, 150) == 0
    assert bounds.mahloujifar_bound(10_000, 300, 150) == 0
    assert bounds.gaussian_dp_epsilon(bounds.gaussian_dp_mu(1.0, 1e-5), 1e-5) == pytest.approx(1.0, rel=1e-6)


def test_luck_that_all_canaries_share_breaks_no_certificate_and_does_break_the_estimate() -> None:
    """Xiang's trap: with chance 0.3 every bit is answered at epsilon 2, else none; it is 1-Gaussian DP."""
    true = bounds.gaussian_dp_epsilon(1.0, 1e-5)
    m, correct = 1_000, 880
    assert bounds.steinke_bound(1e-5, m, m, correct) < true
    assert bounds.gaussian_dp_epsilon(bounds.mahloujifar_bound(m, m, correct), 1e-5) < true
    scores, half = np.repeat([1.0, -1.0], [correct, m - correct]), m // 2
    inside, outside = scores[:half], -scores[half:][::-1]
    apart = (inside.mean() - outside.mean()) / math.sqrt((inside.var() + outside.var()) / 2)
    assert bounds.gaussian_dp_epsilon(bounds.gaussian_mu_bound(apart, half, half)[0], 1e-5) > true


def _noise(*checks: StatisticalCheck) -> NoiseStatistics:
    return NoiseStatistics(numbers=10_000, squares=10_000.0, padding=0, padding_squares=0.0, checks=checks)


ATTACK = CanaryAttackResult(canaries=10_000, members=5_000, guesses=300, correct=200, mean=0.268, mu=0.268)


def test_the_estimate_is_withheld_where_noise_is_in_doubt() -> None:
    fine = compute_figures(1.0, 1e-5, None, _noise(StatisticalCheck(name="steps", p=0.4)), ATTACK)
    doubted = compute_figures(1.0, 1e-5, None, _noise(StatisticalCheck(name="steps", p=0.0005)), ATTACK)
    assert fine.gauss is not None
    assert doubted.gauss is None and doubted.steinke == fine.steinke
    assert compute_figures(1.0, 1e-5, None, None, ATTACK).gauss is None


def test_how_many_guesses_are_made_depends_on_no_score() -> None:
    """Of the best of several numbers of guesses 0.143 came out, for an epsilon of 0.1."""
    generator = np.random.default_rng(1)
    member = draw_canary_membership(10_000, generator)
    made = []
    for strength in (0.0, 0.1, 100.0):
        scores = CanaryScores(member)
        scores.add([strength * member + generator.normal(size=len(member))], 1.0, 1.0)
        made.append(scores.summarise().guesses)
    assert made == [300, 300, 300]
    assert scores.summarise().correct == 300


def test_scores_weigh_a_release_by_its_own_noise() -> None:
    generator = np.random.default_rng(2)
    member = draw_canary_membership(200_000, generator)
    scores = CanaryScores(member)
    for sigma in (0.8, 8.0, 8.0):
        scores.add([member + sigma * generator.normal(size=len(member))], sigma, 1.0)
    found = scores.summarise()
    assert found.mu == pytest.approx(math.sqrt(1 / 0.64 + 2 / 64))  # mu^2 adds, for one more example: not doubled
    assert found.mean == pytest.approx(found.mu, rel=0.02)


def test_blocks_of_one_question_add_up() -> None:
    generator = np.random.default_rng(3)
    member = draw_canary_membership(100_000, generator)
    scores, sigma = CanaryScores(member), 2.0
    scores.add([member + sigma * math.sqrt(2) * generator.normal(size=len(member)) for _ in range(2)], sigma, 1.0)
    assert scores.summarise().mean == pytest.approx(1 / sigma, rel=0.05)


def test_under_sampling_scores_are_at_least_as_good_as_a_sum() -> None:
    generator, rate, sigma, steps = np.random.default_rng(4), 0.1, 0.7, 40
    member = draw_canary_membership(50_000, generator)
    scores = CanaryScores(member)
    for _ in range(steps):
        sampled = member & (generator.random(len(member)) < rate)
        scores.add([sampled + sigma * generator.normal(size=len(member))], sigma, rate)
    found = scores.summarise()
    assert found.mu is None  # scores are not normal
    assert found.mean > rate * math.sqrt(steps) / math.sqrt(sigma**2 + rate * (1 - rate))


def test_the_interval_of_sigma_is_that_of_chi_square() -> None:
    low, high = sigma_ratio_interval(20_000, 20_000.0)
    assert (low, high) == pytest.approx((1 - 1.96 / 200, 1 + 1.96 / 200), abs=2e-4)
    inside = 0
    for seed in range(100):
        squares = float(np.square(np.random.default_rng(seed).normal(size=2_000)).sum())
        inside += sigma_ratio_interval(2_000, squares)[0] <= 1 <= sigma_ratio_interval(2_000, squares)[1]
    assert stats.binomtest(inside, 100, 0.95).pvalue > 1e-3


def test_what_no_epsilon_allows_is_rejected() -> None:
    most = compute_figures(1.0, 1e-7, None, None, ATTACK.model_copy(update={"correct": 300, "mean": 4.0}))
    assert len(most.failed) == 3 and most.evidence is not None and most.evidence >= 1_000
    assert compute_figures(1.0, 1e-5, None, _noise(), ATTACK).failed == ()
