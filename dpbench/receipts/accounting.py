"""Compute the epsilon of a receipt's events with two accountants. Pure arithmetic: no torch, no data.

Gaussian sums over Poisson samples, and choices, form a plan of dpbench: `privacy.core.accounting` computes its epsilon
with dp-accounting and with Microsoft's prv-accountant. For all other events dp-accounting composes privacy loss
distributions and Renyi curves. If delta may be 0, or all events are zCDP, a closed formula gives a second value.

Noise is in clips. Replacing a row moves a sum by two clips. Renyi accountants take the noise relative to the
sensitivity, so they get half of it. dp-accounting's loss distributions for `REPLACE_ONE` take the noise in clips.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from dpbench.errors import AccountantsDisagree, SpecError
from dpbench.privacy.core.accounting import accountant, crosscheck
from dpbench.privacy.core.accounting.accountant import ORDERS
from dpbench.privacy.core.accounting.crosscheck import EpsilonInterval
from dpbench.privacy.core.plan import Planned, Release
from dpbench.privacy.mechanisms.choice.choice_plan import Choice, compute_eps0, loss_distribution
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
    flatten_to_terms,
)
from dpbench.receipts.grouping import (
    MAX_UNGROUPED,
    are_all_gaussian_sums,
    convert_term_to_release,
    find_costliest_sums,
    group_gaussian_sums,
)
from dpbench.receipts.receipt import Adjacency

LARGEST_GRID_DISTANCE = 16.0
"""Distance between neighbours in standard deviations (by the central limit theorem) above which no grid is tried. The
grid would need gigabytes, and epsilon is above 150, which protects nobody."""
COARSE_ORDERS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64)  # which is enough there; others take a minute
MIN_FLOOR_SHARE = 0.8
"""A lower bound on the epsilon of grouped sums counts if it is at least this share of their upper bound. A looser bound
would hide costly sums among cheap ones."""
MAX_UNGROUPED_TERMS = 50  # different mechanisms, of those that are not grouped, that an accountant takes seconds for


def compute_epsilons(event: Event, delta: float, adjacency: Adjacency) -> tuple[EpsilonInterval, ...]:
    """Compute the epsilon of events with up to two accountants; return their intervals, the smallest upper bound first.

    Raises:
        SpecError: the events are malformed, or no accountant answers for them under this adjacency.
    """
    if isinstance(event, BestOf):
        return _compute_best_of_epsilons(event, delta, adjacency)
    terms = flatten_to_terms(event)
    if any(isinstance(term.leaf, NonPrivate) for term in terms):
        return (EpsilonInterval.exact("no noise", math.inf),)
    if not terms:
        return (EpsilonInterval.exact("nothing was asked", 0.0),)
    answers = _compute_all_epsilons(terms, delta, adjacency)
    if not answers:
        kinds = ", ".join(sorted({_describe_term(term) for term in terms}))
        raise SpecError(f"No accountant answers for {kinds} at delta={delta:g} under {adjacency}.")
    return tuple(sorted(answers, key=lambda answer: answer.upper)[:2])


def _compute_all_epsilons(terms: Sequence[Term], delta: float, adjacency: Adjacency) -> list[EpsilonInterval]:
    with accountant.silence_accounting_libraries():
        if len(terms) > MAX_UNGROUPED and are_all_gaussian_sums(terms) and delta > 0:
            return _bound_epsilon_by_groups(terms, delta, adjacency)
        if delta > 0 and len(terms) <= MAX_UNGROUPED_TERMS and (plan := convert_to_plan(terms, adjacency)) is not None:
            wide = _compute_unsampled_account(terms, delta, adjacency) if needs_huge_grid(*plan) else None
            return [*_compute_plan_epsilons(*plan, delta), *([] if wide is None else [wide])]
        found = [_sum_epsilons(terms, delta, adjacency)]
        if delta > 0:
            found += [
                ask(terms, delta, adjacency)
                for ask in (
                    _compute_renyi_account,
                    _compute_zcdp_account,
                    _compute_pld_account,
                    _compute_unsampled_account,
                )
            ]
    return [account for account in found if account is not None and math.isfinite(account.upper)]


def _bound_epsilon_by_groups(terms: Sequence[Term], delta: float, adjacency: Adjacency) -> list[EpsilonInterval]:
    """Return intervals for the epsilon of many Gaussian sums.

    Upper bounds are computed with a few groups that cost more than the sums, and as if no sums were sampled. The lower
    bound is computed with groups that cost less, or with the costliest sums alone; it is 0 if it would be loose.
    """
    whole, grouped = (
        _compute_unsampled_account(terms, delta, adjacency),
        _compute_all_epsilons(group_gaussian_sums(terms, True), delta, adjacency),
    )
    found = [
        EpsilonInterval.bound(f"{account.accountant}, {len(terms):,} events in groups", account.upper)
        for account in grouped
    ]
    found += [] if whole is None else [whole]
    least = min(account.upper for account in found)
    floor = max(
        _compute_lower_bound(some, delta, adjacency)
        for some in (group_gaussian_sums(terms, False), find_costliest_sums(terms))
    )
    floor = floor if MIN_FLOOR_SHARE * least <= floor < math.inf else 0.0
    return [EpsilonInterval(account.accountant, max(floor, account.lower), account.upper) for account in found]


def _compute_lower_bound(terms: Sequence[Term], delta: float, adjacency: Adjacency) -> float:
    """Return a lower bound on the epsilon of these sums; 0 if it is unknown."""
    plan = convert_to_plan(terms, adjacency)
    return 0.0 if plan is None or needs_huge_grid(*plan) else 0.99 * accountant.epsilon(*plan, delta)


def convert_to_plan(terms: Sequence[Term], adjacency: Adjacency) -> tuple[list[Planned], float] | None:
    """Convert the events to a plan of dpbench and its base noise; return None if a plan cannot express them."""
    if adjacency == "replace-one":
        return None
    plan: list[Planned] = []
    sigmas = [_find_sigma(term) for term in terms]
    for number, (term, sigma) in enumerate(zip(terms, sigmas, strict=True)):
        if sigma is None or term.sampler not in (None, "poisson"):
            return None
        relative, base = sigma / (sigmas[0] or 1.0), f"event {number}"
        if isinstance(term.leaf, Chosen):
            plan.append(Choice(base, min(term.leaf.candidates, 2**22), 1, term.times, relative))
        else:
            plan.append(Release(base, term.times, term.rate, relative))
    return plan, sigmas[0] or 1.0


def _find_sigma(term: Term) -> float | None:
    if isinstance(term.leaf, Gaussian):
        return term.leaf.sigma
    return compute_eps0(term.leaf.epsilon) if isinstance(term.leaf, Chosen) and term.sampler is None else None


def _compute_plan_epsilons(plan: list[Planned], sigma: float, delta: float) -> list[EpsilonInterval]:
    """Return the accounts of dp-accounting and of a second library for a plan."""
    if needs_huge_grid(plan, sigma):
        first, other = _compute_coarse_epsilons(plan, sigma, delta)
        return [EpsilonInterval.bound("rdp (dp-accounting)", first), EpsilonInterval.bound("rdp (Opacus)", other)]
    tight = accountant.epsilon(plan, sigma, delta)
    if math.isinf(tight):  # delta is below what a grid truncates
        renyi = accountant.epsilon(plan, sigma, delta, "rdp")
        return [EpsilonInterval.bound("rdp (dp-accounting)", renyi)]
    own = EpsilonInterval.tight("pld (dp-accounting)", tight)
    try:
        second = crosscheck.cross_check(plan, sigma, delta, "pld", tight)
    except (
        AccountantsDisagree,
        ValueError,
        ArithmeticError,
    ):  # then both stand there; prv-accountant has none at a delta near 0
        return [own, EpsilonInterval.bound("rdp (dp-accounting)", accountant.epsilon(plan, sigma, delta, "rdp"))]
    return [own, second]


def needs_huge_grid(plan: Sequence[Planned], sigma: float) -> bool:
    """Return whether a grid for this plan would need gigabytes of memory; False if every sampling rate is 1."""
    return (
        any(use.sample_rate < 1 for use in plan)
        and accountant.approximate_neighbour_distance(plan, sigma) > LARGEST_GRID_DISTANCE
    )


def _compute_coarse_epsilons(plan: Sequence[Planned], sigma: float, delta: float) -> tuple[float, float]:
    """Return the epsilon that dp-accounting and Opacus compute at a few Renyi orders."""
    import dp_accounting as dp
    import numpy as np
    from dp_accounting.rdp import RdpAccountant

    counted = RdpAccountant(COARSE_ORDERS, dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for event in accountant.convert_to_dp_events(plan, sigma):
        counted.compose(event)
    orders = np.array(COARSE_ORDERS)
    curve = np.sum([use.renyi(sigma * use.relative_noise, COARSE_ORDERS) for use in plan], axis=0)
    bounds = curve + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    return float(counted.get_epsilon(delta)), max(0.0, float(np.nanmin(bounds)))


def _compute_best_of_epsilons(event: BestOf, delta: float, adjacency: Adjacency) -> tuple[EpsilonInterval, ...]:
    from dpbench.privacy.core.accounting import private_search as selection

    terms = flatten_to_terms(event.event)
    if not terms:
        return (EpsilonInterval.exact("nothing was asked", 0.0),)
    few = len(terms) <= MAX_UNGROUPED or not are_all_gaussian_sums(terms)
    plan = (
        convert_to_plan(terms if few else group_gaussian_sums(terms, True), adjacency)
        if len(terms) <= MAX_UNGROUPED_TERMS or not few
        else None
    )
    if plan is None or delta == 0:
        raise SpecError(
            "Expected Gaussian sums or choices within 'best-of', under add-or-remove-one: no accountant supports "
            "anything else."
        )
    repeats = selection.RunCountDistribution(event.mean, event.shape)
    with accountant.silence_accounting_libraries():
        epsilon, other = (ask(*plan, delta, repeats) for ask in (selection.epsilon, selection.independent_epsilon))
    return EpsilonInterval("rdp (dp-accounting)", 0.98 * min(epsilon, other), epsilon), EpsilonInterval.bound(
        "rdp (Opacus)", other
    )


def _sum_epsilons(terms: Sequence[Term], delta: float, adjacency: Adjacency) -> EpsilonInterval | None:
    """Return the sum of all epsilons; None if an event has no epsilon or the deltas add up to more than delta."""
    total, deltas = 0.0, 0.0
    for term in terms:
        known = isinstance(term.leaf, Approximate) and term.sampler is None
        epsilon = (
            term.leaf.epsilon
            if known and isinstance(term.leaf, Approximate)
            else _compute_pure_epsilon(term, adjacency)
        )
        if epsilon is None:
            return None
        total += term.times * epsilon
        deltas += term.times * term.leaf.delta if isinstance(term.leaf, Approximate) else 0.0
    known = delta == 0 or len(terms) <= MAX_UNGROUPED  # of more, no losses are composed, and they may cost less
    account = EpsilonInterval.tight if known else EpsilonInterval.bound
    return account("sum of epsilons", total) if deltas <= delta * (1 + 1e-9) else None


def _compute_pure_epsilon(term: Term, adjacency: Adjacency) -> float | None:
    if term.sampler not in (None, "poisson") or (term.sampler and adjacency == "replace-one"):
        return None
    if isinstance(term.leaf, Laplace):
        whole = _count_clips_between_neighbours(adjacency) / term.leaf.scale
    elif isinstance(term.leaf, Pure | Chosen):
        whole = term.leaf.epsilon
    else:
        return None
    return math.log1p(term.rate * math.expm1(whole)) if whole < 700 else whole


def _compute_zcdp_account(terms: Sequence[Term], delta: float, adjacency: Adjacency) -> EpsilonInterval | None:
    """Return rho + 2 sqrt(rho log(1 / delta)) (Bun and Steinke 2016); None if an event is not zCDP."""
    total = 0.0
    for term in terms:
        rho = _compute_rho(term, adjacency)
        if rho is None:
            return None
        total += term.times * rho
    found = total + 2 * math.sqrt(total * math.log(1 / delta))
    return EpsilonInterval.bound("zCDP by Bun and Steinke", found)


def _compute_rho(term: Term, adjacency: Adjacency) -> float | None:
    if not _samples_every_row_once(term):
        return None
    leaf = term.leaf
    if isinstance(leaf, Gaussian):
        return 0.5 * (_count_clips_between_neighbours(adjacency) / leaf.sigma) ** 2
    if isinstance(leaf, Concentrated):
        return leaf.rho
    pure = _compute_pure_epsilon(term, adjacency)
    return None if pure is None else pure**2 / 2


def _compute_renyi_account(terms: Sequence[Term], delta: float, adjacency: Adjacency) -> EpsilonInterval | None:
    import dp_accounting as dp
    from dp_accounting.rdp import RdpAccountant

    if sum(term.sampler is not None and term.rate < 1 for term in terms) > MAX_UNGROUPED_TERMS:
        return None
    counted = RdpAccountant(ORDERS, _find_neighbouring_relation(adjacency))
    for term in terms:
        event = _convert_to_dp_event(term, adjacency)
        if event is None or not counted.supports(event):
            return None
        counted.compose(dp.SelfComposedDpEvent(event, term.times))
    found = float(counted.get_epsilon(delta))
    return EpsilonInterval.tight("rdp (dp-accounting)", found)


def _convert_to_dp_event(term: Term, adjacency: Adjacency) -> Any:
    """Convert a step to a `DpEvent`, with noise relative to the sensitivity; return None if there is no equivalent."""
    import dp_accounting as dp

    leaf, moved = term.leaf, _count_clips_between_neighbours(adjacency)
    if isinstance(leaf, Gaussian):
        event: Any = dp.GaussianDpEvent(leaf.sigma / moved)
    elif isinstance(leaf, Laplace) and not leaf.discrete:
        event = dp.LaplaceDpEvent(leaf.scale / moved)
    elif (rho := _compute_rho(Term(leaf), adjacency)) is not None:  # noise on integers too, which has a worse curve
        event = dp.dp_event.ZCDpEvent(rho)
    else:
        return None
    if _samples_every_row_once(term):
        return event
    if term.sampler == "poisson":
        return dp.PoissonSampledDpEvent(term.rate, event)
    if term.sampler == "fixed-size":
        return dp.SampledWithoutReplacementDpEvent(10**9, math.ceil(term.rate * 10**9), event)
    return None


def _compute_pld_account(terms: Sequence[Term], delta: float, adjacency: Adjacency) -> EpsilonInterval | None:
    """Compute epsilon from privacy loss distributions; None if an event has none, or if it would take too long."""
    if len(terms) > MAX_UNGROUPED or _estimate_neighbour_distance(terms, adjacency) > LARGEST_GRID_DISTANCE:  # minutes
        return None

    def compute_epsilon_at(interval: float) -> float:
        parts = [_compute_loss_distribution(term, adjacency, interval) for term in terms]
        return float(functools.reduce(lambda part, other: part.compose(other), parts).get_epsilon_for_delta(delta))

    try:
        tight = accountant.epsilon_on_fine_grid(compute_epsilon_at)
    except _NoLossDistributionError:
        return None
    except (ValueError, MemoryError, OverflowError):  # a grid that cannot hold such losses
        return None
    return EpsilonInterval.tight("pld (dp-accounting)", tight)


def _estimate_neighbour_distance(terms: Sequence[Term], adjacency: Adjacency) -> float:
    """Return the estimate of `accountant.approximate_neighbour_distance`, in standard deviations.

    A pure event counts as a Gaussian sum whose neighbours are its epsilon apart; other events do not count.
    """
    plan = []
    for term in terms:
        if isinstance(term.leaf, Gaussian):
            plan.append(convert_term_to_release(term))
        elif pure := _compute_pure_epsilon(term, adjacency):
            plan.append(
                Release(term.leaf.kind, term.times, relative_noise=_count_clips_between_neighbours(adjacency) / pure)
            )
    return accountant.approximate_neighbour_distance(plan, 1 / _count_clips_between_neighbours(adjacency))


class _NoLossDistributionError(Exception):
    """An event has no privacy loss distribution."""


def _compute_loss_distribution(term: Term, adjacency: Adjacency, interval: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    leaf, rate, moved = term.leaf, term.rate, _count_clips_between_neighbours(adjacency)
    grid: Any = {"value_discretization_interval": interval}
    if term.sampler not in (None, "poisson") or (term.sampler and moved > 1 and not isinstance(leaf, Gaussian)):
        raise _NoLossDistributionError
    if isinstance(leaf, Gaussian):
        std, times = (leaf.sigma / math.sqrt(term.times), 1) if rate == 1 else (leaf.sigma, term.times)
        loss = pld.from_gaussian_mechanism(
            std, sampling_prob=rate, neighboring_relation=_find_neighbouring_relation(adjacency), **grid
        )
        return loss.self_compose(times)
    if isinstance(leaf, Laplace) and not leaf.discrete:
        return pld.from_laplace_mechanism(leaf.scale / moved, sampling_prob=rate, **grid).self_compose(term.times)
    if rate < 1:
        raise _NoLossDistributionError
    if isinstance(leaf, Chosen) and moved == 1:
        return loss_distribution(leaf.epsilon, term.times, interval)
    pure = _compute_pure_epsilon(term, adjacency)
    if pure is None and not isinstance(leaf, Approximate):
        raise _NoLossDistributionError
    own = (leaf.epsilon, leaf.delta) if isinstance(leaf, Approximate) else (pure, 0.0)
    return pld.from_privacy_parameters(DifferentialPrivacyParameters(*own), **grid).self_compose(term.times)


def _compute_unsampled_account(terms: Sequence[Term], delta: float, adjacency: Adjacency) -> EpsilonInterval | None:
    """Return the epsilon of Gaussian sums as if every sample had every row: an upper bound for any sampling.

    Returns None if an event is not a Gaussian sum, or if a row can be in a sample several times, because it then moves
    the sum by several clips.
    """
    import dp_accounting as dp

    again = any(term.sampler == WITH_REPLACEMENT for term in terms)
    if again or not all(isinstance(term.leaf, Gaussian) for term in terms):
        return None
    precision = sum(term.times / term.leaf.sigma**2 for term in terms if isinstance(term.leaf, Gaussian))
    displaced = any(term.sampler == "fixed-size" for term in terms)  # by one row more
    moved = 2 if displaced and adjacency == "add-or-remove-one" else _count_clips_between_neighbours(adjacency)
    found = dp.get_epsilon_gaussian(1 / (moved * math.sqrt(precision)), delta)
    exact = all(term.sampler is None or term.rate == 1 for term in terms)
    return (EpsilonInterval.tight if exact else EpsilonInterval.bound)("exact Gaussian, no sampling", float(found))


def _samples_every_row_once(term: Term) -> bool:
    """Return whether the sample has every row exactly once; with replacement, a row may be in it several times."""
    return term.sampler is None or (term.rate == 1 and term.sampler != WITH_REPLACEMENT)


def _count_clips_between_neighbours(adjacency: Adjacency) -> int:
    """Return the largest distance between the sums of two neighbouring datasets, in clips."""
    return 2 if adjacency == "replace-one" else 1


def _find_neighbouring_relation(adjacency: Adjacency) -> Any:
    import dp_accounting as dp

    relation = dp.NeighboringRelation
    known = {"add-or-remove-one": relation.ADD_OR_REMOVE_ONE, "replace-one": relation.REPLACE_ONE}
    return known.get(adjacency, relation.REPLACE_SPECIAL)


def _describe_term(term: Term) -> str:
    return f"{term.leaf.kind} over a {term.sampler} sample" if term.sampler else term.leaf.kind
