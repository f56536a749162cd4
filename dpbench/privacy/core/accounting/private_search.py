"""The cost of private selection: keep the best of a random number of private runs. Pure: no files, no torch.

A search draws K once, makes K independent runs, each with its own random configuration and fresh noise, and keeps the
best (Papernot and Steinke, Hyperparameter Tuning with Rényi Differential Privacy, arXiv 2110.03620). Keeping the best
of a fixed number can cost about as much as publishing all of them. A random number hides how many runs the best one had
to beat: up to a mean of about 50, a geometric number costs some two to three times one run. Neighbours differ by adding
or removing one example.

Two bounds are computed, and the smaller one is stated. `renyi_epsilon` is the paper's theorem 2 and uses the Rényi
divergences of one run. The other bound uses its curve delta(epsilon), from a privacy loss distribution.

Theorem. Let delta_Q(e) be the largest hockey-stick divergence at e, in either direction, of one run on neighbouring
data. Then for every e and every e1 >= 0 the search satisfies

    delta(e) <= E[K] delta_Q(e - (1 + eta) log(exp(e1) + (1 - gamma) / gamma delta_Q(e1))).

Proof. Order outputs by score, ties broken by a uniform draw that every output carries, so that no two are equal. If
Q(y) is the density of one run's output, and F(y) the chance of an output no better, the search has the density
Q(y) f'(F(y)), where f is the probability generating function of K. For the truncated negative binomial, f'(x) =
E[K] (gamma / (1 - (1 - gamma) x))^(1 + eta), which grows with x up to E[K]. For the neighbour, with Q' and F',

    1 - (1 - gamma) F'(y) =  gamma + (1 - gamma) Q'(better than y)
                          <= gamma + (1 - gamma) (exp(e1) Q(better than y) + delta_Q(e1))
                          <= (gamma + (1 - gamma) Q(better than y)) (exp(e1) + (1 - gamma) / gamma delta_Q(e1)),

as the first factor is at least gamma. So f'(F'(y)) >= f'(F(y)) exp(-c), with c the logarithm in the theorem times
1 + eta. For every set S, the search then has P(S) - exp(e) P'(S) <= the integral over S of f'(F(y)) (Q(y) - exp(e - c)
Q'(y)), which is at most E[K] delta_Q(e - c).

At a given delta, the theorem gives epsilon = epsilon_Q(delta / E[K]) + min over e1 of c. Bounds of this form: Koskela,
Redberg and Wang 2024, Privacy Profiles for Private Selection, arXiv 2402.06701; the proof above is ours.

Covered: the output of the best run, if each score is computed from its run's output and public data alone (a score
on private examples must be one more release of the plan), ties go to the earlier run, and all runs have this plan and
noise. A run that fails counts, with the worst score: it is neither dropped nor repeated.

Not covered: publishing K, the other runs or their scores, or the duration of the search, which the machine's clock,
file times and logs reveal too; publishing the seed of research randomness, which determines K; stopping a search once a
score is good enough; a second fit with the winning configuration; a grid searched without replacement; several
searches, which compose; runs with different plans: the Rényi curve of their mixture is the largest of the plans' curves
at every order, so it is not enough to calibrate each plan on its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dpbench.errors import AccountantsDisagree, SpecError
from dpbench.privacy.core.accounting import group
from dpbench.privacy.core.accounting.accountant import (
    ORDERS,
    approximate_sigma,
    convert_to_dp_events,
    find_smallest_sigma,
    refine_epsilon_bound,
    silence_accounting_libraries,
)
from dpbench.privacy.core.accounting.crosscheck import EpsilonInterval, make_prv_accountant
from dpbench.privacy.core.plan import Budget, Planned

LARGEST_EPSILON = 100.0  # that the grid of the second opinion is made for
CURVE_POINTS, PRV_POINTS = 1001, 201  # of the curve of one run
GRID_POINTS = 2000  # from 0 to epsilon
PRV_ERROR = 0.01  # of the second opinion, relative: the error of one run counts 2 + shape times
_MOST_RUNS = 1e6
_LOOSE = 0.02  # what two accounts of one search may differ by, relative


class UniformRandomSource(Protocol):
    """A source of uniform draws from [0, 1): a generator of numpy, of Python or of the operating system."""

    def random(self) -> float:
        """Return a uniform draw from [0, 1)."""


@dataclass(frozen=True)
class RunCountDistribution:
    """The distribution of the number of runs: truncated negative binomial on 1, 2, ... (definition 1 of the paper).

    P(K = k) is proportional to ``(1 - gamma)^k * product over 0 < j < k of (j + shape) / (j + 1)``.

    Args:
        mean: expected number of runs, above 1.
        shape: eta; 0 is the logarithmic distribution, 1 the geometric. With a larger eta, K varies less and costs more.

    Raises:
        SpecError: mean outside (1, 1e6], or shape outside [0, 10].
    """

    mean: float
    shape: float = 1.0

    def __post_init__(self) -> None:
        if not 1 < self.mean <= _MOST_RUNS:
            raise SpecError(f"Expected mean={self.mean} in (1, 1e6]: it is the number of runs of a search on average.")
        if not 0 <= self.shape <= 10:
            raise SpecError(f"Expected shape={self.shape} in [0, 10]: 0 is logarithmic, 1 geometric.")

    @property
    def gamma(self) -> float:
        """The parameter gamma in (0, 1) that gives this mean."""
        return math.exp(-self.log_inverse_gamma)

    @property
    def log_inverse_gamma(self) -> float:
        """The logarithm of 1 / gamma, used because gamma itself loses its digits near 1.

        It solves ``mean = shape * (1 - gamma) / (gamma * (1 - gamma^shape))``; the right side grows with 1 / gamma.
        """
        from scipy.optimize import brentq

        if self.shape == 1:
            return math.log(self.mean)

        def excess_over_mean(u: float) -> float:
            return _expected_runs(u, self.shape) - self.mean if u else 1 - self.mean

        # Whatever the shape, E[K] >= (e^u - 1) / u >= e^(u / 2); 1e-12 covers rounding where the mean is close to 1.
        return float(brentq(excess_over_mean, 0.0, 2 * math.log(self.mean) + 1e-12, xtol=1e-16))


def draw_run_count(repeats: RunCountDistribution, chance: UniformRandomSource) -> int:
    """Draw K, the number of runs of a search, by inverting its distribution function at one uniform draw.

    Exact up to the rounding of doubles. K must stay secret, and so must the state of `chance` and the duration of the
    search: the guarantee holds only if nobody knows how many runs the best run had to beat. Once K is known, the search
    is one of fixed length, and its cost grows with K.
    """
    u = repeats.log_inverse_gamma
    probability = -math.expm1(-u) * _eta_over_expm1(u, repeats.shape)  # of K = 1
    runs, below, uniform = 1, probability, chance.random()
    while uniform >= below:
        probability *= -math.expm1(-u) * (runs + repeats.shape) / (runs + 1)
        if below + probability == below:  # the rest of the tail is lost in rounding
            break
        runs, below = runs + 1, below + probability
    return runs


def epsilon(plan: Sequence[Planned], sigma: float, delta: float, repeats: RunCountDistribution, rows: int = 1) -> float:
    """Return an upper bound on epsilon, in nats, of a whole search at `delta`: the smaller of the module's two bounds.

    Every run spends `plan` with base noise multiplier `sigma`. `rows` is the number of rows that one person may remove.
    For what the guarantee covers, see the module.
    """
    if not plan:
        return 0.0
    if sigma == 0:
        return math.inf
    return _cached_epsilon(tuple(plan), sigma, delta, repeats, rows)


@functools.lru_cache(1024)  # a search asks the same when it calibrates and when it states, and many share a plan
def _cached_epsilon(
    plan: tuple[Planned, ...], sigma: float, delta: float, repeats: RunCountDistribution, rows: int
) -> float:
    bound = renyi_epsilon(group.enlarge_plan(plan, rows), sigma, delta, repeats)
    if not group.is_fast_to_compose(plan, sigma, rows):
        return bound

    def epsilon_on_grid(interval: float) -> float:
        curve = group.compose_group_loss(plan, sigma, rows, interval)
        one_run = float(curve.get_epsilon_for_delta(delta / repeats.mean))
        points = np.linspace(0, one_run, CURVE_POINTS)
        deltas = np.array(curve.get_delta_for_epsilon(points.tolist()))
        return one_run + _selection_cost(repeats, points, deltas)

    with silence_accounting_libraries():
        return refine_epsilon_bound(epsilon_on_grid, bound, GRID_POINTS)


def renyi_epsilon(plan: Sequence[Planned], sigma: float, delta: float, repeats: RunCountDistribution) -> float:
    """Return dp-accounting's bound on epsilon of a search, from Rényi orders up to 2,048."""
    from dp_accounting.dp_event import ComposedDpEvent, RepeatAndSelectDpEvent
    from dp_accounting.rdp import RdpAccountant

    run = ComposedDpEvent(convert_to_dp_events(plan, sigma))
    with silence_accounting_libraries():
        accountant = RdpAccountant(orders=ORDERS)
        accountant.compose(RepeatAndSelectDpEvent(run, repeats.mean, repeats.shape))
        return float(accountant.get_epsilon(delta))


