"""What a plan must be, and the ledger that holds a fit to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from dpbench.api import Budget, Release, Task
from dpbench.errors import NotPlanned, PlanError, SpecError


def check_budget(budget: Budget, task: Task) -> None:
    """Refuse a budget that guarantees nothing.

    Raises:
        SpecError: epsilon not positive, or delta outside (0, 1/n): at 1/n, publishing a random row would be allowed.
    """
    if not budget.epsilon > 0:
        raise SpecError(f"Expected epsilon={budget.epsilon} > 0. Use epsilon=inf for a run without privacy.")
    if not 0 < budget.delta < 1 / task.size:
        raise SpecError(
            f"Expected delta={budget.delta:g} in (0, 1/n) with n={task.size} private examples, that is below "
            f"{1 / task.size:.3g}. A larger delta would allow publishing someone's data outright."
        )


def check_plan(plan: Sequence[Release], learner: str) -> tuple[Release, ...]:
    """Return the plan as a tuple, or refuse it. An empty plan is one that reads no private data: its epsilon is 0.

    Raises:
        PlanError: says which field of which release of which learner is wrong.
    """
    seen: set[str] = set()
    for release in plan:
        where = f"in release {release.name!r} of learner {learner!r}"
        if release.name in seen:
            raise PlanError(f"Expected unique names, got a second one {where}.")
        seen.add(release.name)
        for field in ("steps", "sample_rate", "relative_noise"):
            if not isinstance(value := getattr(release, field), (int, float)) or isinstance(value, bool):
                raise PlanError(f"Expected {field} to be one number {where}, got a {type(value).__name__}.")
        if release.steps < 1 or release.steps != int(release.steps):
            raise PlanError(f"Expected steps={release.steps} to be a whole number >= 1 {where}.")
        if not 0 < release.sample_rate <= 1:
            raise PlanError(
                f"Expected sample_rate={release.sample_rate} in (0, 1] {where}. "
                "A rate is a chance per example, not a batch size."
            )
        if not (release.relative_noise > 0 and math.isfinite(release.relative_noise)):
            raise PlanError(f"Expected relative_noise={release.relative_noise} to be positive and finite {where}.")
    return tuple(plan)


class Planned(Protocol):
    """What the ledger and the noise follow of a release: a learner's `Release`, or one that a result states."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def steps(self) -> int:
        """How many sums it may give."""

    @property
    def sample_rate(self) -> float:
        """The chance, per example and step, of being sampled."""

    @property
    def relative_noise(self) -> float:
        """Its noise multiplier divided by the plan's base sigma."""


def sigmas(plan: Sequence[Planned], sigma: float) -> dict[str, float]:
    """Return the noise multiplier of each release: the plan's base sigma times the release's relative noise."""
    return {release.name: sigma * release.relative_noise for release in plan}


class Ledger:
    """Counts the steps spent of each planned release; spending past the plan is refused."""

    def __init__(self, plan: Sequence[Planned]) -> None:
        self._plan = {release.name: release for release in plan}
        self._spent = dict.fromkeys(self._plan, 0)

    @property
    def spent(self) -> Mapping[str, int]:
        """Steps spent so far, by release."""
        return dict(self._spent)

    def spend(self, name: str) -> Planned:
        """Spend one step of release `name` and return the release.

        Raises:
            NotPlanned: no such release, or none of its steps is left.
        """
        release = self._plan.get(name)
        if release is None:
            raise NotPlanned(f"Release {name!r} is not in the plan, which has: {', '.join(self._plan)}.")
        if self._spent[name] >= release.steps:
            raise NotPlanned(
                f"All {release.steps} planned steps of release {name!r} are spent. Plan more steps; sigma follows."
            )
        self._spent[name] += 1
        return release
