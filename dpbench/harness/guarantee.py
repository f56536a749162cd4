"""Compute the epsilon of a result before any fit: calibrate sigma to the plan and compare two accountants."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from dpbench.api import Budget, Planned
from dpbench.privacy import MECHANISM
from dpbench.privacy.core.accounting import accountant, calibration, crosscheck, group, private_search
from dpbench.privacy.core.accounting.accountant import AccountantName
from dpbench.privacy.core.accounting.crosscheck import EpsilonInterval
from dpbench.privacy.core.accounting.private_search import RunCountDistribution
from dpbench.records.result import UnitFacts
from dpbench.records.stated_plan import PlannedRepeats, PrivacyGuarantee, make_plan_records

if TYPE_CHECKING:
    import numpy as np

Rng = Literal["research", "secure"]


def compute_guarantee(
    plan: tuple[Planned, ...],
    budget: Budget,
    name: AccountantName,
    rng: Rng,
    repeats: RunCountDistribution | None = None,
) -> PrivacyGuarantee:
    """Calibrate sigma to the plan and budget; return the guarantee of a fit or, with `repeats`, of a private search.

    A plan of one choice satisfies pure DP: its delta is 0, whatever the budget allows. The guarantee depends only on
    the arguments, so runs with equal arguments may share it.

    Raises:
        PrivacyError: the plan cannot fit the budget, or two accountants contradict each other.
    """
    if repeats is None and accountant.is_pure_dp(plan):
        budget = dataclasses.replace(budget, delta=0.0)
    if repeats is None:
        sigma = calibration.calibrate(plan, budget, name)
    else:
        sigma = private_search.calibrate(plan, budget, repeats)
    stated, second = compute_cross_checked_epsilon(plan, sigma, budget.delta, name, repeats)
    return PrivacyGuarantee(
        epsilon=stated, delta=budget.delta, accountant=name, adjacency=budget.adjacency, sigma=sigma,
        plan=make_plan_records(plan, sigma), independent=second, rng=rng, mechanism=MECHANISM,
        repeats=None if repeats is None else PlannedRepeats(mean=repeats.mean, shape=repeats.shape),
    )  # fmt: skip


def compute_cross_checked_epsilon(
    plan: Sequence[Planned],
    sigma: float,
    delta: float,
    name: AccountantName,
    repeats: RunCountDistribution | None = None,
) -> tuple[float, EpsilonInterval]:
    """Return the epsilon that the named accountant computes, and the result of a second accountant.

    With `repeats`, both cover a whole private search.

    Raises:
        PrivacyError: the accountant cannot handle this plan, or the two accountants contradict each other.
    """
    if repeats is not None:
        stated = private_search.epsilon(plan, sigma, delta, repeats)
        return stated, private_search.cross_check(plan, sigma, delta, repeats, stated)
    stated = accountant.epsilon(plan, sigma, delta, name)
    return stated, crosscheck.cross_check(plan, sigma, delta, name, stated)


def compute_epsilon_for_copies(privacy: PrivacyGuarantee, copies: int) -> float | None:
    """Return the epsilon of a stated guarantee for a person who has `copies` images in the data.

    In a private search, each run is charged for all copies. Return None for fewer than two copies, if nothing private
    is read, or if epsilon is infinite.
    """
    if copies < 2 or not privacy.plan:
        return None
    plan, sigma, delta = privacy.releases, privacy.sigma, privacy.delta
    if privacy.repeats is not None:
        repeats = RunCountDistribution(privacy.repeats.mean, privacy.repeats.shape)
        found = private_search.epsilon(plan, sigma, delta, repeats, copies)
    else:
        found = group.epsilon(plan, sigma, delta, copies, privacy.accountant)
    return found if math.isfinite(found) else None


def compute_unit_epsilon(privacy: PrivacyGuarantee, image_count: int) -> float | None:
    """Return the epsilon of a unit with this many images; None if it is infinite, or if nothing private is read."""
    if image_count > 1:
        return compute_epsilon_for_copies(privacy, image_count)
    return privacy.epsilon if privacy.plan and math.isfinite(privacy.epsilon) else None


def make_unit_facts(owners: np.ndarray | None, unit_name: str, privacy: PrivacyGuarantee | None) -> UnitFacts | None:
    """Return the number and sizes of the private units, and the epsilon of the largest and the median unit.

    Return None if units are unknown.

    Args:
        owners: (n,) int64, the unit of each private image, from 0 on; None if units are unknown.
        unit_name: the word for a unit.
        privacy: the guarantee, if it is stated per image; None if it is stated per unit, and no epsilon is computed.
    """
    import numpy as np

    if owners is None:
        return None
    sizes = np.sort(np.bincount(owners))
    largest, median = int(sizes[-1]), int(sizes[(len(sizes) - 1) // 2])
    most = None if privacy is None else compute_unit_epsilon(privacy, largest)
    usual = None if privacy is None else most if median == largest else compute_unit_epsilon(privacy, median)
    return UnitFacts(
        word=unit_name, count=len(sizes), images=len(owners), largest=largest, median=median,
        largest_epsilon=most, median_epsilon=usual,
    )  # fmt: skip