def _selection_cost(repeats: RunCountDistribution, epsilons: np.ndarray, deltas: np.ndarray) -> float:
    """Return the cost of keeping the best run: the theorem's min over e1 of c, at points (e1, delta) of one run."""
    odds = math.expm1(repeats.log_inverse_gamma)  # (1 - gamma) / gamma
    return float((1 + repeats.shape) * np.log(np.exp(epsilons) + odds * deltas).min())


def independent_epsilon(plan: Sequence[Planned], sigma: float, delta: float, repeats: RunCountDistribution) -> float:
    """Compute the bound of `epsilon` again with other libraries, and return the smaller of two bounds.

    One is the Rényi bound, computed with Opacus. The other uses the curve of one run, which Microsoft's prv-accountant
    computes, with its errors added.
    """
    if not plan:
        return 0.0
    if sigma == 0:
        return math.inf
    bound = independent_renyi_epsilon(plan, sigma, delta, repeats)
    return min(bound, _prv_curve_epsilon(plan, sigma, delta, repeats, min(bound, LARGEST_EPSILON)))


def independent_renyi_epsilon(
    plan: Sequence[Planned], sigma: float, delta: float, repeats: RunCountDistribution
) -> float:
    """Return the bound of `renyi_epsilon`, computed with Opacus' Rényi curve and this module's code for the theorem.

    The two functions agree to rounding if every rate is 1, or if the best order is a whole number up to 1,024, which
    it mostly is for epsilon in [0.05, 5]. The bound of this function is lower if the best order is a fraction: for such
    orders, dp-accounting sums the absolute values of an alternating series, and skips an order if this sum does not
    converge. It is higher if the best order is above 1,024, because Opacus overflows there.

    Source: theorem 2 of the paper, for the search; Canonne, Kamath and Steinke 2020, proposition 12, for delta.
    """
    orders = np.array(ORDERS)
    one_run = _renyi_curve(plan, sigma)
    choice = np.min((1 - 1 / orders) * one_run + repeats.log_inverse_gamma / orders)
    search = one_run + (1 + repeats.shape) * choice + math.log(repeats.mean) / (orders - 1)
    bounds = search + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    return max(0.0, float(bounds.min()))


