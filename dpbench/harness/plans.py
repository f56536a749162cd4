"""Ask a learner for its settings and its plan before it fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dpbench.api import Budget, Learner, Planned, Task
from dpbench.errors import PlanError
from dpbench.privacy.core.plan import check_plan
from dpbench.records.tolerance import agree_up_to_rounding
from dpbench.support.plugin_calls import call_plugin

Describer = Callable[[str], str]
"""Describes a learner's call for error messages: the method, the learner and the plugin that provides it."""


def settle_learner(learner: Learner, describe_call: Describer, task: Task, budget: Budget) -> Learner:
    """Return the learner with a value for every setting that was left open.

    Raises:
        DpbenchError: the learner fails, or refuses the task.
    """
    return call_plugin(describe_call("settle"), learner.settle, task, budget)


def settle_by_stated_rule(
    learner: Learner, stated_settings: Mapping[str, Any], describe_call: Describer, task: Task, budget: Budget
) -> Learner:
    """Choose the learner's open settings by the rule of the version that chooses the stated settings.

    This is the installed version or an earlier one. If no version chooses them, the installed version's rule applies.

    Raises:
        DpbenchError: the learner fails, or refuses the task.
    """
    found = find_rule_of_stated_settings(learner, stated_settings, describe_call, task, budget)
    return found[1] if found else settle_learner(learner, describe_call, task, budget)


def find_rule_of_stated_settings(
    learner: Learner, stated_settings: Mapping[str, Any], describe_call: Describer, task: Task, budget: Budget
) -> tuple[str, Learner] | None:
    """Return the version whose rule chooses the stated settings, and the learner with these settings.

    The version is empty if it is the installed one. Return None if no version chooses the stated settings.

    Raises:
        DpbenchError: the learner fails, or refuses the task.
    """
    for version, settled in _settle_by_each_rule(learner, describe_call, task, budget):
        if all(agree_up_to_rounding(getattr(settled, name), value) for name, value in stated_settings.items()):
            return version, settled
    return None


def _settle_by_each_rule(
    learner: Learner, describe_call: Describer, task: Task, budget: Budget
) -> Iterator[tuple[str, Learner]]:
    yield "", settle_learner(learner, describe_call, task, budget)
    yield from call_plugin(describe_call("earlier_auto"), learner.settle_earlier, task, budget).items()


def find_common_plan(
    learners: Sequence[Learner], describe_call: Describer, task: Task, budget: Budget
) -> tuple[Planned, ...]:
    """Return the plan that these learners share; they differ only in their settings.

    Raises:
        PlanError: the plans differ, so that one sigma could not keep the guarantee for all of them.
        DpbenchError: as for `ask_learner_for_plan`.
    """
    plans = {ask_learner_for_plan(learner, describe_call, task, budget) for learner in learners}
    if len(plans) > 1:
        raise PlanError(
            f"Private selection needs one plan for all settings of learner {learners[0].name!r}, got {len(plans)} "
            "different ones. Set steps and sample rate by hand, like --learner pillar:steps=60."
        )
    return plans.pop()


def ask_learner_for_plan(learner: Learner, describe_call: Describer, task: Task, budget: Budget) -> tuple[Planned, ...]:
    """Ask a learner for its plan and check the plan.

    Raises:
        PrivacyError: the plan is malformed.
        DpbenchError: the learner fails, or refuses the task.
    """
    return check_plan(call_plugin(describe_call("plan"), learner.plan, task, budget), f"learner {learner.name!r}")
