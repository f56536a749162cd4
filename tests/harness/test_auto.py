"""Settings that are left to the budget: settled before the plan is made, on record, and taken from there again."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import torch
from dp_accounting import get_epsilon_gaussian

from dpbench import (
    Budget,
    Chunk,
    Curator,
    Learner,
    Predict,
    PublicData,
    RankOne,
    Release,
    SpecError,
    Task,
    gaussian_sigma,
    require_setting,
)
from dpbench.board.verify.declarations import check_settings_selection
from dpbench.board.verify.plan_check import check_learner_plan, find_defaults_version
from dpbench.board.verify.rerun_record import rerun_seeds
from dpbench.errors import ComponentFailed, DataError, DpbenchError
from dpbench.records.result import Result
from dpbench.records.spec import make_spec
from dpbench.registry import Registration, Registry, load
from tests.helpers.commands import Output, call
from tests.helpers.sessions import session

pytestmark = pytest.mark.usefixtures("telling")
TASK = Task((64,), 10, 1000, torch.device("cpu"), public=100)


@dataclass(frozen=True)
class Adaptive(Learner):
    """Class sums of as many features, in as many steps, as the budget carries."""

    name: ClassVar[str] = "adaptive"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "unlabelled"

    steps: int | None = None
    k: int | None = None

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        steps = self.steps or max(1, round(budget.epsilon))
        return {"steps": steps, "k": min(8 * steps, task.public, task.example_shape[0])}

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("sum", require_setting(self.steps))]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        k = require_setting(self.k)

        def rows(chunk: Chunk) -> RankOne:
            return RankOne(torch.eye(10)[chunk.y], chunk.x[:, :k] - 0.5)

        asked = [curator.noisy_sum(rows, release="sum", clip=1.0) for _ in range(require_setting(self.steps))]
        total = torch.stack(asked).sum(0)
        return lambda x: (x[:, :k] - 0.5) @ total.T


def registry(learner: type[Learner] = Adaptive) -> Registry:
    installed = load().components
    brought = {**installed["learner"], learner.name: Registration(learner, "tiny-plugin", "tiny-wheel", "0.1")}
    return Registry({**installed, "learner": brought})


def ran(options: str = "", learner: type[Learner] = Adaptive, **values: Any) -> Result:
    values = {"learner": f"{learner.name}:{options}", "seeds": 1, **values}
    return session(registry(learner)).run(make_spec(values, "the test"))


def test_what_the_budget_settles_is_planned_and_on_record() -> None:
    small, large = ran(epsilon=2), ran(epsilon=7)
    assert small.settled == {"steps": 2, "k": 16}
    assert large.settled == {"steps": 7, "k": 56}
    assert [result.privacy.plan[0].steps for result in (small, large)] == [2, 7]
    assert [result.selection for result in (small, large)] == ["default", "default"]
    assert small.spec.learner.options == {"steps": None, "k": None}


def test_what_somebody_set_wins_and_the_rest_follows_it() -> None:
    result = ran("steps=3", epsilon=2)
    assert result.settled == {"k": 24}
    assert (result.selection, result.privacy.plan[0].steps) == ("by-hand", 3)


def test_the_word_auto_leaves_a_setting_to_the_budget() -> None:
    assert ran("steps=auto,k=none", epsilon=2).digest == ran(epsilon=2).digest


def test_the_same_numbers_give_the_same_fit_whether_given_or_settled() -> None:
    auto, given = ran(epsilon=2), ran("steps=2,k=16", epsilon=2)
    assert auto.seeds == given.seeds
    assert (given.settled, given.selection) == ({}, "by-hand")
    assert auto.digest != given.digest  # a digest names the question, which a sweep has to know before it reads data


def test_settled_numbers_follow_public_numbers_alone() -> None:
    assert Adaptive().settle(TASK, Budget(20, 1e-5)) == Adaptive(20, 64)
    assert Adaptive().settle(dataclasses.replace(TASK, public=30), Budget(20, 1e-5)) == Adaptive(20, 30)


@dataclass(frozen=True)
class Later(Adaptive):
    """The same learner after its rules have changed."""

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        return {"steps": 9, "k": 3}


def test_a_rerun_takes_the_numbers_of_the_result_and_refuses_those_that_did_not_follow_from_the_budget() -> None:
    result = ran(epsilon=2)
    assert rerun_seeds(result, None, session(registry())).outcome == "same predictions"
    with pytest.raises(DataError, match=r"chooses .* here, but .* The stated settings do not follow from the budget"):
        rerun_seeds(result, None, session(registry(Later)))


@dataclass(frozen=True)
class Remembering(Later):
    """The same learner, which knows its earlier rules."""

    def earlier_auto(self, task: Task, budget: Budget) -> Mapping[str, Mapping[str, Any]]:
        return {"0.0.9": Adaptive.auto(self, task, budget)}


def test_results_by_a_learners_earlier_rules_are_checked_and_run_again_by_them() -> None:
    result, today = ran(epsilon=2), registry(Remembering)
    assert rerun_seeds(result, None, session(today)).outcome == "same predictions"
    assert [*check_learner_plan(result, today)] == []
    forged = result.model_copy(update={"settled": {"steps": 2, "k": 17}})
    assert [field for field, _ in check_learner_plan(forged, today)] == ["settled.steps", "settled.k", "privacy.plan"]
    with pytest.raises(DataError, match="The stated settings do not follow from the budget"):
        rerun_seeds(forged, None, session(today))
    assert [find_defaults_version(result, plugins) for plugins in (today, registry(), load())] == ["0.0.9", "", ""]


def test_defaults_are_of_the_version_whose_rule_chose_them_and_not_of_the_version_that_ran() -> None:
    today, now, earlier = registry(Remembering), ran(epsilon=2, learner=Remembering), ran(epsilon=2)
    assert earlier.components["learner"].version == now.components["learner"].version == "0.1"
    assert [find_defaults_version(result, today) for result in (now, earlier)] == ["", "0.0.9"]
    unknown = now.model_copy(update={"settled": {"steps": 2, "k": 17}})
    assert find_defaults_version(unknown, today) == "0.1", "by no rule that is known here"


def test_a_result_that_calls_settled_what_its_learner_needs_given_is_refused_in_a_sentence() -> None:
    result = session().run(make_spec({"learner": "thrift:k=4", "seeds": 1}, "the test"))
    forged = result.model_copy(update={"settled": {**result.settled, "clip": 0.5}})
    with pytest.raises(DpbenchError, match="clip=None to be a number"):
        rerun_seeds(forged, None, session(load()))


@pytest.mark.slow
def test_every_setting_of_a_search_is_settled_on_its_own() -> None:
    values = {
        "learner": "adaptive", "epsilon": 2, "seeds": 1, "public_labels": True, "search": {"space": {"steps": (1, 4)}}
    }  # fmt: skip
    result = session(registry()).run(make_spec(values, "the test"))
    assert result.search is not None and result.search.chosen is not None
    steps = result.search.chosen["steps"]
    assert result.settled == {"k": 8 * steps}
    assert rerun_seeds(result, None, session(registry())).outcome == "same predictions"


@pytest.mark.slow
def test_a_space_may_leave_a_setting_to_the_budget() -> None:
    values = {"learner": "adaptive", "epsilon": 2, "seeds": 1, "search": {"space": {"steps": ("auto",)}}}
    result = session(registry()).run(make_spec(values, "the test"))
    assert result.settled == {"steps": 2, "k": 16}
    assert rerun_seeds(result, None, session(registry())).outcome == "same predictions"
    assert session(registry()).tune(make_spec(values, "the test")).selection.chosen == {"steps": None}


def test_a_private_search_records_what_each_seeds_winner_had() -> None:
    search = {"rule": "private-accounted", "space": {"k": ("auto", 5)}, "repeats": 3}
    values = {"learner": "adaptive", "epsilon": 2, "seeds": 2, "accountant": "rdp", "search": search}
    result = session(registry()).run(make_spec(values, "the test"))
    assert result.settled == {}
    assert all(seed.setting in ({"steps": 2, "k": 16}, {"steps": 2, "k": 5}) for seed in result.seeds)


def test_numbers_said_to_be_settled_that_were_given_are_met() -> None:
    honest = ran("steps=3", epsilon=2)
    assert "settled" not in str(list(check_settings_selection(honest)))
    forged = honest.model_copy(update={"settled": {"steps": 3, "unknown": 1}})
    assert [field for field, _ in check_settings_selection(forged)] == ["settled.steps", "settled.unknown"]


@dataclass(frozen=True)
class Broken(Adaptive):
    """Names a setting that it does not have."""

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        return {"stepz": 9}


def test_a_rule_for_a_setting_that_is_none_of_the_learners_is_refused_by_name() -> None:
    with pytest.raises(ComponentFailed, match="settle of 'adaptive'"):
        ran(learner=Broken)


def test_a_learner_that_was_not_settled_says_so() -> None:
    with pytest.raises(SpecError, match=r"Call learner\.settle"):
        Adaptive().plan(TASK, Budget(1, 1e-5))


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 8.0])
def test_one_release_with_this_sigma_spends_the_budget(epsilon: float) -> None:
    assert get_epsilon_gaussian(gaussian_sigma(Budget(epsilon, 1e-5)), 1e-5) == pytest.approx(epsilon, rel=1e-6)


def test_one_release_without_privacy_has_no_noise_and_no_budget_is_refused() -> None:
    assert gaussian_sigma(Budget(math.inf, 1e-5)) == 0
    with pytest.raises(SpecError, match="epsilon=0"):
        gaussian_sigma(Budget(0, 1e-5))


def test_a_run_prints_what_the_budget_settled(tmp_path: Path, capsys: Output) -> None:
    assert call("run", "--learner", "whitened", "--seeds", "1", "--out", str(tmp_path)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"settings steps=\d+, .*learning_rate=\S+, .*k=36.*steps, learning_rate, k from n, ε and δ\)", shown
    )
