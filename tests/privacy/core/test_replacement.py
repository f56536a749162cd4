"""What a plan costs if an example is replaced by another."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from dpbench import Budget, Choice, PlanError, Planned, Release
from dpbench.privacy.core.accounting import accountant, group, replacement

DELTA = 1e-5
SAMPLED = Release("grad", sample_rate=0.1)


def density(x: np.ndarray, y: np.ndarray, rate: float, moved: tuple[float, float]) -> np.ndarray:
    """Return the density of a sum in the plane that an example moves so far, if it is in the sample."""
    without, sampled = norm.pdf(x) * norm.pdf(y), norm.pdf(x - moved[0]) * norm.pdf(y - moved[1])
    return np.asarray((1 - rate) * without + rate * sampled)


def divergence(first: np.ndarray, second: np.ndarray, e: float, cell: float) -> float:
    return float(np.maximum(first - math.exp(e) * second, 0).sum() * cell)


POINT = st.tuples(st.floats(0, 1), st.floats(0, 2 * math.pi))


@given(POINT, POINT, st.floats(0.05, 0.9), st.floats(0.5, 2.0), st.floats(-1.5, 1.5))
@settings(max_examples=30)
def test_no_example_in_place_of_another_is_told_better_than_its_opposite(
    old: tuple[float, float], new: tuple[float, float], rate: float, sigma: float, e: float
) -> None:
    axis = np.linspace(-9, 9, 301)
    x, y = np.meshgrid(axis, axis)
    cell = (axis[1] - axis[0]) ** 2

    def moved(length: float, angle: float) -> np.ndarray:
        return density(x, y, rate, (length / sigma * math.cos(angle), length / sigma * math.sin(angle)))

    found = divergence(moved(*old), moved(*new), e, cell)
    assert found <= divergence(moved(1, 0), moved(1, math.pi), e, cell) + 1e-9


@pytest.mark.parametrize(("rate", "sigma"), [(0.1, 1.0), (0.5, 3.0)])
def test_one_sampled_sum_costs_what_integration_says(rate: float, sigma: float) -> None:
    stated = replacement.epsilon([Release("grad", sample_rate=rate)], sigma, DELTA)
    x = np.linspace(-12 - 1 / sigma, 12 + 1 / sigma, 200_001)
    old, new = ((1 - rate) * norm.pdf(x) + rate * norm.pdf(x - shift / sigma) for shift in (1, -1))
    assert divergence(old, new, stated, x[1] - x[0]) <= DELTA * 1.001
    assert divergence(old, new, 0.99 * stated, x[1] - x[0]) > DELTA


def test_replacing_costs_more_than_adding_and_at_rate_1_as_much_as_half_the_noise() -> None:
    for plan in ([SAMPLED], [SAMPLED, Release("mean")], [Choice("pick", 4), Release("mean")]):
        assert replacement.epsilon(plan, 3.0, DELTA) > 1.2 * accountant.epsilon(plan, 3.0, DELTA)
    whole: list[Planned] = [Release("sum", 4), Choice("pick", 4, steps=2)]
    assert replacement.epsilon(whole, 6.0, DELTA) == group.epsilon(whole, 6.0, DELTA, 2)
    assert replacement.epsilon([Choice("pick", 4)], 4.0, DELTA) == 1.0  # twice eps0


def test_a_calibrated_sigma_reaches_the_budget_from_below() -> None:
    plan = [Release("grad", 5, 0.2)]
    sigma = replacement.calibrate(plan, Budget(1.0, DELTA))
    assert 0.99 < replacement.epsilon(plan, sigma, DELTA) <= 1.0
    with pytest.raises(PlanError, match="the chance that an example is sampled at all"):
        replacement.calibrate([Release("grad", 1, 1e-7)], Budget(1.0, DELTA))


def test_no_plan_and_no_noise() -> None:
    assert replacement.epsilon([], 1.0, DELTA) == 0
    assert math.isinf(replacement.epsilon([SAMPLED], 0.0, DELTA))
