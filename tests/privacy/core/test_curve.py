"""The whole curve of a plan: epsilon at any delta, and a Gaussian curve that is nowhere below it."""

from __future__ import annotations

import functools
import math

import pytest
from scipy.stats import norm

from dpbench import Choice, Planned, Release
from dpbench.privacy.core.accounting import accountant, curve, membership

SAMPLED: list[Planned] = [Release("grad", 30, 0.1)]
MIXED: list[Planned] = [Choice("pick", 4, relative_noise=3.0), Release("sum")]
RARE: list[Planned] = [Release("grad", sample_rate=0.01)]


@functools.cache
def fit_at_sigma_two(plan: tuple[Planned, ...]) -> curve.GaussianCurveFit:
    return curve.fit_gaussian_curve(plan, 2.0)


def gaussian_delta(e: float, mu: float) -> float:
    return float(norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu))


SLOW = [pytest.param(plan, marks=pytest.mark.slow) for plan in (SAMPLED, RARE)]


@pytest.mark.parametrize("plan", [MIXED, *SLOW])
def test_the_gaussian_curve_covers_the_plan(plan: list[Planned]) -> None:
    fit = fit_at_sigma_two(tuple(plan))
    for delta in (1e-9, 1e-6, 1e-3, 1e-1):
        found = curve.epsilon_at_delta(plan, 2.0, delta)
        assert found == 0 or gaussian_delta(found, fit.mu) >= 0.999 * delta
        assert found == pytest.approx(accountant.epsilon(plan, 2.0, delta), rel=2e-3, abs=1e-4)
    for rate in (0.001, 0.01, 0.3):
        allowed = norm.sf(norm.isf(rate) - fit.mu)
        bound = membership.true_positive_rate(plan, 2.0, rate)
        assert bound - 1e-6 <= allowed <= bound + fit.difference + 1e-3


def test_sums_over_all_examples_have_a_gaussian_curve_and_rare_ones_have_none_near() -> None:
    exact = curve.fit_gaussian_curve([Release("a", 4), Release("b", relative_noise=0.5)], 4.0)
    assert exact.mu == pytest.approx(math.sqrt(4 + 4) / 4)
    assert exact.difference == 0
    assert fit_at_sigma_two(tuple(MIXED)).difference < 1e-3
    assert curve.fit_gaussian_curve([Release("grad", sample_rate=0.05)], 1.0).difference > 0.1
