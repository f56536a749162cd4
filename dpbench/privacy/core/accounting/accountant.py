"""Compute epsilon from plan and sigma, and sigma from plan and budget. Pure: no files, no private data, no torch.

A plan composes as one sequence of mechanisms (`DpEvent`s); epsilons are never added. Neighbours differ by adding or
removing one example.

====== ================================================== ======================================================
name   method                                             use it
====== ================================================== ======================================================
pld    privacy loss distributions, dp-accounting          always: an upper bound by discretisation, the tightest
       (connect the dots)                                 of the three; exact for sums if every rate is 1; uses
                                                          the dominating pair of each other mechanism
rdp    Renyi orders up to 2,048, dp-accounting            to compare with papers that used RDP
prv    Opacus' PRV with its error of 0.01; it may lie up to  to reproduce papers that used Opacus
       1% below `pld`
====== ================================================== ======================================================

Opacus' `gdp` is not offered: it reports less than the true epsilon.
"""

from __future__ import annotations

import functools
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import ROUND_CEILING, Context
from typing import Any, Literal

from dpbench.errors import PlanError, SpecError
from dpbench.privacy.core.plan import Budget, Planned, PureDpCost, Release, merge_steps

AccountantName = Literal["pld", "rdp", "prv"]
ACCOUNTANTS: tuple[AccountantName, ...] = ("pld", "rdp", "prv")

ORDERS = (
    *sorted([1.1, 1.25, 1.5, 1.75, 2.25, 2.5, 2.75, 3.5, 4.5, *range(2, 64)]),
    *(64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024, 1280, 1536, 1792, 2048),
)
PRECISION = 1e-5  # relative, of a calibrated sigma
_SIGMA_LIMIT = 1e7
_FAR = 2.0**60  # a sigma that the distance of neighbours is inversely proportional to, whatever the rates
MANY_STEPS = 20_000  # above which the grid follows from the loss of one step
FINEST = 50_000  # points of a grid from 0 to epsilon
MOST_POINTS = 100_000  # of a grid, up to the largest loss of a step
LARGEST_DISTANCE = 40.0  # of neighbours; beyond, epsilon is above 900, and RDP's bound says so at once
_STRIDE = math.log(1.5)  # of the search for a bracket


def epsilon(plan: Sequence[Planned], sigma: float, delta: float, accountant: AccountantName = "pld") -> float:
    """Return an upper bound on epsilon, in nats, of `plan` with base noise multiplier `sigma` at `delta`.

    An empty plan has epsilon 0; with sigma = 0, any other plan has an infinite epsilon.

    Raises:
        PlanError: the accountant cannot answer for this plan.
    """
    if not plan:
        return 0.0
    if sigma == 0:
        return math.inf
    if (pure := find_pure_cost(plan)) is not None:
        return pure.epsilon(sigma * plan[0].relative_noise)
    return _cached_epsilon(_EPSILON[accountant], tuple(plan), sigma, delta)


@functools.lru_cache(4096)  # a run asks the same when it calibrates and when it states, and many runs share a plan
def _cached_epsilon(method: Callable[..., float], plan: tuple[Planned, ...], sigma: float, delta: float) -> float:
    with silence_accounting_libraries():
        return float(method(plan, sigma, delta))


def find_pure_cost(plan: Sequence[Planned]) -> PureDpCost | None:
    """Return the cost of a plan that is epsilon-DP with delta 0; None if the plan needs a delta.

    Every accountant states this cost. A plan of one choice that is asked once has such a cost.
    """
    return plan[0].pure if len(plan) == 1 else None


def is_pure_dp(plan: Sequence[Planned]) -> bool:
    """Return whether a plan is epsilon-DP with delta 0."""
    return find_pure_cost(plan) is not None


