"""Settings that follow the budget: how they move with it, and that the papers' own are one word away."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from dpbench_plugins.extractors.scatternet import ScatterNetLinear
from dpbench_plugins.learners.adadps import AdaDPS
from dpbench_plugins.learners.class_means import ClassMeans
from dpbench_plugins.learners.dp_raft import DPRAFT
from dpbench_plugins.learners.dp_sgd import DPSGD
from dpbench_plugins.learners.gep import GEP
from dpbench_plugins.learners.jl import JL
from dpbench_plugins.learners.pillar import Pillar
from dpbench_plugins.learners.whitened import WhitenedProbe
from hypothesis import given
from hypothesis import strategies as st

from dpbench import Budget, Learner, Task, components, effective_size, pace, travel
from dpbench.errors import SpecError
from dpbench.harness.plans import settle_by_stated_rule
from dpbench.learning.defaults import MAX_EFFECTIVE_SIZE, STEP_LIMITS
from dpbench.records.result import Result
from dpbench.records.spec import make_spec
from dpbench.registry import load
from dpbench.registry.components import find_selection_rule
from tests.cli.test_cli import refusal
from tests.helpers.commands import Output, call
from tests.helpers.sessions import session

LEARNERS = (AdaDPS, ClassMeans, DPRAFT, DPSGD, GEP, JL, Pillar, ScatterNetLinear, WhitenedProbe)
SIZES, EPSILONS = st.integers(1, 10**6), st.floats(1e-3, 1e3) | st.just(math.inf)


def task(size: int, public: int = 5000, features: int = 1280) -> Task:
    return Task((features,), 10, size, torch.device("cpu"), public)


def budget(epsilon: float) -> Budget:
    return Budget(epsilon, 1e-7)


@given(SIZES, SIZES, EPSILONS, EPSILONS, st.integers(0, 10**4), st.integers(1, 4000))
def test_more_examples_and_a_larger_epsilon_never_carry_fewer_dimensions_or_a_shorter_way(
    n: int, more: int, epsilon: float, larger: float, public: int, features: int
) -> None:
    (n, more), (epsilon, larger) = sorted((n, more)), sorted((epsilon, larger))
    small, large = task(n, public, features), task(more, public, features)
    for less, greater in ((budget(epsilon), budget(larger)),):
        assert effective_size(small, less) <= effective_size(large, greater)
        assert travel(small, less) <= travel(large, greater) <= MAX_EFFECTIVE_SIZE * (5 / features) ** 0.5
        assert 1 <= components(small, less) <= components(large, greater) <= min(max(public // 4, 1), features)


@given(
    st.floats(0.01, 500),
    st.floats(1e-3, 1),
    st.floats(0, 0.99),
    st.floats(0.01, 10),
    st.none() | st.integers(1, 999),
)
def test_steps_and_learning_rate_together_go_the_way(
    way: float, sample_rate: float, momentum: float, clip: float, steps: int | None
) -> None:
    found = pace(way, steps=steps, sample_rate=sample_rate, momentum=momentum, clip=clip)
    assert found["learning_rate"] * found["steps"] * clip / (1 - momentum) == pytest.approx(way, rel=0.01)
    if steps is None:
        assert STEP_LIMITS[0] * 0.9 <= found["steps"] * sample_rate <= STEP_LIMITS[1] * 1.1
    else:
        assert found["steps"] == steps


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda item: item.name)
def test_no_setting_is_left_open_that_the_learner_settles_and_what_is_set_is_kept(learner: type[Learner]) -> None:
    numbers = dict(learner().auto(task(3000), budget(0.1)))
    assert numbers
    settled = learner().settle(task(3000), budget(0.1))
    assert {name: getattr(settled, name) for name in numbers} == numbers
    assert settled.settle(task(10**6), budget(8.0)) == settled
    for name, value in numbers.items():
        given: Learner = dataclasses.replace(learner(), **{name: value * 2})  # type: ignore[type-var]
        assert getattr(given.settle(task(3000), budget(0.1)), name) == value * 2


@pytest.mark.parametrize(
    "learner", [learner for learner in LEARNERS if learner is not DPRAFT], ids=lambda learner: learner.name
)
def test_another_budget_settles_for_other_numbers(learner: type[Learner]) -> None:
    assert learner().settle(task(3000), budget(0.1)) != learner().settle(task(3000), budget(1.0))


@pytest.mark.parametrize(
    "learner", [DPSGD(), JL(k=40), Pillar(k=40), GEP(), AdaDPS()], ids=lambda learner: learner.name
)
def test_a_head_on_shorter_rows_moves_further_so_that_its_scores_are_as_large(learner: Any) -> None:
    short, long = (learner.settle(task(3000, features=features), budget(0.1)) for features in (80, 1280))
    assert short.steps == long.steps
    assert short.learning_rate == pytest.approx(4 * long.learning_rate, rel=0.01)


@pytest.mark.parametrize("learner", [DPSGD(scaling="norm"), JL(scaling="norm", k=5)], ids=lambda item: item.name)
def test_a_head_on_rows_of_norm_1_moves_as_far_whatever_the_number_of_features(learner: Any) -> None:
    assert learner.settle(task(3000, features=5), budget(0.1)) == learner.settle(task(3000), budget(0.1))
    assert learner.settle_earlier(task(3000), budget(0.1)) == {}


@pytest.mark.parametrize(
    "learner", [DPSGD(), JL(), Pillar(), GEP(), AdaDPS(), WhitenedProbe()], ids=lambda item: item.name
)
def test_settings_of_version_0_2_are_known_and_are_todays_for_1280_features(learner: Any) -> None:
    assert learner.settle_earlier(task(3000), budget(0.1)) == {"0.2.0": learner.settle(task(3000), budget(0.1))}
    (earlier,) = learner.settle_earlier(task(950, 143, 64), budget(1.0)).values()
    now = learner.settle(task(950, 143, 64), budget(1.0))
    assert earlier.learning_rate < now.learning_rate
    stated = {"learning_rate": earlier.learning_rate, "steps": earlier.steps}
    assert settle_by_stated_rule(learner, stated, str, task(950, 143, 64), budget(1.0)) == earlier
    forged = {"learning_rate": 2 * earlier.learning_rate}
    assert settle_by_stated_rule(learner, forged, str, task(950, 143, 64), budget(1.0)) == now


def test_a_way_that_somebody_shortens_in_steps_is_gone_in_larger_ones() -> None:
    few, many = (DPSGD(steps=steps).settle(task(10_000), budget(1.0)) for steps in (10, 100))
    assert few.learning_rate == pytest.approx(10 * (many.learning_rate or 0), rel=0.01)


def test_dp_rafts_travel_is_that_of_its_table_at_the_tables_size() -> None:
    assert DPRAFT().settle(task(50_000), budget(1.0)) == DPRAFT(**DPRAFT.paper)


@pytest.mark.parametrize("public", [1, 3, 40, 300])
def test_defaults_fit_public_splits_of_any_size(public: int) -> None:
    for learner in (Pillar(), ClassMeans(), WhitenedProbe()):
        assert (learner.settle(task(10**6, public), budget(8.0)).k or 0) <= max(1, public // 4)


def build(text: str, **options: Any) -> Any:
    return load().build("learner", text, options)


@pytest.mark.parametrize(
    "learner", [learner for learner in LEARNERS if learner.paper], ids=lambda learner: learner.name
)
def test_the_papers_own_setting_is_one_word_away(learner: type[Learner]) -> None:
    asked = build(learner.name, **{"": "paper"})
    assert asked == learner(**learner.paper)
    assert find_selection_rule(asked) == "by-hand"


@pytest.mark.parametrize("learner", (AdaDPS, DPSGD, GEP, JL, Pillar), ids=lambda item: item.name)
def test_the_papers_setting_is_one_of_the_papers_grid(learner: type[Learner]) -> None:
    assert all(value in learner.paper_space[name] for name, value in learner.paper.items())


def test_further_options_override_the_papers() -> None:
    assert build("pillar", **{"": "paper", "k": "200"}) == Pillar(**{**Pillar.paper, "k": 200})


def test_a_learner_without_a_paper_says_how_options_are_written(capsys: Output) -> None:
    with pytest.raises(SpecError, match="Expected key=value after learner 'class-means', got 'paper'"):
        build("class-means", **{"": "paper"})
    assert "Expected key=value" in refusal(capsys, "run", "--learner", "pillar:papers")


@pytest.mark.slow
def test_a_run_of_the_papers_setting_has_it_spelled_out_and_a_search_leaves_it_alone() -> None:
    search = {"space": {"k": (5, 10)}}
    values = {"learner": "jl:paper,steps=20", "seeds": 1, "search": search}
    result = session().run(make_spec(values, "the test"))
    spelled = dataclasses.asdict(JL(**{**JL.paper, "steps": 20}))
    del spelled["optimiser"]  # added after results were published: left out at its default
    assert result.spec.learner.options == {**spelled, "k": 40}
    with pytest.raises(SpecError, match="has nothing to search"):
        session().run(make_spec({**values, "search": {"space": "own"}}, "the test"))


def guessing(result: Result) -> list[str]:
    return [remark for remark in result.remarks if "largest class" in remark]


@pytest.mark.slow
def test_a_score_that_a_guess_would_have_is_said_to_be_none(tmp_path: Path, capsys: Output) -> None:
    values = {"learner": "class-means", "seeds": 2, "epsilon": 0.003}
    (said,) = guessing(session().run(make_spec(values, "the test")))
    assert "the largest class's share of the test split, 14.5%:" in said
    assert "chance: 10.0%" in said
    assert guessing(session().run(make_spec({**values, "epsilon": 8}, "the test"))) == []
    command = ("run", "--learner", "class-means", "--seeds", "2", "--epsilon", "0.003", "--out", str(tmp_path))
    assert call(*command) == 0
    assert f"warning {said}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("wrong", "said"), [({"sample_rate": 0.0}, "in (0, 1]"), ({"clip": 0.0}, "Expected clip=0.0")])
def test_a_rate_or_clip_of_nothing_is_refused_by_name(wrong: dict[str, float], said: str, capsys: Output) -> None:
    ((name, value),) = wrong.items()
    assert said in refusal(capsys, "run", "--learner", f"pillar:{name}={value}", "--seeds", "1")


def test_grids_of_the_paper_have_as_many_settings_as_it_counts() -> None:
    found = {learner: math.prod(map(len, learner.paper_space.values())) for learner in (DPSGD, Pillar, JL, GEP, AdaDPS)}
    assert found[GEP] == 3528
    assert found[AdaDPS] * 3 == 4320  # times its three sizes of micro-batches
    assert found[DPSGD] * 9 == 405  # times the numbers of dimensions, of which the authors' runs have eleven
    assert found[Pillar] == found[JL] == found[DPSGD] * 11


@pytest.mark.slow
def test_on_pixels_the_defaults_of_dp_sgd_are_as_good_as_settings_by_hand() -> None:
    def score(learner: str) -> float:
        result = session().run(make_spec({"learner": learner, "seeds": 5, "epsilon": 1}, "the test"))
        return result.metrics["accuracy"].mean

    untouched = score("dp-sgd:steps=40,learning_rate=1.0,momentum=0")  # what a new plugin starts with
    own, short, long = (score(f"dp-sgd{options}") for options in ("", ":learning_rate=0.0757", ":learning_rate=1.21"))
    assert own > untouched - 0.02  # half the interval over seeds is 0.01
    assert own > max(short, long) + 0.02
