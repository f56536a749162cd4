"""A plan that is malformed, or a budget that guarantees nothing, is refused; the ledger holds a fit to its plan."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from dpbench.api import Budget, Choice, Release, Task
from dpbench.errors import NotPlanned, PlanError, SpecError
from dpbench.privacy.core.accounting.accountant import calibrate, epsilon
from dpbench.privacy.core.accounting.crosscheck import cross_check
from dpbench.privacy.core.plan import Ledger, check_budget, check_plan

TASK = Task((2,), 2, 1000, torch.device("cpu"))


@pytest.mark.parametrize(
    ("release", "said"),
    [
        (Release("grad", sample_rate=1.5), "not a batch size"),
        (Release("grad", sample_rate=0.0), "sample_rate=0.0"),
        (Release("grad", sample_rate=math.nan), "sample_rate=nan"),
        (Release("grad", steps=0), "steps=0"),
        (Release("grad", steps=1.5), "steps=1.5"),  # type: ignore[arg-type]
        (Release("grad", sample_rate=[0.1, 0.9]), "one number"),  # type: ignore[arg-type]
        (Release("grad", steps=True), "one number"),
        (Release("grad", steps="3"), "one number"),  # type: ignore[arg-type]
        (Release("grad", steps=math.nan), "steps=nan to be a whole number"),  # type: ignore[arg-type]
        (Release("grad", steps=math.inf), "steps=inf to be a whole number"),  # type: ignore[arg-type]
        (Choice("grad", math.nan), "candidates=nan to be a whole number"),  # type: ignore[arg-type]
        (Choice("grad", 2, parts=math.inf), "parts=inf to be a whole number"),  # type: ignore[arg-type]
        (Release("grad", relative_noise=0.0), "relative_noise=0.0"),
        (Release("grad", relative_noise=math.inf), "relative_noise=inf"),
    ],
)
def test_a_malformed_release_is_refused_with_its_owner_named(release: Release, said: str) -> None:
    with pytest.raises(PlanError, match="release 'grad' of learner 'dp-sgd'") as refusal:
        check_plan([release], "learner 'dp-sgd'")
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (None, "a list of Release and Choice as the plan of learner 'dp-sgd', got a NoneType"),
        (Release("grad"), "a list of Release and Choice as the plan of learner 'dp-sgd', got a Release"),
        ((Release(name) for name in "ab"), "as the plan of learner 'dp-sgd', got a generator"),
        ([3], "Release or Choice in the plan of learner 'dp-sgd', got a int"),
        ([Release(3)], "name=3 of a release of learner 'dp-sgd' to be text"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_plan_is_refused_with_its_owner_named(plan: Any, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        check_plan(plan, "learner 'dp-sgd'")


def test_numbers_of_numpy_are_taken_for_what_they_are() -> None:
    numbers: dict[str, Any] = {"steps": np.int64(3), "sample_rate": np.float32(0.5), "relative_noise": np.float64(2)}
    plan = check_plan([Release("grad", **numbers)], "learner 'dp-sgd'")
    assert plan == (Release("grad", 3, 0.5, 2.0),)
    assert [type(getattr(plan[0], name)) for name in numbers] == [int, float, float]


def test_an_empty_plan_reads_nothing_and_costs_nothing() -> None:
    assert check_plan([], "public-only") == ()
    assert epsilon((), 0.0, 1e-5) == 0
    assert calibrate((), Budget(1.0, 1e-5)) == 0
    assert cross_check((), 0.0, 1e-5, "pld", 0.0).upper == 0


def test_two_releases_of_one_name_are_refused() -> None:
    with pytest.raises(PlanError, match="unique"):
        check_plan([Release("grad"), Release("grad")], "learner 'dp-sgd'")


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_an_epsilon_that_is_not_positive_is_refused(epsilon: float) -> None:
    with pytest.raises(SpecError, match="epsilon"):
        check_budget(Budget(epsilon, 1e-5), TASK)


@pytest.mark.parametrize("delta", [0.0, 1.1e-3, 0.5, math.nan])
def test_a_delta_of_one_in_n_or_more_and_above_a_thousandth_is_refused(delta: float) -> None:
    with pytest.raises(SpecError, match="1/n"):
        check_budget(Budget(1.0, delta), TASK)


def test_a_delta_just_below_one_in_n_is_allowed() -> None:
    check_budget(Budget(1.0, 0.99e-3), TASK)


def test_spending_past_the_plan_is_refused_and_not_counted() -> None:
    ledger = Ledger([Release("grad", steps=2)])
    ledger.spend("grad", Release)
    ledger.spend("grad", Release)
    with pytest.raises(NotPlanned, match="All 2 planned steps"):
        ledger.spend("grad", Release)
    assert ledger.spent == {"grad": 2}


def test_spending_what_was_not_planned_is_refused_and_names_the_plan() -> None:
    with pytest.raises(NotPlanned, match="'mean' is not in the plan, which has: grad"):
        Ledger([Release("grad")]).spend("mean", Release)
