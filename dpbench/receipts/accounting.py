"""Epsilon for what a receipt's events say, by two accountants. Pure arithmetic: no torch, no data.

Gaussian sums over Poisson samples, and choices, are a plan of dpbench: `privacy.core.accounting` has both opinions on
those, by dp-accounting and by Microsoft's prv-accountant. For everything else dp-accounting composes privacy loss
distributions and Renyi curves, and where delta may be 0, or all there is is zCDP, a law is the second opinion.

Noise is in clips. Replacing a row moves a sum by two clips: Renyi accountants, whose noise is relative to the
sensitivity, get half the noise; dp-accounting's loss distributions of `REPLACE_ONE` take it in clips.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from dpbench.errors import AccountantsDisagree, SpecError
from dpbench.privacy.core.accounting import accountant, crosscheck
from dpbench.privacy.core.accounting.accountant import ORDERS
from dpbench.privacy.core.accounting.crosscheck import Account
from dpbench.privacy.core.plan import Planned, Release
from dpbench.privacy.mechanisms.choice.choice_plan import Choice, eps0_of, loss_distribution
from dpbench.receipts.events import (
    WITH_REPLACEMENT,
    Approximate,
    BestOf,
    Chosen,
    Concentrated,
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    Pure,
    Term,
    flatten,
)
from dpbench.receipts.grouping import DISTINCT, are_gaussian, as_release, costliest, group
from dpbench.receipts.receipt import Adjacency

WIDE = 16.0
"""Standard deviations between neighbours, by the central limit, above which no grid is tried: epsilon is beyond 150, a
grid would need gigabytes, and nobody is protected."""
FEW_ORDERS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64)  # which is enough there; others take a minute
APART = 0.8
"""A floor under groups counts where it is this share of their epsilon. Below, it would hide the costly in the cheap."""
SLOW = 50  # different mechanisms, of those that are not grouped, that an accountant takes seconds for


def opinions(event: Event, delta: float, adjacency: Adjacency) -> tuple[Account, ...]:
    """Return what accountants say about events, the tightest first, two where two can answer.

    Raises:
        SpecError: the events are malformed, or no accountant answers for them under this adjacency.
    """
    if isinstance(event, BestOf):
        return _selection(event, delta, adjacency)
    terms = flatten(event)
    if any(isinstance(one.leaf, NonPrivate) for one in terms):
        return (Account.exact("no noise", math.inf),)
    if not terms:
        return (Account.exact("nothing was asked", 0.0),)
    answers = _answers(terms, delta, adjacency)
    if not answers:
        kinds = ", ".join(sorted({_describe(one) for one in terms}))
        raise SpecError(f"No accountant answers for {kinds} at delta={delta:g} under {adjacency}.")
    return tuple(sorted(answers, key=lambda one: one.upper)[:2])


def _answers(terms: Sequence[Term], delta: float, adjacency: Adjacency) -> list[Account]:
    with accountant.quiet():
        if len(terms) > DISTINCT and are_gaussian(terms) and delta > 0:
            return _of_groups(terms, delta, adjacency)
        if delta > 0 and len(terms) <= SLOW and (plan := _plan(terms, adjacency)) is not None:
            wide = _unsampled(terms, delta, adjacency) if _is_wide(*plan) else None
            return [*_of_plan(*plan, delta), *([] if wide is None else [wide])]
        found = [_basic(terms, delta, adjacency)]
        if delta > 0:
            found += [ask(terms, delta, adjacency) for ask in (_renyi, _concentrated, _losses, _unsampled)]
    return [one for one in found if one is not None and math.isfinite(one.upper)]


def _of_groups(terms: Sequence[Term], delta: float, adjacency: Adjacency) -> list[Account]:
    """Return opinions on many Gaussian sums in groups of similar ones, worse than they are, and a floor under them."""
    whole, grouped = _unsampled(terms, delta, adjacency), _answers(group(terms, True), delta, adjacency)
    found = [Account.bound(f"{one.accountant}, {len(terms):,} events in groups", one.upper) for one in grouped]
    found += [] if whole is None else [whole]
    least = min(one.upper for one in found)
    floor = max(_floor(some, delta, adjacency) for some in (group(terms, False), costliest(terms)))
    floor = floor if APART * least <= floor < math.inf else 0.0
    return [Account(one.accountant, max(floor, one.lower), one.upper) for one in found]


def _floor(terms: Sequence[Term], delta: float, adjacency: Adjacency) -> float:
    """Return what nobody would honestly state less than for these sums; 0 if that is not known."""
    plan = _plan(terms, adjacency)
    return 0.0 if plan is None or _is_wide(*plan) else 0.99 * accountant.epsilon(*plan, delta)


def _plan(terms: Sequence[Term], adjacency: Adjacency) -> tuple[list[Planned], float] | None:
    """Return events as a plan of dpbench and its base noise; None if they are something else."""
    if adjacency == "replace-one":
        return None
    plan: list[Planned] = []
    sigmas = [_sigma(one) for one in terms]
    for number, (term, sigma) in enumerate(zip(terms, sigmas, strict=True)):
        if sigma is None or term.sampler not in (None, "poisson"):
            return None
        relative, base = sigma / (sigmas[0] or 1.0), f"event {number}"
        if isinstance(term.leaf, Chosen):
            plan.append(Choice(base, min(term.leaf.candidates, 2**22), 1, term.times, relative))
        else:
            plan.append(Release(base, term.times, term.rate, relative))
    return plan, sigmas[0] or 1.0


def _sigma(term: Term) -> float | None:
    if isinstance(term.leaf, Gaussian):
        return term.leaf.sigma
    return eps0_of(term.leaf.epsilon) if isinstance(term.leaf, Chosen) and term.sampler is None else None


def _of_plan(plan: list[Planned], sigma: float, delta: float) -> list[Account]:
    """Return dp-accounting's opinion and that of another library."""
    if _is_wide(plan, sigma):
        first, other = _coarse(plan, sigma, delta)
        return [Account.bound("rdp (dp-accounting)", first), Account.bound("rdp (Opacus)", other)]
    tight = accountant.epsilon(plan, sigma, delta)
    if math.isinf(tight):  # delta is below what a grid truncates
        renyi = accountant.epsilon(plan, sigma, delta, "rdp")
        return [Account.bound("rdp (dp-accounting)", renyi)]
    own = Account.tight("pld (dp-accounting)", tight)
    try:
        second = crosscheck.cross_check(plan, sigma, delta, "pld", tight)
    except (
        AccountantsDisagree,
        ValueError,
        ArithmeticError,
    ):  # then both stand there; prv-accountant has none at a delta near 0
        return [own, Account.bound("rdp (dp-accounting)", accountant.epsilon(plan, sigma, delta, "rdp"))]
    return [own, second]