def calibrate(
    plan: Sequence[Planned], budget: Budget, accountant: AccountantName = "pld", hint: float | None = None
) -> float:
    """Return a base noise multiplier that keeps `plan` within the budget.

    It is 0 if the budget's epsilon is infinite or the plan is empty; otherwise it is within about 1e-4 of the smallest
    such multiplier. `hint`, for example from an earlier run, is tried first and returned only if its epsilon is at most
    the target and less than 0.1% below it.

    Raises:
        PlanError: no sigma up to 1e7 meets the budget with this accountant, or every sigma does.
    """
    if math.isinf(budget.epsilon) or not plan:
        return 0.0

    def reached(sigma: float) -> float:
        return epsilon(plan, sigma, budget.delta, accountant)

    if hint and 0.999 * budget.epsilon < reached(hint) <= budget.epsilon:
        return hint
    asked, advice = f"this plan with accountant {accountant!r}", "accountant 'pld', fewer steps or a larger epsilon"
    return find_smallest_sigma(reached, budget.epsilon, approximate_sigma(plan, budget), asked, advice)


def find_smallest_sigma(
    reached: Callable[[float], float], target: float, guess: float, subject: str, advice: str
) -> float:
    """Return the smallest sigma whose epsilon is at most the target, to within 1e-4 and rounded up to six digits.

    This is Brent's method on log sigma. dp-accounting's `calibrate_dp_mechanism` uses it too, but searches for a
    bracket only upwards, and evaluates epsilon two to three times as often. The returned sigma itself is always
    evaluated.

    Args:
        reached: sigma -> epsilon.
        target: epsilon to reach from below.
        guess: a sigma to start the search from.
        subject: the plan or search that needs the sigma, for messages.
        advice: what to use instead, for messages.

    Raises:
        PlanError: no sigma up to 1e7 is enough, or epsilon does not fall with sigma.
    """
    from scipy.optimize import brentq

    @functools.cache
    def log_excess_over_target(log_sigma: float) -> float:
        ratio = min(max(reached(math.exp(log_sigma)) / target, 1e-9), 1e9)
        return math.log(ratio) + PRECISION  # aims a little below the target: an accountant's grid may waver

    low = high = math.log(guess)
    while log_excess_over_target(high) > 0:
        if high > math.log(_SIGMA_LIMIT):
            raise PlanError(
                f"Cannot reach epsilon={target:g} for {subject}: it is still {reached(math.exp(high)):.4g} at "
                f"sigma={math.exp(high):.3g}. Use {advice}."
            )
        low, high = high, high + _STRIDE
    while low == high or log_excess_over_target(low) <= 0:
        low, high = low - _STRIDE, low
    sigma = _round_up_to_six_digits(math.exp(brentq(log_excess_over_target, low, high, xtol=PRECISION) + PRECISION))
    if not reached(sigma) <= target:
        raise PlanError(
            f"Expected epsilon to fall with sigma for {subject}, but rounding up to sigma={sigma:g} raised it above "
            f"{target:g}. Ask for a slightly different epsilon, or use {advice}."
        )
    return sigma


def gaussian_sigma(budget: Budget) -> float:
    """Return the noise multiplier at which one release over all examples spends the budget; 0 at epsilon = inf.

    This is the analytic Gaussian mechanism (Balle and Wang 2018, theorem 8). It is the standard deviation of the noise
    on one sum of vectors of norm 1, so n / sigma compares the number of examples with the noise. Learners may derive
    default settings from it. The noise that a run adds is calibrated to the plan of that run.

    Raises:
        SpecError: epsilon is not positive, or delta is not in (0, 1).
    """
    if not (budget.epsilon > 0 and 0 < budget.delta < 1):
        raise SpecError(f"Expected epsilon={budget.epsilon} > 0 and delta={budget.delta} in (0, 1).")
    return 0.0 if math.isinf(budget.epsilon) else _cached_gaussian_sigma(budget.epsilon, budget.delta)


@functools.lru_cache(1024)  # every setting that follows the budget asks
def _cached_gaussian_sigma(epsilon: float, delta: float) -> float:
    from dp_accounting import get_sigma_gaussian

    return float(get_sigma_gaussian(epsilon, delta))


