"""The privacy curve of a plan: epsilon at every delta, and the smallest Gaussian curve that covers it.

A plan has an epsilon at every delta; a budget fixes one point of this curve. For Gaussian sums over all examples, the
curve is that of one normal number whose mean moves by mu standard deviations (mu-GDP, Dong, Roth and Su 2022), so mu
describes it fully. Other plans are covered by the smallest mu whose curve is nowhere below theirs. The error of this
fit is the largest difference between the true-positive rates that the two curves allow membership tests. All curves
are computed by `pld`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpbench.privacy.core.accounting import accountant
from dpbench.privacy.core.plan import Planned

POINTS = 201  # of a curve
SMALLEST_DELTA = 1e-10  # to which a Gaussian curve is fitted
GRID_POINTS = 5000  # from 0 to epsilon at DELTA
DELTA = 1e-5  # at which epsilon sets the grid of the curve, and no more
_BISECTIONS = 60


@dataclass(frozen=True)
class GaussianCurveFit:
    """The Gaussian curve that covers a plan's curve, and how much larger it is."""

    mu: float
    difference: float  # the largest, of true-positive rates; 0 if the curve is the plan's own


def find_gaussian_mu(plan: Sequence[Planned], sigma: float) -> float | None:
    """Return mu if the curve of a plan is exactly Gaussian; None otherwise."""
    if all(use.gaussian and use.sample_rate == 1 for use in plan):
        return accountant.approximate_neighbour_distance(plan, sigma)
    return None


@functools.lru_cache(4)  # of one plan, several questions are asked in a row
def compose_loss_of_plan(plan: tuple[Planned, ...], sigma: float) -> Any:
    """Return the loss distribution of a plan, on a grid whose step suits the plan's epsilon at `DELTA`."""
    stated = accountant.epsilon(plan, sigma, DELTA)
    with accountant.silence_accounting_libraries():
        return accountant.compose_loss_distribution(plan, sigma, max(stated / GRID_POINTS, 1e-6))


def epsilon_at_delta(plan: Sequence[Planned], sigma: float, delta: float) -> float:
    """Return an upper bound on the epsilon of a plan at this delta.

    Raises:
        PlanError: the accountant cannot answer for this plan.
    """
    if find_gaussian_mu(plan, sigma) is not None:
        return accountant.epsilon(plan, sigma, delta)
    with accountant.silence_accounting_libraries():
        return float(compose_loss_of_plan(tuple(plan), sigma).get_epsilon_for_delta(delta))


def fit_gaussian_curve(plan: Sequence[Planned], sigma: float) -> GaussianCurveFit:
    """Return the smallest Gaussian curve that covers the curve of a plan, at deltas down to 1e-10.

    Raises:
        PlanError: the accountant cannot answer for this plan.
    """
    from scipy.stats import norm

    if (mu := find_gaussian_mu(plan, sigma)) is not None:
        return GaussianCurveFit(mu, 0.0)
    with accountant.silence_accounting_libraries():
        curve = compose_loss_of_plan(tuple(plan), sigma)
        epsilons = np.linspace(0, float(curve.get_epsilon_for_delta(SMALLEST_DELTA)), POINTS)
        deltas = np.array(curve.get_delta_for_epsilon(epsilons.tolist()))
    mu = float(_solve_mu(epsilons, deltas).max())
    false_positives = norm.sf(np.linspace(-5, 5, POINTS))
    allowed = norm.sf(norm.isf(false_positives) - mu)
    bounds = [bound_true_positive_rates(epsilons, deltas, rate).min() for rate in false_positives]
    return GaussianCurveFit(mu, max(0.0, float((allowed - np.array(bounds)).max())))


def bound_true_positive_rates(epsilons: np.ndarray, deltas: np.ndarray, false_positive_rate: float) -> np.ndarray:
    """Return the upper bound (at most 1) that each point of a curve puts on membership tests' true-positive rate."""
    above = np.exp(np.minimum(epsilons, 700.0)) * false_positive_rate + deltas
    rates: np.ndarray = np.minimum(1.0, np.minimum(above, 1 - np.exp(-epsilons) * (1 - false_positive_rate - deltas)))
    return rates


def _solve_mu(epsilons: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """Return the mu of the Gaussian curve through each point, rounded up (Balle and Wang 2018, theorem 8)."""
    from scipy.stats import norm

    low, high = np.zeros_like(epsilons), np.full_like(epsilons, accountant.LARGEST_DISTANCE)
    for _ in range(_BISECTIONS):
        mu = (low + high) / 2
        found = norm.cdf(mu / 2 - epsilons / mu) - np.exp(epsilons + norm.logcdf(-mu / 2 - epsilons / mu))
        low, high = np.where(found < deltas, mu, low), np.where(found < deltas, high, mu)
    return high
