"""epsilon from a plan and sigma, and sigma from a plan and a budget. Pure: no files, no private data, no torch.

A plan composes as one sequence of mechanisms (`DpEvent`s); epsilons are never added. Neighbours differ by adding or
removing one example.

====== ================================================== ======================================================
name   method                                             use it
====== ================================================== ======================================================
pld    privacy loss distributions, dp-accounting          always: a certified upper bound, and the tightest;
       (connect the dots)                                 where every rate is 1, the exact Gaussian instead
rdp    Renyi orders up to 2,048, dp-accounting            to compare with papers that used RDP
prv    Opacus' PRV with its error of 0.01                 to reproduce papers that used Opacus
====== ================================================== ======================================================

Opacus' `gdp` is not offered: it reports less than the true epsilon.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from dpbench.api import Budget, Release
from dpbench.errors import PlanError

AccountantName = Literal["pld", "rdp", "prv"]
ACCOUNTANTS: tuple[AccountantName, ...] = ("pld", "rdp", "prv")

ORDERS = (
    *sorted([1.1, 1.25, 1.5, 1.75, 2.25, 2.5, 2.75, 3.5, 4.5, *range(2, 64)]),
    *(64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024, 1280, 1536, 1792, 2048),
)
_SIGMA_LIMIT = 1e7
_SLACK = 1e-3  # calibration stops when epsilon(sigma) is in ((1 - slack) target, target]


def epsilon(plan: Sequence[Release], sigma: float, delta: float, accountant: AccountantName = "pld") -> float:
    """Return an upper bound on epsilon, in nats, of `plan` with base noise multiplier `sigma` at `delta`.

    Raises:
        PlanError: the accountant cannot answer for this plan.
    """
    if not plan:
        return 0.0
    if sigma == 0:
        return math.inf
    with quiet():
        return float(_EPSILON[accountant](plan, sigma, delta))


def calibrate(
    plan: Sequence[Release], budget: Budget, accountant: AccountantName = "pld", hint: float | None = None
) -> float:
    """Return a base noise multiplier whose epsilon is in (0.99, 1.0] of the target; 0 when epsilon is infinite.

    Searches on log sigma; `hint`, say from an earlier run, is tried first and believed only if it passes.

    Raises:
        PlanError: no sigma up to 1e7 reaches the budget with this accountant.
    """
    if math.isinf(budget.epsilon) or not plan:
        return 0.0

    def reached(sigma: float) -> float:
        return epsilon(plan, sigma, budget.delta, accountant)

    if hint and (1 - 2 * _SLACK) * budget.epsilon < reached(hint) <= budget.epsilon:
        return hint
    sigma = _rounded_up(_search(reached, budget.epsilon, _first_guess(plan, budget), accountant))
    if not reached(sigma) <= budget.epsilon:
        raise PlanError(
            f"Accountant {accountant!r} is not monotone near sigma={sigma:g}: rounding up raised epsilon above "
            f"{budget.epsilon:g}. Use another accountant."
        )
    return sigma


def events(plan: Sequence[Release], sigma: float) -> list[Any]:
    """Return the `DpEvent` of each release: what composes."""
    import dp_accounting as dp

    made = []
    for release in plan:
        event = dp.GaussianDpEvent(sigma * release.relative_noise)
        if release.sample_rate < 1:
            event = dp.PoissonSampledDpEvent(release.sample_rate, event)
        made.append(dp.SelfComposedDpEvent(event, release.steps))
    return made


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back what the libraries say about their own internals, such as orders that did not converge."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _search(reached: Any, target: float, guess: float, accountant: AccountantName) -> float:
    """Bracket, then interpolate on log sigma and log epsilon, falling back to bisection."""
    low, high = None, guess
    value = reached(high)
    while value > target:
        low, low_value, high = high, value, high * 1.5
        if high > _SIGMA_LIMIT:
            raise PlanError(
                f"Accountant {accountant!r} cannot bring this plan to epsilon={target:g}: it still states "
                f"{value:.4g} at sigma={low:.3g}. Use accountant 'pld', fewer steps or a larger epsilon."
            )
        value = reached(high)
    while low is None:
        below = high / 1.5
        low_value = reached(below)
        if low_value > target:
            low = below
        else:
            high, value = below, low_value
    for turn in range(60):
        if value > (1 - _SLACK) * target:
            break
        share = math.log(low_value / (target * (1 - _SLACK / 2))) / math.log(low_value / value)
        share = share if turn % 4 < 3 and 0.01 < share < 0.99 else 0.5
        middle = low * (high / low) ** share
        middle_value = reached(middle)
        if middle_value > target:
            low, low_value = middle, middle_value
        else:
            high, value = middle, middle_value
    return high


def _first_guess(plan: Sequence[Release], budget: Budget) -> float:
    from dp_accounting import get_sigma_gaussian

    whole = float(get_sigma_gaussian(budget.epsilon, budget.delta))
    return max(0.5, whole * math.sqrt(sum(r.steps * (r.sample_rate / r.relative_noise) ** 2 for r in plan)))


def _rounded_up(sigma: float) -> float:
    unit = 10.0 ** (math.floor(math.log10(sigma)) - 5)
    return float(f"{math.ceil(sigma / unit) * unit:.6g}")


def _pld(plan: Sequence[Release], sigma: float, delta: float) -> float:
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant

    if all(release.sample_rate == 1 for release in plan):
        total = sum(release.steps / release.relative_noise**2 for release in plan)
        return float(dp.get_epsilon_gaussian(sigma / math.sqrt(total), delta))
    # A first answer sets the scale; below epsilon 0.2 the default grid of 1e-4 would cost more than half a percent.
    interval = 1e-4
    while True:
        accountant = PLDAccountant(value_discretization_interval=interval)
        for event in events(plan, sigma):
            accountant.compose(event)
        value = float(accountant.get_epsilon(delta))
        finer = max(value / 2000, 1e-6)
        if finer >= interval or interval <= 1e-6:
            return value
        interval = finer


def _rdp(plan: Sequence[Release], sigma: float, delta: float) -> float:
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(orders=ORDERS)
    for event in events(plan, sigma):
        accountant.compose(event)
    return float(accountant.get_epsilon(delta))


def _opacus(plan: Sequence[Release], sigma: float, delta: float) -> float:
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(sigma * r.relative_noise, r.sample_rate, r.steps) for r in plan]
    try:
        return float(accountant.get_epsilon(delta, eps_error=0.01))
    except (RuntimeError, ValueError, MemoryError) as error:
        raise PlanError(f"Accountant 'prv' cannot answer at sigma={sigma:g}: {error} Use accountant 'pld'.") from error


_EPSILON = {"pld": _pld, "rdp": _rdp, "prv": _opacus}
