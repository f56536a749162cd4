"""The best of a random number of runs: two accounts agree, the truth is below them, and one run's epsilon is not."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpbench.api import Budget, Release
from dpbench.errors import AccountantsDisagree, PlanError, SpecError
from dpbench.privacy.core.accounting import accountant, private_search
from dpbench.privacy.core.accounting.accountant import ORDERS
from dpbench.privacy.core.accounting.crosscheck import make_prv_accountant
from dpbench.privacy.core.accounting.private_search import (
    RunCountDistribution,
    calibrate,
    cross_check,
    draw_run_count,
    epsilon,
    independent_epsilon,
    independent_renyi_epsilon,
    renyi_epsilon,
)

DELTA = 1e-5
BOARD = [Release("gradient", steps=1000, sample_rate=1024 / 45000)]
TEN, FORTY_EIGHT, LOGARITHMIC = RunCountDistribution(10), RunCountDistribution(48), RunCountDistribution(48, 0)
SHAPES = [0.0, 0.5, 1.0, 3.0]


def _pmf(drawn: RunCountDistribution, runs: np.ndarray) -> np.ndarray:
    """Return P(K = runs) by SciPy: the logarithmic, or the negative binomial given that it is not 0."""
    if drawn.shape == 0:
        return np.asarray(stats.logser.pmf(runs, 1 - drawn.gamma))
    return np.asarray(stats.nbinom.pmf(runs, drawn.shape, drawn.gamma) / (1 - drawn.gamma**drawn.shape))


def _true_delta(drawn: RunCountDistribution, sigma: float, at: float) -> float:
    """Return the exact delta at epsilon `at` of the largest of K noisy sums, for sums that differ by one example."""
    y = np.linspace(-12 * sigma, 12 * sigma + 1, 200_001)
    u, eta = drawn.log_inverse_gamma, drawn.shape
    scale = eta / math.expm1(eta * u) if eta else 1 / u
    densities = []
    for centre in (0.0, 1.0):
        # The largest has density g'(F) f, where g is the probability generating function of K.
        slope = scale * (1 - drawn.gamma) * (1 - (1 - drawn.gamma) * stats.norm.cdf(y, centre, sigma)) ** (-eta - 1)
        densities.append(slope * stats.norm.pdf(y, centre, sigma))
    density, other = densities
    assert np.trapezoid(density, y) == pytest.approx(1, abs=1e-9)
    gaps = (np.maximum(a - math.exp(at) * b, 0) for a, b in ((density, other), (other, density)))
    return max(float(np.trapezoid(gap, y)) for gap in gaps)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mean", [1 + 1e-15, 1.001, 3.0, 48.0, 1e6])
def test_gamma_gives_the_mean(mean: float, shape: float) -> None:
    drawn = RunCountDistribution(mean, shape)
    assert 0 < drawn.gamma <= 1
    assert private_search._expected_runs(drawn.log_inverse_gamma, shape) == pytest.approx(mean, rel=1e-9)


def test_the_geometric_and_the_logarithmic_are_the_textbook_ones() -> None:
    assert TEN.gamma == pytest.approx(1 / 10)
    assert stats.logser.mean(1 - LOGARITHMIC.gamma) == pytest.approx(48)


@pytest.mark.quick(1)
@pytest.mark.parametrize("shape", SHAPES)
def test_draws_follow_the_distribution(shape: float) -> None:
    drawn, generator, n = RunCountDistribution(6, shape), np.random.default_rng(7), 20_000
    draws = np.array([draw_run_count(drawn, generator) for _ in range(n)])
    assert draws.min() == 1
    assert draws.mean() == pytest.approx(6, abs=5 * draws.std() / math.sqrt(n))
    runs = np.arange(1, 20)
    expected = n * np.append(_pmf(drawn, runs), 1 - _pmf(drawn, runs).sum())
    observed = np.append([(draws == k).sum() for k in runs], (draws >= 20).sum())
    assert stats.chisquare(observed, expected).pvalue > 1e-3


def test_a_draw_ends_even_at_the_largest_uniform() -> None:
    class Largest(np.random.Generator):
        def random(self, *_: object, **__: object) -> float:  # type: ignore[override]
            return 1 - 2**-53

    for shape in (0.0, 1.0, 10.0):
        assert 10 < draw_run_count(RunCountDistribution(20, shape), Largest(np.random.PCG64(0))) < 10_000


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("rate", "steps", "sigma", "drawn"),
    [
        (1024 / 45000, 1000, 58.0, TEN),
        (1024 / 45000, 1000, 7.36, FORTY_EIGHT),
        (1024 / 45000, 1000, 5.85, LOGARITHMIC),
        (0.004, 5000, 1.2, RunCountDistribution(5, 0.5)),
        (0.08, 875, 9.3, RunCountDistribution(20, 3)),
        (0.5, 30, 20.0, RunCountDistribution(3, 0)),
        (1.0, 100, 300.0, TEN),
        (1.0, 100, 3.0, LOGARITHMIC),
        (1.0, 1, 10_000.0, RunCountDistribution(200, 2)),
    ],
)
def test_the_theorem_written_out_equals_dp_accounting(
    rate: float, steps: int, sigma: float, drawn: RunCountDistribution
) -> None:
    plan = [Release("gradient", steps, rate)]
    written_out = independent_renyi_epsilon(plan, sigma, DELTA, drawn)
    assert written_out == pytest.approx(renyi_epsilon(plan, sigma, DELTA, drawn), rel=1e-6)


def test_a_plan_of_unlike_releases_is_one_sequence_in_both_accounts() -> None:
    plan = [Release("mean", 1, 1.0, relative_noise=4.0), Release("gradient", 875, 0.08), Release("score", 1, 1.0, 6.0)]
    written_out = independent_renyi_epsilon(plan, 9.3, DELTA, TEN)
    assert written_out == pytest.approx(renyi_epsilon(plan, 9.3, DELTA, TEN), rel=1e-6)
    assert epsilon(plan, 9.3, DELTA, TEN) > epsilon(plan[1:], 9.3, DELTA, TEN) > epsilon(plan[1:2], 9.3, DELTA, TEN)


@pytest.mark.slow
@given(st.floats(0.001, 1), st.integers(1, 3000), st.floats(0.5, 100), st.floats(1.1, 100), st.sampled_from(SHAPES))
@settings(max_examples=settings().max_examples // 4)
def test_dp_accounting_is_never_below_the_theorem_where_opacus_answers(
    rate: float, steps: int, sigma: float, mean: float, shape: float
) -> None:
    plan, drawn = [Release("gradient", steps, rate)], RunCountDistribution(mean, shape)
    stated = renyi_epsilon(plan, sigma, DELTA, drawn)
    if stated > 0.05:  # below, the best order may be one where Opacus overflows
        assert independent_renyi_epsilon(plan, sigma, DELTA, drawn) <= stated * (1 + 1e-6)


def test_the_accounts_differ_by_less_than_a_thousandth_at_epsilon_eight() -> None:
    for sigma, drawn in ((1.057, TEN), (1.181, FORTY_EIGHT), (1.054, LOGARITHMIC)):
        stated = renyi_epsilon(BOARD, sigma, DELTA, drawn)
        assert independent_renyi_epsilon(BOARD, sigma, DELTA, drawn) == pytest.approx(stated, rel=1e-3)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("plan", "drawn", "sigma", "bound"),
    [
        ([Release("sum")], TEN, 8.51886, 0.860),
        ([Release("sum")], RunCountDistribution(5, 2), 8.62634, 0.744),
        ([Release("gradient", 200, 0.02)], TEN, 2.62077, 0.852),
    ],
)
def test_the_curve_of_one_run_gives_a_smaller_bound_than_renyi_divergences(
    plan: list[Release], drawn: RunCountDistribution, sigma: float, bound: float
) -> None:
    assert renyi_epsilon(plan, sigma, DELTA, drawn) == pytest.approx(1, rel=1e-3)
    stated = epsilon(plan, sigma, DELTA, drawn)
    assert stated == pytest.approx(bound, abs=2e-3)
    assert stated <= independent_epsilon(plan, sigma, DELTA, drawn) <= 1.02 * stated


def test_the_curve_has_the_deltas_of_prv_accountant() -> None:
    made = make_prv_accountant([Release("gradient", 200, 0.02)], 2.62, DELTA, 1.0, 0.005)
    assert made is not None
    losses, epsilons = made[0].compute_composition(made[1]), np.linspace(-0.1, 2, 12)
    expected = [losses.compute_delta_estimate(epsilon) for epsilon in epsilons]
    assert private_search.estimate_deltas(losses, epsilons) == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert expected[-1] < DELTA < expected[0]
    assert private_search.estimate_deltas(losses, np.array([500.0])) == pytest.approx(0, abs=1e-9)


@pytest.mark.slow
def test_copies_of_a_row_in_a_search_cost_what_the_mixture_costs() -> None:
    plan = [Release("gradient", 200, 0.02)]
    assert epsilon(plan, 2.62, DELTA, TEN, rows=2) == pytest.approx(1.734, abs=0.01)
    assert epsilon(plan, 2.62, DELTA, TEN, rows=6) == pytest.approx(5.28, abs=0.03)


@pytest.mark.parametrize(("rate", "sigma"), [(0.0227, 0.8), (0.3, 2.0), (0.7, 5.0)])
def test_at_fractional_orders_the_integral_is_what_opacus_says(rate: float, sigma: float) -> None:
    found = private_search._renyi_curve([Release("gradient", 1, rate)], sigma)
    y = np.linspace(-12 * sigma, 12 * sigma + 5, 400_001)
    for order, value in zip(ORDERS, found, strict=True):
        if order in (1.1, 1.5, 2.5, 4.5):
            ratio = 1 - rate + rate * np.exp((2 * y - 1) / (2 * sigma**2))
            moment = np.trapezoid(stats.norm.pdf(y, 0, sigma) * ratio**order, y)
            assert value == pytest.approx(math.log(moment) / (order - 1), rel=1e-6)


@pytest.mark.quick(4)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sigma", [0.8, 4.0, 30.0])
def test_the_exact_cost_of_keeping_the_largest_is_below_the_bound_and_above_one_run(sigma: float, shape: float) -> None:
    plan, drawn = [Release("sum")], RunCountDistribution(10, shape)
    assert _true_delta(drawn, sigma, epsilon(plan, sigma, DELTA, drawn)) <= DELTA
    assert _true_delta(drawn, sigma, accountant.epsilon(plan, sigma, DELTA)) > DELTA


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("target", "drawn", "sigma"),
    [(0.1, TEN, 49.48), (1, TEN, 5.384), (8, TEN, 0.9705), (0.1, LOGARITHMIC, 49.22)],
)
def test_golden_figures_and_calibration_from_below(target: float, drawn: RunCountDistribution, sigma: float) -> None:
    found = calibrate(BOARD, Budget(target, DELTA), drawn)
    assert found == pytest.approx(sigma, rel=0.01)
    assert found == float(f"{found:.6g}")
    assert 0.99 * target < epsilon(BOARD, found, DELTA, drawn) <= target
    assert epsilon(BOARD, found * (1 - 1e-4), DELTA, drawn) > target


@given(st.floats(0.05, 20), st.integers(1, 500), st.floats(1.5, 100), st.sampled_from(SHAPES))
@settings(max_examples=settings().max_examples // 12)
def test_calibration_reaches_any_target_from_below(target: float, steps: int, mean: float, shape: float) -> None:
    plan, drawn = [Release("gradient", steps)], RunCountDistribution(mean, shape)
    assert 0.99 * target < epsilon(plan, calibrate(plan, Budget(target, DELTA), drawn), DELTA, drawn) <= target


@pytest.mark.parametrize(("sigma", "single", "best"), [(24.53, 0.1, 0.259), (3.055, 1.0, 2.25), (0.809, 8.0, 13.7)])
def test_forgetting_to_account_for_the_search_costs_two_to_three_times(
    sigma: float, single: float, best: float
) -> None:
    assert accountant.epsilon(BOARD, sigma, DELTA, "rdp") == pytest.approx(single, rel=0.02)
    assert epsilon(BOARD, sigma, DELTA, FORTY_EIGHT) == pytest.approx(best, rel=0.03)


@pytest.mark.quick(1)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_longer_search_costs_more_and_any_search_more_than_one_run(shape: float) -> None:
    costs = [epsilon(BOARD, 4.0, DELTA, RunCountDistribution(mean, shape)) for mean in (1.001, 2, 10, 48, 1000)]
    assert all(less < more for less, more in pairwise(costs))
    assert costs[0] > accountant.epsilon(BOARD, 4.0, DELTA)


def test_at_one_mean_a_search_that_varies_less_costs_more() -> None:
    costs = [epsilon(BOARD, 4.0, DELTA, RunCountDistribution(10, shape)) for shape in SHAPES]
    assert all(less < more for less, more in pairwise(costs))


def test_no_noise_no_data_and_no_budget() -> None:
    for account in (epsilon, independent_epsilon):
        assert account([], 1.0, DELTA, TEN) == 0
        assert math.isinf(account(BOARD, 0.0, DELTA, TEN))
    assert calibrate([], Budget(1.0, DELTA), TEN) == 0
    assert calibrate(BOARD, Budget(math.inf, DELTA), TEN) == 0


@pytest.mark.parametrize("mean", [1.0, 0.0, -3.0, math.nan, math.inf, 1e7])
def test_a_search_of_impossible_length_is_refused(mean: float) -> None:
    with pytest.raises(SpecError, match=r"Expected mean=\S+ in \(1, 1e6\]"):
        RunCountDistribution(mean)


@pytest.mark.parametrize("shape", [-0.5, 11.0, math.nan, math.inf])
def test_an_unknown_shape_is_refused(shape: float) -> None:
    with pytest.raises(SpecError, match=r"Expected shape=\S+ in \[0, 10\]"):
        RunCountDistribution(10, shape)


def test_a_budget_out_of_reach_is_refused() -> None:
    with pytest.raises(PlanError, match=r"epsilon=1e-09 for a search of 10 runs .* Use fewer repeats or a larger"):
        calibrate([Release("mean")], Budget(1e-9, 1e-12), TEN)


def test_rounding_that_would_break_the_budget_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def rising(plan: list[Release], sigma: float, *_: object) -> float:
        return 2.0 if sigma == float(f"{sigma:.6g}") else 6 / sigma

    monkeypatch.setattr(private_search, "epsilon", rising)
    with pytest.raises(PlanError, match="raised it above 1"):
        calibrate(BOARD, Budget(1.0, DELTA), TEN)


def test_two_accounts_of_a_search_that_contradict_each_other_are_refused() -> None:
    plan = [Release("sum")]
    stated = epsilon(plan, 9.3, DELTA, TEN)
    assert cross_check(plan, 9.3, DELTA, TEN, stated).lower <= stated
    with pytest.raises(AccountantsDisagree, match=r"states epsilon=.* for the search, Opacus"):
        cross_check(plan, 9.3, DELTA, TEN, stated * 0.97)
    with pytest.raises(AccountantsDisagree):
        cross_check(plan, 9.3, DELTA, TEN, 0.01)


@pytest.mark.parametrize("shape", [0.0, pytest.param(3.0, marks=pytest.mark.slow), 10.0])
def test_two_accounts_of_an_honest_search_agree_whatever_its_shape(shape: float) -> None:
    plan, drawn = [Release("sum")], RunCountDistribution(10, shape)
    stated = epsilon(plan, 9.0, DELTA, drawn)
    assert cross_check(plan, 9.0, DELTA, drawn, stated).lower <= stated
