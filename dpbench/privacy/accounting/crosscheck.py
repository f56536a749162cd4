"""A second opinion: epsilon by an independent library and method, or a refusal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpbench.api import Choice, Planned
from dpbench.errors import AccountantsDisagree
from dpbench.privacy.accounting import bounded_range
from dpbench.privacy.accounting.accountant import AccountantName, epsilon, is_pure, quiet
from dpbench.privacy.plan import eps0_of


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
    2021), or by RDP where its grid would pass 2^24 points; `prv`, whose code descends from that package, by `pld`.

    Raises:
        AccountantsDisagree: the stated epsilon is below the independent lower bound or, for `pld`, above the upper.
    """
    if math.isinf(stated) or not plan:
        return Bracket("none", stated, stated)
    if is_pure(plan):
        exact = eps0_of(sigma * plan[0].relative_noise)
        return Bracket("closed form", exact, exact)
    if accountant == "prv":
        tight = epsilon(plan, sigma, delta, "pld")
        other = Bracket("pld", 0.99 * tight, tight)  # its discretisation is worth less than 1%
    else:
        other = _microsoft(plan, sigma, delta, stated)
    too_high = accountant == "pld" and stated > other.upper * 1.005
    if stated < other.lower or too_high:
        raise AccountantsDisagree(
            f"Accountant {accountant!r} states epsilon={stated:.6g} at sigma={sigma:g}, but {other.accountant} puts "
            f"it in [{other.lower:.6g}, {other.upper:.6g}]. The run is refused; please report the plan: {list(plan)}."
        )
    return other


def _microsoft(plan: Sequence[Planned], sigma: float, delta: float, stated: float) -> Bracket:
    import prv_accountant as prv

    error, delta_error = 0.02 * stated, delta / 1000
    mechanisms, counts = [], []
    for release in plan:
        noise = sigma * release.relative_noise
        if isinstance(release, Choice):
            mechanisms.append(bounded_range.loss_variable(eps0_of(noise)))
            counts.append(release.steps)
        elif release.sample_rate == 1:  # steps at rate 1 are one Gaussian of smaller noise
            mechanisms.append(prv.GaussianMechanism(noise / math.sqrt(release.steps)))
            counts.append(1)
        else:
            mechanisms.append(prv.PoissonSubsampledGaussianMechanism(release.sample_rate, noise))
            counts.append(release.steps)
    points = 2 * (stated + 3) * math.sqrt(sum(counts) / 2 * math.log(12 / delta_error))
    if points > 2**24 * error:
        return _renyi(plan, sigma, delta)
    try:
        with quiet():
            accountant = prv.PRVAccountant(mechanisms, error, delta_error, counts)
            lower, _, upper = accountant.compute_epsilon(delta, counts)
    except RuntimeError:  # past epsilon of about 10^5 it finds none, or an infinite one
        return _renyi(plan, sigma, delta)
    return Bracket("prv-accountant", float(lower), float(upper)) if math.isfinite(upper) else _renyi(plan, sigma, delta)


def _renyi(plan: Sequence[Planned], sigma: float, delta: float) -> Bracket:
    return Bracket("rdp", 0.0, epsilon(plan, sigma, delta, "rdp"))
