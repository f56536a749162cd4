"""What a plan must be, and the ledger that holds a fit to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, TypeVar

from dpbench.api import Budget, Choice, Planned, Release, Task
from dpbench.errors import NotPlanned, PlanError, SpecError
from dpbench.support.messages import duration

MOST_STEPS = 1_000_000  # more is a slip: it would run for hours, and accountants for minutes

P = TypeVar("P", bound=Planned)

MOST_CANDIDATES = 2**22  # of a choice, over all parts
_NUMBERS = (("steps", "sample_rate", "relative_noise"), ("candidates", "parts", "steps", "relative_noise"))


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


def check_plan(plan: Sequence[P], who: str) -> tuple[P, ...]:
    """Return the plan as a tuple of Python's own numbers, or refuse it. An empty one reads no private data: epsilon 0.

    Args:
        plan: whatever a learner's `plan` returned.
        who: whose it is, as in `learner 'dp-sgd'`.

    Raises:
        PlanError: it is no plan, or says which field of which release of whom is wrong.
    """
    if not isinstance(plan, Sequence):
        raise PlanError(f"Expected a list of Release and Choice as the plan of {who}, got a {type(plan).__name__}.")
    return _checked([_in_numbers(release, who) for release in plan], who)


def _in_numbers(release: P, who: str) -> P:
    """Return a release whose numbers are Python's own: those of numpy are written otherwise."""
    if not isinstance(release, (Release, Choice)):
        raise PlanError(f"Expected Release or Choice in the plan of {who}, got a {type(release).__name__}.")
    if not isinstance(release.name, str):
        raise PlanError(f"Expected name={release.name!r} of a release of {who} to be text.")
    numbers: dict[str, Any] = {}
    for field in _NUMBERS[isinstance(release, Choice)]:
        if not isinstance(value := getattr(release, field), Real) or isinstance(value, bool):
            raise PlanError(
                f"Expected {field} to be one number in release {release.name!r} of {who}, got a {type(value).__name__}."
            )
        numbers[field] = int(value) if isinstance(value, Integral) else float(value)
    return replace(release, **numbers)


def _checked(plan: Sequence[P], who: str) -> tuple[P, ...]:
    seen: set[str] = set()
    for release in plan:
        where = f"in release {release.name!r} of {who}"
        if release.name in seen:
            raise PlanError(f"Expected unique names, got a second one {where}.")
        seen.add(release.name)
        if not (release.steps >= 1 and release.steps % 1 == 0):  # neither holds of nan, nor the second of inf
            raise PlanError(f"Expected steps={release.steps} to be a whole number >= 1 {where}.")
        if isinstance(release, Choice):
            _check_candidates(release, where)
        elif not 0 < release.sample_rate <= 1:
            raise PlanError(
                f"Expected sample_rate={release.sample_rate} in (0, 1] {where}. "
                "A rate is a chance per example, not a batch size."
            )
        if not 0 < release.relative_noise < math.inf:
            raise PlanError(f"Expected relative_noise={release.relative_noise} to be positive and finite {where}.")
    total = sum(release.steps for release in plan)
    if total > MOST_STEPS:
        raise PlanError(
            f"Expected a plan of at most {MOST_STEPS:,} steps, got {total:,} of {who}: at a millisecond each "
            f"that is {duration(total / 1000)} for one seed. Use fewer steps, or larger samples."
        )
    return tuple(plan)


def _check_candidates(choice: Choice, where: str) -> None:
    counts = {"candidates": (choice.candidates, 2), "parts": (choice.parts, 1)}
    for field, (count, least) in counts.items():
        if not (count >= least and count % 1 == 0):
            raise PlanError(f"Expected {field}={count} to be a whole number >= {least} {where}.")
    if choice.candidates * choice.parts > MOST_CANDIDATES:
        raise PlanError(
            f"Expected at most {MOST_CANDIDATES:,} candidates over all parts {where}, got "
            f"{choice.candidates * choice.parts:,}: each has a total that is held. Cover the class with fewer."
        )


def sigmas(plan: Sequence[Planned], sigma: float) -> dict[str, float]:
    """Return the noise multiplier of each release: the plan's base sigma times the release's relative noise."""
    return {release.name: sigma * release.relative_noise for release in plan}


def eps0_of(sigma: float) -> float:
    """Return the eps0 of a choice with this noise multiplier: eps0^2 / 8 is the zCDP of a Gaussian release with it."""
    return 2 / sigma


class Ledger:
    """Counts the steps spent of each planned release; spending past the plan is refused."""

    def __init__(self, plan: Sequence[Planned]) -> None:
        self._plan = {release.name: release for release in plan}
        self._spent = dict.fromkeys(self._plan, 0)

    @property
    def spent(self) -> Mapping[str, int]:
        """Steps spent so far, by release."""
        return dict(self._spent)

    def spend(self, name: str) -> Release:
        """Spend one step of a release of sums and return the release.

        Raises:
            NotPlanned: no such release, none of its steps is left, or it is a choice.
        """
        release = self.planned(name)
        if isinstance(release, Choice):
            raise NotPlanned(f"Release {name!r} is planned as a Choice. Ask noisy_choice, or plan a Release.")
        self._spend(release)
        return release

    def spend_choice(self, name: str) -> Choice:
        """Spend one step of a choice and return it.

        Raises:
            NotPlanned: no such release, none of its steps is left, or it is one of sums.
        """
        release = self.planned(name)
        if not isinstance(release, Choice):
            raise NotPlanned(f"Release {name!r} is planned as a Release. Ask noisy_sum, or plan a Choice.")
        self._spend(release)
        return release

    def planned(self, name: str) -> Planned:
        """Return a release of the plan.

        Raises:
            NotPlanned: there is none of this name.
        """
        release = self._plan.get(name)
        if release is None:
            raise NotPlanned(f"Release {name!r} is not in the plan, which has: {', '.join(self._plan)}.")
        return release

    def _spend(self, release: Planned) -> None:
        if self._spent[release.name] >= release.steps:
            raise NotPlanned(
                f"All {release.steps} planned steps of release {release.name!r} are spent. Plan more steps; sigma "
                "follows."
            )
        self._spent[release.name] += 1
