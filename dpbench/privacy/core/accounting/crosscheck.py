"""Check a stated epsilon with an independent library and method; refuse the run if the two contradict each other."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpbench.errors import AccountantsDisagree
from dpbench.privacy.core.accounting.accountant import (
    AccountantName,
    epsilon,
    find_pure_cost,
    silence_accounting_libraries,
)
from dpbench.privacy.core.plan import Planned, merge_steps

FAR_RATIO = 4.0  # times what is stated: where RDP is so much above it, no grid for numbers as small as that decides


@dataclass(frozen=True)
class EpsilonInterval:
    """An interval that contains epsilon, and the accountant that computed it; `lower` is 0 if only a bound is known."""

    accountant: str
    lower: float
    upper: float

    @classmethod
    def exact(cls, accountant: str, epsilon: float) -> EpsilonInterval:
        """Return the interval of an epsilon that is known exactly."""
        return cls(accountant, epsilon, epsilon)

    @classmethod
    def tight(cls, accountant: str, upper: float) -> EpsilonInterval:
        """Return the interval from 0.99 * `upper` to `upper`, for an accountant whose rounding error is below 1%."""
        return cls(accountant, 0.99 * upper, upper)

    @classmethod
    def bound(cls, accountant: str, upper: float) -> EpsilonInterval:
        """Return the interval from 0 to an upper bound."""
        return cls(accountant, 0.0, upper)

    @property
    def smallest_claimable_epsilon(self) -> float:
        """The smallest epsilon that may be claimed: the lower bound, or the upper bound if no lower bound is known."""
        return self.lower or self.upper

    def __str__(self) -> str:
        return f"{self.lower:.4g} to {self.upper:.4g} by {self.accountant}"


GRID_POINTS = 2**24
"""The most points of prv-accountant's grid for the range that is guessed from epsilon. The range that prv-accountant
then computes may need up to eight times as many; more would not fit into memory."""


def cross_check(
    plan: Sequence[Planned], sigma: float, delta: float, accountant: AccountantName, stated: float
) -> EpsilonInterval:
    """Compute epsilon by an independent library and method, and refuse a run whose stated epsilon contradicts it.

    `pld` and `rdp` are checked with Microsoft's prv-accountant (numerical composition with error bounds, Gopi et al.
    2021). If prv-accountant cannot answer, for example because its grid would exceed `GRID_POINTS`, RDP checks `pld`,
    and nothing checks `rdp`. `prv` is checked with `pld`, because Opacus' code descends from prv-accountant. A plan
    with delta 0 is checked with its mechanism's bounds on epsilon. An infinite epsilon and an empty plan are not
    checked.

    Raises:
        AccountantsDisagree: the stated epsilon is below the independent lower bound or, for `pld`, more than 0.5% above
            the upper bound.
    """
    if math.isinf(stated) or not plan:
        return EpsilonInterval.exact("none", stated)
    if (pure := find_pure_cost(plan)) is not None:
        noise = sigma * plan[0].relative_noise
        other = EpsilonInterval("law", pure.epsilon_lower_bound(noise), pure.epsilon(noise))
    elif accountant == "prv":
        other = EpsilonInterval.tight("pld", epsilon(plan, sigma, delta, "pld"))
    else:
        other = _prv_interval(tuple(plan), sigma, delta, stated) or _rdp_interval(
            plan, sigma, delta, accountant, stated
        )
    too_high = accountant == "pld" and stated > other.upper * 1.005
    if stated < other.lower or too_high:
        raise AccountantsDisagree(
            f"Accountant {accountant!r} states epsilon={stated:.6g} at sigma={sigma:g}, but {other.accountant} puts "
            f"it in [{other.lower:.6g}, {other.upper:.6g}]. The run is refused; please report the plan: {list(plan)}."
        )
    return other


@functools.lru_cache(1024)  # many runs share a plan
def _prv_interval(plan: tuple[Planned, ...], sigma: float, delta: float, guess: float) -> EpsilonInterval | None:
    """Return prv-accountant's interval, with an error of 2% of `guess`; None if it fails or needs too fine a grid."""
    made = make_prv_accountant(plan, sigma, delta, guess, 0.02 * guess)
    if made is None:
        return None
    accountant, counts = made
    try:
        with silence_accounting_libraries():
            lower, _, upper = accountant.compute_epsilon(delta, counts)
    except RuntimeError:  # past epsilon of about 10^5 it finds none, or an infinite one
        return None
    return EpsilonInterval("prv-accountant", float(lower), float(upper)) if math.isfinite(upper) else None


def make_prv_accountant(
    plan: Sequence[Planned], sigma: float, delta: float, guess: float, error: float
) -> tuple[Any, list[int]] | None:
    """Return prv-accountant's accountant for a plan, and how many copies of each mechanism it composes.

    `guess` is a guess of epsilon, and `error` the largest error of the epsilons that the accountant computes. Return
    None if the grid would be too large or prv-accountant fails.
    """
    import prv_accountant as prv
    from prv_accountant.accountant import compute_safe_domain_size

    delta_error = delta / 1000
    pairs = [use.loss_variables(sigma * use.relative_noise) for use in merge_steps(plan)]
    mechanisms, counts = [variable for variable, _ in pairs], [count for _, count in pairs]
    root = math.sqrt(sum(counts) / 2 * math.log(12 / delta_error))  # cells of the grid are error / root wide
    if 2 * (guess + 3) * root > GRID_POINTS * error:
        return None
    try:
        with silence_accounting_libraries():
            largest = compute_safe_domain_size(mechanisms, counts, error, delta_error)
            if 2 * largest * root > 8 * GRID_POINTS * error:  # little noise: the range is far wider than `about`
                return None
            return prv.PRVAccountant(mechanisms, error, delta_error, counts, eps_max=largest), counts
    except RuntimeError:
        return None


def _rdp_interval(
    plan: Sequence[Planned], sigma: float, delta: float, accountant: AccountantName, stated: float
) -> EpsilonInterval:
    """Return RDP's epsilon as an upper bound, or prv-accountant's interval on a coarser grid.

    prv-accountant is tried if RDP's epsilon is far above the stated epsilon. If prv-accountant gives no interval and
    the run's own accountant is `rdp`, nothing is checked: return the stated epsilon.
    """
    upper = epsilon(plan, sigma, delta, "rdp")
    coarser = _prv_interval(tuple(plan), sigma, delta, upper / 2) if FAR_RATIO * stated < upper < math.inf else None
    if coarser is None and accountant == "rdp":
        return EpsilonInterval.exact("none", stated)
    return coarser or EpsilonInterval.bound("rdp", upper)