def _prv_curve_epsilon(
    plan: Sequence[Planned], sigma: float, delta: float, repeats: RunCountDistribution, guess: float
) -> float:
    """Return the bound from prv-accountant's curve of one run; infinite if prv-accountant cannot answer."""
    error = PRV_ERROR * guess / (2 + repeats.shape)
    found = make_prv_accountant(plan, sigma, delta / repeats.mean, guess, error)
    if found is None:
        return math.inf
    accountant, counts = found
    points = np.linspace(0, guess, PRV_POINTS)
    with silence_accounting_libraries():
        try:
            one_run = accountant.compute_epsilon(delta / repeats.mean, counts)[2]
        except (RuntimeError, ValueError):  # it finds no epsilon, or its own rounding would decide
            return math.inf
        deltas = estimate_deltas(accountant.compute_composition(counts), points - accountant.eps_error)
    upper = np.clip(deltas + accountant.delta_error, 0, 1)
    return float(one_run) + _selection_cost(repeats, points, upper)


def estimate_deltas(losses: Any, epsilons: np.ndarray) -> np.ndarray:
    """Return delta at each epsilon like prv-accountant's `compute_delta_estimate`, but from two sums over the grid."""
    grid, infinite = losses.domain.ts(), 1 - math.exp(losses.log_pmc_inf)
    sums = [np.append(np.cumsum(mass[::-1])[::-1], 0.0) for mass in (losses.pmf, losses.pmf * np.exp(-grid))]
    first = np.searchsorted(grid, epsilons)
    deltas: np.ndarray = (sums[0][first] - np.exp(epsilons) * sums[1][first]) * (1 - infinite) + infinite
    return deltas