def _is_wide(plan: Sequence[Planned], sigma: float) -> bool:
    """Say whether a grid for a plan would need gigabytes: none does whose every rate is 1."""
    return any(one.sample_rate < 1 for one in plan) and accountant.distance(plan, sigma) > WIDE


def _coarse(plan: Sequence[Planned], sigma: float, delta: float) -> tuple[float, float]:
    """Return epsilon at a few Renyi orders, by dp-accounting and by Opacus."""
    import dp_accounting as dp
    import numpy as np
    from dp_accounting.rdp import RdpAccountant

    counted = RdpAccountant(FEW_ORDERS, dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for event in accountant.events(plan, sigma):
        counted.compose(event)
    orders = np.array(FEW_ORDERS)
    curve = np.sum([one.renyi(sigma * one.relative_noise, FEW_ORDERS) for one in plan], axis=0)
    bounds = curve + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    return float(counted.get_epsilon(delta)), max(0.0, float(np.nanmin(bounds)))


def _selection(event: BestOf, delta: float, adjacency: Adjacency) -> tuple[Account, ...]:
    from dpbench.privacy.core.accounting import private_search as selection

    terms = flatten(event.event)
    if not terms:
        return (Account.exact("nothing was asked", 0.0),)
    few = len(terms) <= DISTINCT or not are_gaussian(terms)
    plan = _plan(terms if few else group(terms, True), adjacency) if len(terms) <= SLOW or not few else None
    if plan is None or delta == 0:
        raise SpecError(
            "Expected Gaussian sums or choices within 'best-of', under add-or-remove-one: no accountant supports "
            "anything else."
        )
    repeats = selection.Repeats(event.mean, event.shape)
    with accountant.quiet():
        one, other = (ask(*plan, delta, repeats) for ask in (selection.epsilon, selection.independent))
    return Account("rdp (dp-accounting)", 0.98 * min(one, other), one), Account.bound("rdp (Opacus)", other)


def _basic(terms: Sequence[Term], delta: float, adjacency: Adjacency) -> Account | None:
    """Return the sum of all epsilons, where every event has one and their deltas add up to no more than delta."""
    total, deltas = 0.0, 0.0
    for term in terms:
        known = isinstance(term.leaf, Approximate) and term.sampler is None
        one = term.leaf.epsilon if known and isinstance(term.leaf, Approximate) else _pure_epsilon(term, adjacency)
        if one is None:
            return None
        total += term.times * one
        deltas += term.times * term.leaf.delta if isinstance(term.leaf, Approximate) else 0.0
    known = delta == 0 or len(terms) <= DISTINCT  # of more, no losses are composed, and they may cost less
    account = Account.tight if known else Account.bound
    return account("sum of epsilons", total) if deltas <= delta * (1 + 1e-9) else None


def _pure_epsilon(term: Term, adjacency: Adjacency) -> float | None:
    if term.sampler not in (None, "poisson") or (term.sampler and adjacency == "replace-one"):
        return None
    if isinstance(term.leaf, Laplace):
        whole = _moved(adjacency) / term.leaf.scale
    elif isinstance(term.leaf, Pure | Chosen):
        whole = term.leaf.epsilon
    else:
        return None
    return math.log1p(term.rate * math.expm1(whole)) if whole < 700 else whole


def _concentrated(terms: Sequence[Term], delta: float, adjacency: Adjacency) -> Account | None:
    """Return rho + 2 sqrt(rho log(1 / delta)) (Bun and Steinke 2016), where every event is zCDP."""
    total = 0.0
    for term in terms:
        rho = _rho(term, adjacency)
        if rho is None:
            return None
        total += term.times * rho
    found = total + 2 * math.sqrt(total * math.log(1 / delta))
    return Account.bound("zCDP by Bun and Steinke", found)


def _rho(term: Term, adjacency: Adjacency) -> float | None:
    if not _whole(term):
        return None
    leaf = term.leaf
    if isinstance(leaf, Gaussian):
        return 0.5 * (_moved(adjacency) / leaf.sigma) ** 2
    if isinstance(leaf, Concentrated):
        return leaf.rho
    pure = _pure_epsilon(term, adjacency)
    return None if pure is None else pure**2 / 2


def _renyi(terms: Sequence[Term], delta: float, adjacency: Adjacency) -> Account | None:
    import dp_accounting as dp
    from dp_accounting.rdp import RdpAccountant

    if sum(one.sampler is not None and one.rate < 1 for one in terms) > SLOW:
        return None
    counted = RdpAccountant(ORDERS, _relation(adjacency))
    for term in terms:
        event = _event(term, adjacency)
        if event is None or not counted.supports(event):
            return None
        counted.compose(dp.SelfComposedDpEvent(event, term.times))
    found = float(counted.get_epsilon(delta))
    return Account.tight("rdp (dp-accounting)", found)


def _event(term: Term, adjacency: Adjacency) -> Any:
    """Return the `DpEvent` of one step, its noise relative to the sensitivity; None if it has no such event."""
    import dp_accounting as dp

    leaf, moved = term.leaf, _moved(adjacency)
    if isinstance(leaf, Gaussian):
        event: Any = dp.GaussianDpEvent(leaf.sigma / moved)
    elif isinstance(leaf, Laplace) and not leaf.discrete:
        event = dp.LaplaceDpEvent(leaf.scale / moved)
    elif (rho := _rho(Term(leaf), adjacency)) is not None:  # noise on integers too, which has a worse curve
        event = dp.dp_event.ZCDpEvent(rho)
    else:
        return None
    if _whole(term):
        return event
    if term.sampler == "poisson":
        return dp.PoissonSampledDpEvent(term.rate, event)
    if term.sampler == "fixed-size":
        return dp.SampledWithoutReplacementDpEvent(10**9, math.ceil(term.rate * 10**9), event)
    return None


def _losses(terms: Sequence[Term], delta: float, adjacency: Adjacency) -> Account | None:
    """Return epsilon by privacy loss distributions, where every event has one."""
    if len(terms) > DISTINCT or _distance(terms, adjacency) > WIDE:  # minutes
        return None

    def composed(interval: float) -> float:
        parts = [_loss(one, adjacency, interval) for one in terms]
        return float(functools.reduce(lambda one, other: one.compose(other), parts).get_epsilon_for_delta(delta))

    try:
        tight = accountant.finest(composed)
    except _NoLoss:
        return None
    except (ValueError, MemoryError, OverflowError):  # a grid that cannot hold such losses
        return None
    return Account.tight("pld (dp-accounting)", tight)


def _distance(terms: Sequence[Term], adjacency: Adjacency) -> float:
    """Return how far neighbours are apart in standard deviations, or more: epsilons of pure events add as squares."""
    plan = []
    for term in terms:
        if isinstance(term.leaf, Gaussian):
            plan.append(as_release(term))
        elif pure := _pure_epsilon(term, adjacency):
            plan.append(Release(term.leaf.kind, term.times, relative_noise=_moved(adjacency) / pure))
    return accountant.distance(plan, 1 / _moved(adjacency))


class _NoLoss(Exception):
    """An event without a loss distribution."""


def _loss(term: Term, adjacency: Adjacency, interval: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    leaf, rate, moved = term.leaf, term.rate, _moved(adjacency)
    grid: Any = {"value_discretization_interval": interval}
    if term.sampler not in (None, "poisson") or (term.sampler and moved > 1 and not isinstance(leaf, Gaussian)):
        raise _NoLoss
    if isinstance(leaf, Gaussian):
        std, times = (leaf.sigma / math.sqrt(term.times), 1) if rate == 1 else (leaf.sigma, term.times)
        one = pld.from_gaussian_mechanism(std, sampling_prob=rate, neighboring_relation=_relation(adjacency), **grid)
        return one.self_compose(times)
    if isinstance(leaf, Laplace) and not leaf.discrete:
        return pld.from_laplace_mechanism(leaf.scale / moved, sampling_prob=rate, **grid).self_compose(term.times)
    if rate < 1:
        raise _NoLoss
    if isinstance(leaf, Chosen) and moved == 1:
        return loss_distribution(leaf.epsilon, interval).self_compose(term.times)
    pure = _pure_epsilon(term, adjacency)
    if pure is None and not isinstance(leaf, Approximate):
        raise _NoLoss
    own = (leaf.epsilon, leaf.delta) if isinstance(leaf, Approximate) else (pure, 0.0)
    return pld.from_privacy_parameters(DifferentialPrivacyParameters(*own), **grid).self_compose(term.times)


def _unsampled(terms: Sequence[Term], delta: float, adjacency: Adjacency) -> Account | None:
    """Return what Gaussian sums cost if every row were in every sample: an upper bound, whatever drew the samples.

    None where a row may be in a sample several times: it then moves the sum by several clips.
    """
    import dp_accounting as dp

    again = any(one.sampler == WITH_REPLACEMENT for one in terms)
    if again or not all(isinstance(one.leaf, Gaussian) for one in terms):
        return None
    precision = sum(one.times / one.leaf.sigma**2 for one in terms if isinstance(one.leaf, Gaussian))
    displaced = any(one.sampler == "fixed-size" for one in terms)  # by one row more
    moved = 2 if displaced and adjacency == "add-or-remove-one" else _moved(adjacency)
    found = dp.get_epsilon_gaussian(1 / (moved * math.sqrt(precision)), delta)
    exact = all(one.sampler is None or one.rate == 1 for one in terms)
    return (Account.tight if exact else Account.bound)("exact Gaussian, no sampling", float(found))


def _whole(term: Term) -> bool:
    """Say whether every row is in, once: of samples with replacement a row may be in one several times."""
    return term.sampler is None or (term.rate == 1 and term.sampler != WITH_REPLACEMENT)


def _moved(adjacency: Adjacency) -> int:
    """Return by how many clips one neighbour's sum differs."""
    return 2 if adjacency == "replace-one" else 1


def _relation(adjacency: Adjacency) -> Any:
    import dp_accounting as dp

    relation = dp.NeighboringRelation
    known = {"add-or-remove-one": relation.ADD_OR_REMOVE_ONE, "replace-one": relation.REPLACE_ONE}
    return known.get(adjacency, relation.REPLACE_SPECIAL)


def _describe(term: Term) -> str:
    return f"{term.leaf.kind} over a {term.sampler} sample" if term.sampler else term.leaf.kind