def approximate_sigma(plan: Sequence[Planned], budget: Budget) -> float:
    """Guess sigma from the single Gaussian release with the same distance between neighbours.

    Raises:
        PlanError: delta is at least the chance that an example is sampled at all, so any sigma would do.
    """
    if (pure := find_pure_cost(plan)) is not None:
        return pure.base_sigma(budget.epsilon)
    chance = sum(release.steps * release.sample_rate for release in plan)
    if chance <= budget.delta:
        raise PlanError(
            f"Expected delta={budget.delta:g} below {chance:g}, the chance that an example is sampled at all: the "
            "plan meets this delta without any noise, which protects nobody who is sampled. Use a smaller delta."
        )
    return max(0.5, gaussian_sigma(budget) * _FAR * approximate_neighbour_distance(plan, _FAR))


def approximate_neighbour_distance(plan: Sequence[Planned], sigma: float) -> float:
    """Approximate mu, the distance of neighbours in standard deviations (central limit theorem, Bu et al. 2019).

    It is exact for sums at rate 1. Otherwise it is an approximation, neither an upper nor a lower bound, that suits
    many steps at small rates. It is used to guess, and to find plans that take too long to compose; no stated epsilon
    depends on it.
    """
    squared = 0.0
    for release in plan:
        noise = sigma * release.relative_noise
        precision = noise**-2
        gain = math.expm1(min(precision, 700.0)) / precision if release.sample_rate < 1 else 1.0  # e^700 is a float
        squared += release.steps * (release.sample_rate / noise) ** 2 * gain
    return math.sqrt(squared)


def _round_up_to_six_digits(sigma: float) -> float:
    return float(Context(prec=6, rounding=ROUND_CEILING).create_decimal_from_float(sigma))


def convert_to_dp_events(plan: Sequence[Planned], sigma: float) -> list[Any]:
    """Return the `DpEvent` of each release, the input of Renyi accountants."""
    import dp_accounting as dp

    return [dp.SelfComposedDpEvent(use.event(sigma * use.relative_noise), use.steps) for use in plan]


