"""The odds of a membership test, against the optimal tests of mechanisms whose laws are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from dpbench.api import Choice, Release
from dpbench.errors import SpecError
from dpbench.privacy.core.accounting.accountant import calibrate, epsilon
from dpbench.privacy.core.accounting.membership import true_positive_rate
from dpbench.privacy.core.plan import Budget

RATES = [0.001, 0.01, 0.1]


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("steps", [1, 9])
def test_of_gaussian_sums_over_everyone_it_is_the_trade_off_curve(rate: float, steps: int) -> None:
    found = true_positive_rate([Release("sum", steps=steps, relative_noise=2.0)], 1.5, rate)
    threshold = norm.isf(rate)  # the likelihood ratio test between N(0, 1) and N(distance, 1)
    assert math.isclose(found, norm.sf(threshold - math.sqrt(steps) / 3.0), rel_tol=1e-12)


@pytest.mark.quick(1)
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("chance", [0.05, 0.5])
def test_of_one_poisson_sample_it_is_at_least_the_best_test_and_hardly_above(rate: float, chance: float) -> None:
    """Added: N(0, s) against the mixture with N(1, s). Removed: the mixture against N(0, s). Tests are thresholds."""
    sigma = 0.8
    found = true_positive_rate([Release("sum", sample_rate=chance)], sigma, rate)

    def mixture(threshold: float) -> float:
        return float((1 - chance) * norm.sf(threshold / sigma) + chance * norm.sf((threshold - 1) / sigma))

    added = mixture(sigma * norm.isf(rate))
    below = brentq(lambda threshold: 1 - mixture(threshold) - rate, -20, 20)
    removed = norm.cdf(below / sigma)
    assert max(added, removed) <= found <= 1.02 * max(added, removed)


@pytest.mark.parametrize("rate", RATES)
def test_of_a_choice_it_is_the_bound_of_pure_privacy(rate: float) -> None:
    plan = [Choice("choice", 4)]
    stated = epsilon(plan, 2.0, 1e-5)
    expected = min(math.exp(stated) * rate, 1 - math.exp(-stated) * (1 - rate))
    assert math.isclose(true_positive_rate(plan, 2.0, rate), expected, rel_tol=1e-9)


@pytest.mark.parametrize(
    ("target", "rate"), [(0.1, 0.001), (1.0, 0.01), pytest.param(8.0, 0.001, marks=pytest.mark.long)]
)
@pytest.mark.slow
def test_no_plan_of_a_budget_is_worse_than_its_budget(target: float, rate: float) -> None:
    plan, budget = [Release("gradient", steps=100, sample_rate=0.02)], Budget(target, 1e-5)
    found = true_positive_rate(plan, calibrate(plan, budget), rate)
    assert rate < found <= 1.01 * math.exp(target) * rate + 1e-5
    assert found <= 1


@pytest.mark.slow
def test_more_noise_means_worse_odds_and_without_any_a_test_is_always_right() -> None:
    plan = [Release("gradient", steps=10, sample_rate=0.1), Choice("choice", 2)]
    found = [true_positive_rate(plan, sigma, 0.01) for sigma in (0.5, 1.0, 4.0)]
    assert np.all(np.diff(found) < 0)
    assert true_positive_rate(plan, 0.0, 0.01) == 1
    assert true_positive_rate([], 1.0, 0.01) == 0.01


@pytest.mark.parametrize("rate", [0.0, 1.0, -1.0, math.nan])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(SpecError, match="false-positive rate"):
        true_positive_rate([Release("sum")], 1.0, rate)
