"""Forty plans: the stated epsilon, the second opinion, and bounds by code of the tests' own.

`python -m tests.helpers.accounts` computes all of them again and writes `accounts.json`; it takes minutes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from dpbench.api import Choice, Release
from dpbench.privacy.core.accounting import group, private_search
from dpbench.privacy.core.accounting.crosscheck import EpsilonInterval, cross_check
from dpbench.privacy.core.accounting.private_search import RunCountDistribution
from dpbench.privacy.core.plan import Planned
from tests.helpers import independent_accounts as independent
from tests.helpers.independent_accounts import Bounds

RECORD = Path(__file__).with_name("accounts.json")
LARGEST_EXCESS = 1.03


@dataclass(frozen=True)
class AccountRow:
    """One plan and what is said of its epsilon; `second` is empty where nothing gives a second opinion."""

    name: str
    delta: float
    stated: float
    second: str
    lower: float
    upper: float


@dataclass(frozen=True)
class AccountedPlan:
    """A plan with its sigma. `rows` rows belong to one person, and the best of `repeats` runs is kept."""

    name: str
    plan: Sequence[Planned]
    sigma: float
    delta: float = 1e-5
    rows: int = 1
    repeats: RunCountDistribution | None = None
    quick: bool = False

    def row(self) -> AccountRow:
        """Compute the row of the record."""
        lower, upper = self.bounds()
        return AccountRow(self.name, self.delta, self.stated, self.second_opinion(), lower, upper)

    @cached_property
    def stated(self) -> float:
        """The epsilon that dpbench states."""
        if self.repeats:
            return private_search.epsilon(self.plan, self.sigma, self.delta, self.repeats, self.rows)
        return group.epsilon(self.plan, self.sigma, self.delta, self.rows)

    def second_opinion(self) -> str:
        """Return the account of an independent library, as text."""
        if self.rows > 1:
            return ""
        if self.repeats:
            account = private_search.cross_check(self.plan, self.sigma, self.delta, self.repeats, self.stated)
        else:
            account = cross_check(self.plan, self.sigma, self.delta, "pld", self.stated)
        return _format_account(account)

    def bounds(self) -> Bounds:
        """Return independent bounds on epsilon from below and above."""
        sums = [use for use in self.plan if isinstance(use, Release)]
        picks = [use for use in self.plan if isinstance(use, Choice)]
        noises = [self.sigma * use.relative_noise / self.rows for use in sums if use.sample_rate == 1]
        steps = [use.steps for use in sums if use.sample_rate == 1]
        mu = math.sqrt(sum(count / noise**2 for noise, count in zip(noises, steps, strict=True)))
        if self.repeats:
            law = (mu, self.repeats.mean, self.repeats.shape, self.delta)
            return independent.search_below(*law), independent.search_above(*law)
        if picks:
            (noise,) = {self.sigma * use.relative_noise / self.rows for use in picks}
            return independent.choices(2 / noise, sum(use.steps for use in picks), mu, self.delta)
        if len(steps) == len(sums):
            exact = independent.solve(lambda e: independent.gaussian_delta(e, mu), self.delta, 60 * mu + mu * mu)
            return exact * (1 - 1e-9), exact * (1 + 1e-9)
        sampled = [
            independent.Step(self.sigma * use.relative_noise, use.sample_rate, self.rows, use.steps)
            for use in sums
            if use.sample_rate < 1
        ]
        return independent.compose([*sampled, *([independent.Step(1 / mu)] if mu else [])], self.delta, self.stated)


def _sampled(rate: float, steps: int, relative: float = 1.0) -> Release:
    return Release(f"sampled at {rate:g}", steps, rate, relative)


def _choices(count: int) -> Choice:
    return Choice("choices", 10, steps=count)


PLANS = (
    AccountedPlan("one sum", [Release("sum")], 3.731, quick=True),
    AccountedPlan("one sum, little noise", [Release("sum")], 0.6, quick=True),
    AccountedPlan("one sum, next to no noise", [Release("sum")], 0.1),
    AccountedPlan("one sum, a lot of noise", [Release("sum")], 300.0, quick=True),
    AccountedPlan("one sum, tiny δ", [Release("sum")], 5.0, 1e-10, quick=True),
    AccountedPlan("one sum, large δ", [Release("sum")], 2.0, 1e-3),
    AccountedPlan("100 sums", [Release("sum", 100)], 37.31, quick=True),
    AccountedPlan("two sums of different noise", [Release("a", 4), Release("b", 1, 1.0, 0.5)], 6.0),
    AccountedPlan("one sampled sum", [_sampled(0.1, 1)], 1.0, quick=True),
    AccountedPlan("one sum, sampled rarely", [_sampled(0.001, 1)], 0.7),
    AccountedPlan("two sampled sums", [_sampled(0.1, 2)], 1.0),
    AccountedPlan("DP-SGD, 3 epochs", [_sampled(0.02, 150)], 1.0),
    AccountedPlan("DP-SGD, 4,096 of 50,000", [_sampled(4096 / 50_000, 875)], 9.3),
    AccountedPlan("DP-SGD, 1,024 of 45,000", [_sampled(1024 / 45_000, 1000)], 22.2),
    AccountedPlan("DP-SGD, 1,024 of 45,000, ε 1", [_sampled(1024 / 45_000, 1000)], 3.835),
    AccountedPlan("DP-SGD, 2,250 steps", [_sampled(0.04, 2250)], 1.5),
    AccountedPlan("DP-SGD, little noise", [_sampled(0.01, 1000)], 0.6),
    AccountedPlan("half of the rows", [_sampled(0.5, 20)], 8.0, quick=True),
    AccountedPlan("nine of ten rows", [_sampled(0.9, 10)], 5.0),
    AccountedPlan("10,000 steps", [_sampled(0.005, 10_000)], 2.0),
    AccountedPlan("100,000 steps", [_sampled(0.001, 100_000)], 20.0),
    AccountedPlan("DP-SGD, tiny δ", [_sampled(0.02, 300)], 2.0, 1e-9),
    AccountedPlan("a mean, then DP-SGD", [Release("mean", 1, 1.0, 4.0), _sampled(0.08, 875)], 9.3),
    AccountedPlan("two rates", [_sampled(0.05, 200), _sampled(0.01, 300, 0.7)], 2.5),
    AccountedPlan("group of 8 in one sum", [Release("sum")], 30.0, rows=8, quick=True),
    AccountedPlan("group of 2 in DP-SGD", [_sampled(0.02, 200)], 1.5, rows=2),
    AccountedPlan("group of 6 in DP-SGD", [_sampled(0.02, 200)], 1.5, rows=6),
    AccountedPlan("group of 20 in DP-SGD", [_sampled(0.02, 200)], 5.0, rows=20),
    AccountedPlan("group of 3, a mean and DP-SGD", [Release("mean", 1, 1.0, 4.0), _sampled(0.1, 50)], 6.0, rows=3),
    AccountedPlan("2 choices", [_choices(2)], 4.0, quick=True),
    AccountedPlan("5 choices", [_choices(5)], 4.0, quick=True),
    AccountedPlan("20 choices", [_choices(20)], 20.0, quick=True),
    AccountedPlan("20 choices, little noise", [_choices(20)], 2.0),
    AccountedPlan("150 choices, in two blocks", [_choices(150)], 40.0),
    AccountedPlan("20 choices of 20 releases", [Choice(f"choice {i}", 4 + i) for i in range(20)], 20.0),
    AccountedPlan("one choice and one sum", [_choices(1), Release("sum")], 4.0, quick=True),
    AccountedPlan("20 choices and 4 sums", [_choices(20), Release("sum", 4)], 20.0),
    AccountedPlan("group of 2, 5 choices", [_choices(5)], 12.0, rows=2),
    AccountedPlan("best of 10 runs (geometric)", [Release("sum")], 6.0, repeats=RunCountDistribution(10.0)),
    AccountedPlan("best of 5 runs (shape 2)", [Release("sum")], 6.0, repeats=RunCountDistribution(5.0, 2.0)),
)


def _format_account(account: EpsilonInterval) -> str:
    return f"{account.lower:.4g} to {account.upper:.4g}" if account.lower else f"at most {account.upper:.4g}"


if __name__ == "__main__":
    RECORD.write_text(json.dumps([asdict(plan.row()) for plan in PLANS], indent=1) + "\n", encoding="utf-8")
