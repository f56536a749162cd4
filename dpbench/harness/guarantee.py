"""What a run guarantees: the plan, sigma and epsilon by two accountants, stated before the first private question."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dpbench.api import Budget, Release, Task
from dpbench.errors import AccountantsDisagree
from dpbench.harness.tuning import private
from dpbench.privacy.accounting import accountant, calibration, crosscheck
from dpbench.privacy.accounting import private_selection as repeats
from dpbench.privacy.plan import check_plan
from dpbench.records.result import Independent, PlannedRelease, PlannedRepeats, Privacy
from dpbench.records.spec import Spec
from dpbench.registry.components import Parts
from dpbench.support.guard import guarded

_LOOSE = 0.02  # what two Renyi accounts of one search may differ by, relative, for epsilon above 0.05


def state(parts: Parts, task: Task, spec: Spec) -> Privacy:
    """Calibrate sigma to the plan and budget, and state epsilon; of a whole search where selection is private.

    Raises:
        PrivacyError: the plan is malformed, cannot fit the budget, or two accountants contradict each other.
    """
    budget = Budget(spec.epsilon, spec.delta, spec.adjacency)
    if spec.search is not None and spec.search.rule == "private-accounted":
        plan = private.common_plan(parts.learner, lambda doing: parts.who("learner", doing), task, spec)
        return _of_search(plan, budget, spec)
    plan = check_plan(guarded(parts.who("learner", "plan"), parts.learner.plan, task, budget), parts.learner.name)
    sigma = calibration.calibrate(plan, budget, spec.accountant)
    stated = accountant.epsilon(plan, sigma, spec.delta, spec.accountant)
    other = crosscheck.cross_check(plan, sigma, spec.delta, spec.accountant)
    return _privacy(plan, sigma, stated, Independent(**dataclasses.asdict(other)), spec)


def _of_search(plan: tuple[Release, ...], budget: Budget, spec: Spec) -> Privacy:
    assert spec.search is not None
    count = private.repeats_of(spec.search)
    sigma = repeats.calibrate(plan, budget, count)
    stated = repeats.epsilon(plan, sigma, spec.delta, count)
    other = repeats.independent(plan, sigma, spec.delta, count)
    if 0.05 < stated < other / (1 + _LOOSE):
        raise AccountantsDisagree(
            f"dp-accounting states epsilon={stated:.6g} for the search, the theorem over Opacus' divergences "
            f"{other:.6g}. The run is refused; please report the plan: {list(plan)}."
        )
    independent = Independent(accountant="opacus-rdp", lower=min(stated, other), upper=max(stated, other))
    whole = _privacy(plan, sigma, stated, independent, spec)
    covered = "the choice of hyperparameters"  # which is a part of this guarantee
    left = tuple(line for line in whole.not_covered if not line.startswith(covered))
    return whole.model_copy(update={"repeats": PlannedRepeats(mean=count.mean, shape=count.shape), "not_covered": left})


def _privacy(plan: Sequence[Release], sigma: float, stated: float, independent: Independent, spec: Spec) -> Privacy:
    releases = tuple(PlannedRelease(**dataclasses.asdict(one), sigma=sigma * one.relative_noise) for one in plan)
    return Privacy(
        epsilon=stated, delta=spec.delta, accountant=spec.accountant, adjacency=spec.adjacency, sigma=sigma,
        plan=releases, independent=independent, rng="secure" if spec.secure_rng else "research",
    )  # fmt: skip
