"""No stated epsilon is below what a plan costs, and none is more than 3% above what can be shown."""

from __future__ import annotations

import json

import pytest

from tests.helpers.accounts import LARGEST_EXCESS, PLANS, RECORD, AccountedPlan, AccountRow


def recorded() -> list[AccountRow]:
    return [AccountRow(**row) for row in json.loads(RECORD.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    "plan", [pytest.param(plan, id=plan.name, marks=() if plan.quick else pytest.mark.slow) for plan in PLANS]
)
def test_epsilon_is_between_independent_bounds(plan: AccountedPlan) -> None:
    lower, upper = plan.bounds()
    assert lower <= plan.stated
    assert plan.stated <= LARGEST_EXCESS * upper
    (row,) = [row for row in recorded() if row.name == plan.name]
    assert (row.stated, row.lower, row.upper) == pytest.approx((plan.stated, lower, upper), rel=1e-5)


def test_the_table_has_every_plan_and_holds() -> None:
    rows = recorded()
    assert [row.name for row in rows] == [plan.name for plan in PLANS]
    assert len(rows) >= 40
    for row in rows:
        assert row.lower <= row.stated, row.name
        assert row.stated <= LARGEST_EXCESS * row.upper, row.name
