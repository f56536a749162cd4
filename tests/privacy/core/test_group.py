"""What a plan costs whoever has several rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from dpbench import Budget, Choice, Planned, Release, SpecError, gaussian_sigma
from dpbench.privacy.core.accounting import accountant, group

DELTA = 1e-5
FULL = [Release("sum", steps=3), Release("mean", relative_noise=2.0)]
SAMPLED = [Release("grad", steps=20, sample_rate=0.1)]


@pytest.mark.quick(2)
@pytest.mark.parametrize("plan", [FULL, SAMPLED, [*FULL, *SAMPLED]])
@pytest.mark.parametrize("name", ["pld", "rdp"])
def test_a_group_of_one_row_costs_what_one_row_costs(plan: list[Release], name: accountant.AccountantName) -> None:
    assert group.epsilon(plan, 2.0, DELTA, 1, name) == accountant.epsilon(plan, 2.0, DELTA, name)


@pytest.mark.parametrize("rows", [2, 8, 30])
def test_rows_in_every_sum_cost_what_one_row_costs_with_so_much_less_noise(rows: int) -> None:
    smaller = accountant.epsilon(FULL, 3.0, DELTA)
    assert group.epsilon(FULL, 3.0 * rows, DELTA, rows) == pytest.approx(smaller)


def test_eight_copies_at_epsilon_one_have_epsilon_eleven() -> None:
    sigma = gaussian_sigma(Budget(1.0, DELTA))
    assert group.epsilon([Release("sum")], sigma, DELTA, 8) == pytest.approx(10.9, abs=0.1)


def hockey_stick(rate: float, rows: int, sigma: float, epsilon: float) -> float:
    """Return the larger divergence of N(0, s) and the mixture of N(k, s) over a binomial k, by integration."""
    x = np.linspace(-12 * sigma, rows + 12 * sigma, 400_001)
    none = norm.pdf(x, 0, sigma)
    some = sum(binom.pmf(k, rows, rate) * norm.pdf(x, k, sigma) for k in range(rows + 1))
    both = [np.maximum(p - math.exp(epsilon) * q, 0) for p, q in ((none, some), (some, none))]
    return max(float(np.trapezoid(density, x)) for density in both)


@pytest.mark.parametrize(
    ("rate", "rows", "sigma"),
    [
        (0.1, 2, 1.0),
        *(pytest.param(*case, marks=pytest.mark.long) for case in ((0.3, 5, 2.0), (0.02, 8, 1.5))),
    ],
)
@pytest.mark.slow
def test_one_sampled_step_costs_what_integration_says(rate: float, rows: int, sigma: float) -> None:
    found = group.epsilon([Release("grad", sample_rate=rate)], sigma, DELTA, rows)
    assert hockey_stick(rate, rows, sigma, found) <= DELTA * 1.001
    assert hockey_stick(rate, rows, sigma, found * 0.98) > DELTA


@pytest.mark.parametrize("rows", [2, 5])
@pytest.mark.slow
def test_the_bound_of_other_accountants_is_above_the_mixture(rows: int) -> None:
    tight = group.epsilon(SAMPLED, 2.0, DELTA, rows)
    assert accountant.epsilon(SAMPLED, 2.0, DELTA) < tight
    assert tight <= accountant.epsilon(group.enlarge_plan(SAMPLED, rows), 2.0, DELTA)
    assert tight <= group.epsilon(SAMPLED, 2.0, DELTA, rows, "rdp")


@pytest.mark.quick("60-10.0-8.345")
@pytest.mark.parametrize(("rows", "sigma", "exact"), [(6, 1.5, 6.555), (20, 5.0, 5.278), (60, 10.0, 8.345)])
def test_a_group_whose_renyi_bound_is_far_off_costs_what_the_mixture_costs(
    rows: int, sigma: float, exact: float
) -> None:
    plan = [Release("grad", 200, 0.02)]
    assert accountant.epsilon(group.enlarge_plan(plan, rows), sigma, DELTA, "rdp") > 1000
    assert group.epsilon(plan, sigma, DELTA, rows) == pytest.approx(exact, rel=1e-3)


def test_a_choice_beside_sampled_sums_does_not_undo_the_mixture() -> None:
    plan: list[Planned] = [Release("grad", 200, 0.02), Choice("pick", candidates=4)]
    assert accountant.epsilon(plan, 4.0, DELTA) < (found := group.epsilon(plan, 4.0, DELTA, 2))
    assert found == pytest.approx(1.378, rel=0.01)


def test_a_choice_costs_so_many_times_its_epsilon() -> None:
    plan = [Choice("pick", candidates=4)]
    assert group.epsilon(plan, 4.0, DELTA, 3) == pytest.approx(3 * accountant.epsilon(plan, 4.0, DELTA))


def test_nothing_and_no_noise_cost_what_they_cost_one_row() -> None:
    assert group.epsilon([], 1.0, DELTA, 5) == 0
    assert group.epsilon(FULL, 0.0, DELTA, 5) == math.inf


def test_a_group_of_nobody_is_refused() -> None:
    with pytest.raises(SpecError, match="one row or more"):
        group.epsilon(FULL, 1.0, DELTA, 0)
