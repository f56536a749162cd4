"""A second opinion: epsilon by an independent library and method, or a refusal."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpbench.errors import AccountantsDisagree
from dpbench.privacy.core.accounting.accountant import AccountantName, epsilon, pure_of, quiet
from dpbench.privacy.core.plan import Planned

FAR = 4.0  # times what is stated: where RDP is so much above it, no grid for numbers as small as that decides


@dataclass(frozen=True)
class Bracket:
    """What an independent accountant says: epsilon lies in [lower, upper]."""

    accountant: str
    lower: float
    upper: float


def cross_check(
    plan: Sequence[Planned], sigma: float, delta: float, accountant: AccountantName, stated: float
) -> Bracket:
    """Return epsilon by an independent library and method, and refuse a contradiction to what `accountant` stated.

    `pld` and `rdp` are checked by Microsoft's prv-accountant (numerical composition with error bounds, Gopi et al.
    2021), or `pld` by RDP where its grid would pass 2^24 points; `prv`, whose code descends from that package, by
    `pld`. A plan without delta is checked as its mechanism's module says, from below.

    Raises:
        AccountantsDisagree: the stated epsilon is below the independent lower bound or, for `pld`, above the upper.
    """
    if math.isinf(stated) or not plan:
        return Bracket("none", stated, stated)
    if (pure := pure_of(plan)) is not None:
        noise = sigma * plan[0].relative_noise
        other = Bracket("law", pure.lower(noise), pure.epsilon(noise))
    elif accountant == "prv":
        tight = epsilon(plan, sigma, delta, "pld")
        other = Bracket("pld", 0.99 * tight, tight)  # its discretisation is worth less than 1%
    else:
        other = _microsoft(tuple(plan), sigma, delta, stated) or _renyi(plan, sigma, delta, accountant, stated)
    too_high = accountant == "pld" and stated > other.upper * 1.005
    if stated < other.lower or too_high:
        raise AccountantsDisagree(
            f"Accountant {accountant!r} states epsilon={stated:.6g} at sigma={sigma:g}, but {other.accountant} puts "
            f"it in [{other.lower:.6g}, {other.upper:.6g}]. The run is refused; please report the plan: {list(plan)}."
        )
    return other


@functools.lru_cache(1024)  # many runs share a plan
def _microsoft(plan: tuple[Planned, ...], sigma: float, delta: float, about: float) -> Bracket | None:
    """Return what prv-accountant says, to 2% of `about`, or None where that would take too fine a grid."""
    import prv_accountant as prv

    error, delta_error = 0.02 * about, delta / 1000
    pairs = [one.loss_variables(sigma * one.relative_noise) for one in plan]
    mechanisms, counts = [variable for variable, _ in pairs], [count for _, count in pairs]
    points = 2 * (about + 3) * math.sqrt(sum(counts) / 2 * math.log(12 / delta_error))
    if points > 2**24 * error:
        return None
    try:
        with quiet():
            accountant = prv.PRVAccountant(mechanisms, error, delta_error, counts)
            lower, _, upper = accountant.compute_epsilon(delta, counts)
    except RuntimeError:  # past epsilon of about 10^5 it finds none, or an infinite one
        return None
    return Bracket("prv-accountant", float(lower), float(upper)) if math.isfinite(upper) else None


def _renyi(plan: Sequence[Planned], sigma: float, delta: float, accountant: AccountantName, stated: float) -> Bracket:
    """Return what RDP says, from above alone.

    Of an epsilon far below that a coarser grid has an opinion, perhaps; of RDP's own there is no other.
    """
    upper = epsilon(plan, sigma, delta, "rdp")
    coarser = _microsoft(tuple(plan), sigma, delta, upper / 2) if FAR * stated < upper < math.inf else None
    if coarser is None and accountant == "rdp":
        return Bracket("none", stated, stated)
    return coarser or Bracket("rdp", 0.0, upper)
