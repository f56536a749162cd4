"""What a learner answers before it fits: its settings as numbers, and its plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dpbench.api import Budget, Learner, Planned, Task
from dpbench.errors import PlanError
from dpbench.privacy.core.plan import check_plan
from dpbench.support.plugin_calls import call_plugin

Who = Callable[[str], str]
"""Names a learner, what it is asked to do, and who brought it: for messages about its failures."""


def settle(learner: Learner, who: Who, task: Task, budget: Budget) -> Learner:
    """Return the learner with every setting that it leaves to the budget as a number.

    Raises:
        DpbenchError: the learner fails, or refuses the task.
    """
    return call_plugin(who("settle"), learner.settle, task, budget)


def common_plan(learners: Sequence[Learner], who: Who, task: Task, budget: Budget) -> tuple[Planned, ...]:
    """Return the plan of all of these, which differ in their settings alone.

    Raises:
        PlanError: plans differ: one sigma could not keep the promise for all of them.
        DpbenchError: as `plan_of` does.
    """
    plans = {plan_of(one, who, task, budget) for one in learners}
    if len(plans) > 1:
        raise PlanError(
            f"Private selection needs one plan for all settings of learner {learners[0].name!r}, got {len(plans)} "
            "different ones. Set steps and sample rate by hand, like --learner pillar:steps=60."
        )
    return plans.pop()


def plan_of(learner: Learner, who: Who, task: Task, budget: Budget) -> tuple[Planned, ...]:
    """Ask a learner for its plan.

    Raises:
        PrivacyError: the plan is malformed.
        DpbenchError: the learner fails, or refuses the task.
    """
    return check_plan(call_plugin(who("plan"), learner.plan, task, budget), f"learner {learner.name!r}")