def cross_check(
    plan: Sequence[Planned], sigma: float, delta: float, repeats: RunCountDistribution, stated: float
) -> EpsilonInterval:
    """Compare the stated epsilon of a search with `independent_epsilon`, and return the interval between them.

    Args:
        plan: the plan of every run.
        sigma: base noise multiplier of every run.
        delta: the delta of the whole search.
        repeats: the distribution of the number of runs.
        stated: the result of `epsilon` for these arguments.

    Raises:
        AccountantsDisagree: `independent_epsilon` is more than 2% above the larger of the stated epsilon and 0.05.
            Below 0.05 it is a loose bound.
    """
    other = independent_epsilon(plan, sigma, delta, repeats)
    if max(stated, 0.05) < other / (1 + _LOOSE):
        raise AccountantsDisagree(
            f"dp-accounting states epsilon={stated:.6g} for the search, Opacus and prv-accountant {other:.6g}. The run "
            f"is refused; please report the plan: {list(plan)}."
        )
    return EpsilonInterval("opacus-rdp", min(stated, other), max(stated, other))


def calibrate(plan: Sequence[Planned], budget: Budget, repeats: RunCountDistribution) -> float:
    """Return the smallest base noise multiplier, to 1e-4, that keeps a search within `budget`.

    It is 0 if the budget's epsilon is infinite or the plan is empty.

    Raises:
        PlanError: no sigma up to 1e7 meets the budget, or every sigma does.
    """
    if math.isinf(budget.epsilon) or not plan:
        return 0.0

    def search_epsilon(sigma: float) -> float:
        return epsilon(plan, sigma, budget.delta, repeats)

    asked = f"a search of {repeats.mean:g} runs on average"
    return find_smallest_sigma(
        search_epsilon, budget.epsilon, approximate_sigma(plan, budget), asked, "fewer repeats or a larger epsilon"
    )


def _expected_runs(u: float, shape: float) -> float:
    """Return E[K], given u = log(1 / gamma) and the shape eta."""
    return math.expm1(u) * (shape / -math.expm1(-shape * u) if shape else 1 / u)


def _eta_over_expm1(u: float, shape: float) -> float:
    """Return shape / (gamma^-shape - 1), or its limit at shape 0, where u is log(1 / gamma)."""
    return shape / math.expm1(shape * u) if shape else 1 / u


def _renyi_curve(plan: Sequence[Planned], sigma: float) -> np.ndarray:
    """Return the Rényi divergence of one run at every order, infinite where Opacus overflows."""
    with silence_accounting_libraries():
        total = np.zeros(len(ORDERS))
        for release in plan:
            total += release.renyi(sigma * release.relative_noise, ORDERS)
    # Far below rounding, a divergence may come out negative.
    return np.where(np.isfinite(total), np.maximum(total, 0.0), np.inf)