@contextmanager
def silence_accounting_libraries() -> Iterator[None]:
    """Suppress the libraries' messages about their internals, such as Renyi orders that did not converge."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _pld_epsilon(plan: Sequence[Planned], sigma: float, delta: float) -> float:
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant

    sums_only = all(release.gaussian for release in plan)
    if sums_only and all(release.sample_rate == 1 for release in plan):
        total = sum(release.steps / release.relative_noise**2 for release in plan)
        return float(dp.get_epsilon_gaussian(sigma / math.sqrt(total), delta))

    def compute_epsilon_on_grid(interval: float) -> float:
        if not sums_only:
            return float(compose_loss_distribution(plan, sigma, interval).get_epsilon_for_delta(delta))
        accountant = PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE, interval)
        for event in convert_to_dp_events(plan, sigma):
            accountant.compose(event)
        return float(accountant.get_epsilon(delta))

    every_step = math.sqrt(sum(use.steps / (sigma * use.relative_noise) ** 2 for use in plan))
    if min(approximate_neighbour_distance(plan, sigma), every_step) > LARGEST_DISTANCE:
        return _rdp_epsilon(plan, sigma, delta)
    return epsilon_on_fine_grid(
        compute_epsilon_on_grid, smallest_step_loss_std(plan, sigma), largest_step_loss(plan, sigma)
    )


def epsilon_on_fine_grid(epsilon_at: Callable[[float], float], small: float = math.inf, large: float = 0.0) -> float:
    """Compute epsilon on a grid that is fine enough for the size of epsilon and for the losses of one step.

    The first computation finds the size of epsilon. Below 0.2, the default grid of 1e-4 would overstate it by over
    0.5%.

    Args:
        epsilon_at: maps the interval of a grid to epsilon, rounded up.
        small: the standard deviation of the loss of one of many steps. Each loss is rounded up to the grid, so on a
            grid that is coarser than a tenth of it the errors of many steps add up.
        large: a loss that a step rarely exceeds; no grid has many more than `MOST_POINTS` points up to it.
    """
    interval = max(1e-4, large / MOST_POINTS)
    while True:
        value = epsilon_at(interval)
        floor = max(value / FINEST, large / MOST_POINTS, min(1e-6, max(small / 10, 1e-7)))
        finer = max(min(value / 2000, small / 10), floor)
        if finer >= interval or not value:
            return value
        interval = finer


def smallest_step_loss_std(plan: Sequence[Planned], sigma: float) -> float:
    """Return the smallest (approximate) std of one step's privacy loss, over releases of `MANY_STEPS` steps or more.

    It is infinite if there is no such release.
    """
    losses = [
        approximate_neighbour_distance([use], sigma) / math.sqrt(use.steps) for use in plan if use.steps >= MANY_STEPS
    ]
    return min(losses, default=math.inf)


def largest_step_loss(plan: Sequence[Planned], sigma: float) -> float:
    """Return the largest privacy loss of one step, over all releases, if noise is below eight standard deviations."""
    noises = [(use.sample_rate, sigma * use.relative_noise) for use in plan]
    whole = [(rate, 0.5 / noise**2 + 8 / noise) for rate, noise in noises]
    return max(math.log1p(rate * math.expm1(loss)) if loss < 700 else loss + math.log(rate) for rate, loss in whole)


def refine_epsilon_bound(epsilon_at: Callable[[float], float], bound: float, points: int = 1000) -> float:
    """Compute epsilon on finer and finer grids, the last with `points` points up to epsilon; each grid rounds up.

    `bound` is another upper bound on epsilon, which may be far too large; the smallest bound is returned.
    """
    interval = max(1e-2, bound / 1e5)
    while True:
        bound = min(bound, epsilon_at(interval))
        finer = max(bound / points, 1e-6)
        if finer >= interval or not bound:
            return bound
        interval = finer


def compose_loss_distribution(plan: Sequence[Planned], sigma: float, interval: float) -> Any:
    """Compose a plan into one privacy loss distribution (dp-accounting), rounded up to a grid of this interval."""
    parts = _merge_gaussians([use for use in plan if use.gaussian]) + merge_steps(
        [use for use in plan if not use.gaussian]
    )
    losses = [part.loss_distribution(sigma * part.relative_noise, interval) for part in parts]
    return functools.reduce(lambda loss, other: loss.compose(other), losses)


def _merge_gaussians(sums: Sequence[Planned]) -> list[Planned]:
    """Merge Gaussian releases with all steps at rate 1 into one equivalent Gaussian of smaller noise."""
    sampled = [planned for planned in sums if planned.sample_rate < 1]
    whole = sum(planned.steps / planned.relative_noise**2 for planned in sums if planned.sample_rate == 1)
    return [*sampled, *([Release("all", relative_noise=1 / math.sqrt(whole))] if whole else [])]


def _rdp_epsilon(plan: Sequence[Planned], sigma: float, delta: float) -> float:
    import dp_accounting as dp
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(ORDERS, dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for event in convert_to_dp_events(plan, sigma):
        accountant.compose(event)
    return float(accountant.get_epsilon(delta))


def _prv_epsilon(plan: Sequence[Planned], sigma: float, delta: float) -> float:
    from opacus.accountants import PRVAccountant

    if others := {type(release).__name__ for release in plan if not release.gaussian}:
        raise PlanError(
            f"Accountant 'prv' can compose only Gaussian releases, but this plan has a {min(others)}. Use 'pld'."
        )
    accountant = PRVAccountant()
    accountant.history = [(sigma * r.relative_noise, r.sample_rate, r.steps) for r in plan]
    try:
        return float(accountant.get_epsilon(delta, eps_error=0.01))
    except (RuntimeError, ValueError, MemoryError) as error:
        raise PlanError(f"Accountant 'prv' cannot answer at sigma={sigma:g}: {error} Use accountant 'pld'.") from error


_EPSILON = {"pld": _pld_epsilon, "rdp": _rdp_epsilon, "prv": _prv_epsilon}
