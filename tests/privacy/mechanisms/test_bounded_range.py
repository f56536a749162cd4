"""Many choices: no strategy tells neighbours apart better than the curve says, and some do so as well."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench import Choice, Planned, Release
from dpbench.privacy.core.accounting import accountant
from dpbench.privacy.core.accounting.crosscheck import cross_check
from dpbench.privacy.core.plan import merge_steps
from dpbench.privacy.mechanisms.choice.bounded_range import (
    DivergenceCurve,
    lower_divergence_curve,
    upper_divergence_curve,
)
from dpbench.privacy.mechanisms.choice.choice_plan import hockey_stick_divergence

DELTA = 1e-5
Strategy = Callable[[float], float]
"""The loss so far -> t of the next choice, as a share of eps0."""


def choose(losses: np.ndarray, chances: np.ndarray, eps0: float, strategy: Strategy) -> tuple[np.ndarray, np.ndarray]:
    """Return the losses of all answers so far and of one more choice, and their chances on the first dataset."""
    t = eps0 * np.array([strategy(loss) for loss in losses])
    chance = np.expm1(t - eps0) / math.expm1(-eps0)
    return np.concatenate([losses + t, losses + t - eps0]), np.concatenate([chances * chance, chances * (1 - chance)])


def line(start: float, slope: float) -> Strategy:
    return lambda loss: min(max(start + slope * loss, 0), 1)


def hockey_stick(losses: np.ndarray, chances: np.ndarray, e: float) -> float:
    return float((chances * -np.expm1(np.minimum(e - losses, 0))).sum())


@given(
    st.floats(0.05, 4), st.lists(st.tuples(st.floats(0, 1), st.floats(-3, 3)), min_size=1, max_size=6), st.floats(-2, 2)
)
@settings(max_examples=60)
def test_no_strategy_of_two_candidates_exceeds_the_curve(
    eps0: float, moves: list[tuple[float, float]], at: float
) -> None:
    losses, chances = np.zeros(1), np.ones(1)
    for start, slope in moves:
        losses, chances = choose(losses, chances, eps0, line(start, slope))
    assert chances.sum() == pytest.approx(1)
    assert (chances * np.exp(-losses)).sum() == pytest.approx(1)
    e = at * eps0
    bound = upper_divergence_curve(eps0, len(moves)).upper_bound(np.array([e]))[0]
    assert hockey_stick(losses, chances, e) <= bound + 1e-12


@pytest.mark.parametrize(("eps0", "steps"), [(0.1, 20), (0.5, 5), (1.0, 2), (3.0, 8)])
def test_the_bounds_from_above_and_below_are_within_half_a_percent(eps0: float, steps: int) -> None:
    above, below = upper_divergence_curve(eps0, steps), lower_divergence_curve(eps0, steps)
    points = np.arange(-below.last, below.last + 1) * below.step
    assert (below.values <= above.upper_bound(points) + 1e-13).all()
    e = epsilon_of(above)
    assert e < 1.005 * epsilon_of(below)
    assert e < 0.99 * steps * eps0


def epsilon_of(curve: DivergenceCurve) -> float:
    e = np.linspace(0, curve.last * curve.step, 20_001)
    return float(e[np.argmax(curve.upper_bound(e) <= DELTA)])


def test_the_curve_of_one_choice_has_its_closed_form() -> None:
    e = np.linspace(-0.7, 0.7, 29)
    found = upper_divergence_curve(0.5, 1).upper_bound(e) - hockey_stick_divergence(0.5, e)
    assert (found >= -1e-15).all()
    assert (found < 1e-4).all()


def test_a_sum_between_choices_that_follow_from_it_costs_no_more_than_stated() -> None:
    sigma, eps0 = 1.0, 2.0
    plan: list[Planned] = [Choice("pick", 2, steps=2), Release("sum")]
    stated = accountant.epsilon(plan, sigma, DELTA)
    first, chances = choose(np.zeros(1), np.ones(1), eps0, lambda loss: 0.9)
    x = np.linspace(-7, 8, 3001)  # noisy sums, each stands for those up to the next
    law = np.exp(-((x - 1) ** 2) / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    losses, chances = (first[:, None] + x - 0.5).ravel(), (chances[:, None] * law).ravel()

    def gain(start: float, slope: float) -> float:
        return hockey_stick(*choose(losses, chances, eps0, line(start, slope)), stated)

    assert max(gain(0.5, 0.0), gain(0.9, 0.0), gain(0.9, 0.1), gain(0.9, -0.1)) < DELTA
    assert 0.8 * DELTA < gain(0.5 + stated / (2 * eps0), -1 / (2 * eps0)) < DELTA


@pytest.mark.parametrize(
    ("plan", "sigma", "exact"),
    [
        ([Choice("any", 4, steps=20)], 20.0, 0.8181),
        ([Choice(f"choice {i}", 4 + i) for i in range(20)], 20.0, 0.8181),
        ([Choice("any", 4, steps=5)], 4.0, 2.081),
        pytest.param([Choice("any", 4, steps=1000)], 100.0, 1.2005, marks=pytest.mark.slow),
    ],
)
def test_many_choices_cost_what_the_best_strategy_gains(plan: list[Planned], sigma: float, exact: float) -> None:
    stated = accountant.epsilon(plan, sigma, DELTA)
    assert exact < stated < 1.006 * exact
    other = cross_check(plan, sigma, DELTA, "pld", stated)
    assert other.accountant == "prv-accountant"
    assert other.lower < stated < other.upper


def test_uses_of_equal_steps_are_merged_and_gaussian_ones_are_left() -> None:
    sums = [Release("a", 3, 0.1), Release("b", 3, 0.1)]
    plan = [Choice("c", 5), sums[0], Choice("d", 7, parts=2, steps=4), Choice("e", 2, relative_noise=2.0), sums[1]]
    assert merge_steps(plan) == [Choice("", 2, steps=5), sums[0], Choice("", 2, relative_noise=2.0), sums[1]]
