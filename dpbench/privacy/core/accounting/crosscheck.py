"""A second opinion: epsilon by an independent library and method, or a refusal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpbench.api import Choice, Planned
from dpbench.errors import AccountantsDisagree
from dpbench.privacy.core.accounting.accountant import AccountantName, epsilon, is_pure, quiet
from dpbench.privacy.core.plan import eps0_of
from dpbench.privacy.mechanisms import bounded_range

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
    `pld`. A plan of one choice is checked by the law of two candidates, from below.

    Raises:
        AccountantsDisagree: the stated epsilon is below the independent lower bound or, for `pld`, above the upper.
    """
    if math.isinf(stated) or not plan:
        return Bracket("none", stated, stated)
    if is_pure(plan):
        eps0 = eps0_of(sigma * plan[0].relative_noise)
        other = Bracket("law", _ratio_of_neighbours(eps0), eps0)
    elif accountant == "prv":
        tight = epsilon(plan, sigma, delta, "pld")
        other = Bracket("pld", 0.99 * tight, tight)  # its discretisation is worth less than 1%
    else:
        other = _microsoft(plan, sigma, delta, stated) or _renyi(plan, sigma, delta, accountant, stated)
    too_high = accountant == "pld" and stated > other.upper * 1.005
    if stated < other.lower or too_high:
        raise AccountantsDisagree(
            f"Accountant {accountant!r} states epsilon={stated:.6g} at sigma={sigma:g}, but {other.accountant} puts "
            f"it in [{other.lower:.6g}, {other.upper:.6g}]. The run is refused; please report the plan: {list(plan)}."
        )
    return other


def _ratio_of_neighbours(eps0: float) -> float:
    """Return by how much one row moves the chance of one of two candidates, where that one has lost far more."""
    far = 30.0  # eps0 times how much more; at its worst, rounding is worth 1e-12
    moved = np.logaddexp(0, far + eps0) - np.logaddexp(0, far)
    return float(moved * (1 - 1e-12))


def _microsoft(plan: Sequence[Planned], sigma: float, delta: float, about: float) -> Bracket | None:
    """Return what prv-accountant says, to 2% of `about`, or None where that would take too fine a grid."""
    import prv_accountant as prv

    error, delta_error = 0.02 * about, delta / 1000
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
    coarser = _microsoft(plan, sigma, delta, upper / 2) if FAR * stated < upper < math.inf else None
    if coarser is None and accountant == "rdp":
        return Bracket("none", stated, stated)
    return coarser or Bracket("rdp", 0.0, upper)
