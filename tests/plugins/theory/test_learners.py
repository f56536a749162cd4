"""Learners of theorems: what they plan, what they refuse, and the errors that their theorems promise."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from dpbench_plugins.theory.datasets.plane import Thresholds
from dpbench_plugins.theory.learners.pillar_theory import PillarTheory

from dpbench import Budget, Choice, PlanError, Release, SpecError, Task
from dpbench.errors import DpbenchError
from dpbench.records.result import Result
from dpbench.records.spec import make_spec
from tests.helpers.sessions import session

pytestmark = pytest.mark.usefixtures("fresh_cache")


def _run(learner: str, dataset: str, **values: Any) -> Result:
    spec = {"learner": learner, "dataset": dataset, "public_fraction": 0.0, "seeds": 3, **values}
    return session().run(make_spec(spec, "a test"))


def _error(learner: str, dataset: str, **values: Any) -> float:
    return 1 - _run(learner, dataset, **values).metrics["accuracy"].mean


@pytest.mark.slow
def test_semi_private_thresholds_need_public_points_and_then_few_private_ones() -> None:
    few, many = (_error("sspp:thresholds", f"theory-thresholds:n=2000,m={m},test=1000", seeds=12) for m in (3, 300))
    assert few > 0.05
    assert many < 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hypotheses", "dataset", "most"),
    [
        ("intervals", "theory-thresholds:n=2000,m=50,test=1000", 0.05),
        ("stumps", "theory-thresholds:n=2000,m=50,test=1000", 0.05),
        ("rectangles", "theory-rectangles:n=2000,m=50,test=1000", 0.25),
        ("halfplanes", "theory-halfspace2d:n=2000,m=50,test=1000", 0.06),
    ],
)
def test_every_class_learns_its_targets(hypotheses: str, dataset: str, most: float) -> None:
    result = _run(f"sspp:{hypotheses}", dataset)
    assert 1 - result.metrics["accuracy"].mean < most
    assert result.privacy.epsilon == pytest.approx(1.0, abs=1e-4)
    assert result.privacy.delta == 0  # pure


@pytest.mark.slow
def test_projection_gains_the_energy_that_it_throws_away_and_fails_where_the_tail_is_heavier() -> None:
    data = "theory-lowrank:n=2000,m=500,d=100,k=5,tau=0.9,test=1000"
    settings = "pillar-theory:margin=0.07,beta=0.4"
    with_it, without = (_error(f"{settings},k={k}", data, epsilon=0.2) for k in (5, 0))
    assert with_it < 0.02 < without < 0.15
    heavy = data.replace("d=100", "d=20")
    with_it, without = (_error(f"{settings},k={k}", heavy, epsilon=0.2) for k in (5, 0))
    assert without < 0.05
    assert with_it > 0.3


@pytest.mark.slow
def test_a_public_radius_shortens_gradients_and_their_noise() -> None:
    data = "theory-lowrank:n=500,m=500,d=100,k=5,tau=0.9,test=1000"
    unit, public = (
        _error(f"pillar-theory:margin=0.07,beta=0.4,radius={radius}", data, epsilon=0.2, seeds=8)
        for radius in ("unit", "public")
    )
    assert public < unit


@pytest.mark.slow
def test_several_repeats_are_picked_from_by_a_choice_in_the_same_budget() -> None:
    learner, task = PillarTheory(beta=0.05, steps=20), Task((30,), 2, 1000, torch.device("cpu"), 300)
    gradient, pick = learner.plan(task, Budget(1.0, 1e-5))
    assert (gradient, learner.repeats) == (Release("gradient", 60), 3)
    assert isinstance(pick, Choice)
    assert pick.candidates == 3
    assert 1 / pick.relative_noise**2 == pytest.approx(0.1 * 60, rel=1e-4)  # a tenth
    assert _error("pillar-theory:beta=0.05,margin=0.15", "theory-lowrank:n=2000,m=300,d=30,tau=0.3,test=500") < 0.05


@pytest.mark.slow
def test_the_printed_noise_is_far_above_what_the_plan_needs() -> None:
    learner, task, budget = (
        PillarTheory(mode="faithful", beta=0.4),
        Task((30,), 2, 100, torch.device("cpu"), 300),
        Budget(1, 1e-5),
    )
    settled = learner.settle(task, budget)
    assert settled.noise == pytest.approx(math.sqrt(32 * math.log(100 / 1e-5) * math.log(1e5)), rel=1e-5)
    assert learner.plan(task, budget) == [Release("gradient", 100**2 - 1, 0.01)]
    result = _run("pillar-theory:mode=faithful,beta=0.4,margin=0.3", "theory-gmm:n=40,m=60,d=5,test=200", seeds=1)
    assert result.settled["noise"] > 10 * result.privacy.sigma


@pytest.mark.slow
def test_disjunctions_need_the_graph_and_then_few_labels() -> None:
    few, many = (_error("component-graph", f"theory-disjunction:n=40,m={m},p=0.02,test=500", seeds=8) for m in (2, 60))
    assert few > 0.4
    assert many < 0.01


@pytest.mark.slow
def test_without_public_data_a_disjunction_takes_as_many_labels_as_the_noise_of_d_counts() -> None:
    data = "theory-disjunction:m=100,p=0.1,test=500"
    graph, few = (_error(learner, f"{data},n=40", seeds=6) for learner in ("component-graph", "literal-counts"))
    assert graph < 0.02
    assert few > 0.4
    assert _error("literal-counts", f"{data},n=400", seeds=6) < 0.02  # 2 sigma sqrt(2 d log d) is 165


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learner", "dataset"),
    [
        ("literal-counts", "theory-disjunction:n=600,test=100"),
        ("jl-theory", "theory-lowrank:n=2000,d=50,tau=0.3,test=300"),
    ],
)
def test_what_theorems_are_compared_with_runs_without_public_data(learner: str, dataset: str) -> None:
    result = _run(learner, dataset, seeds=1)
    assert result.metrics["accuracy"].mean > 0.9
    assert result.task.public == 0


@pytest.mark.slow
def test_a_random_projection_wants_more_dimensions_than_public_components() -> None:
    data = "theory-lowrank:n=2000,m=500,d=200,k=5,tau=0.5,test=1000"
    public, same, more = (
        _error(f"{learner},margin=0.158,beta=0.4", data, epsilon=0.2)
        for learner in ("pillar-theory:k=5", "jl-theory:k=5", "jl-theory:k=80")
    )
    assert public < 0.01
    assert same > 0.1
    assert more < same / 3


@pytest.mark.slow
def test_private_coins_are_wrong_as_often_as_their_law_says() -> None:
    n, blocks, alpha, epsilon = 100, 16, 0.05, 0.5
    weights = [1 - 2 * alpha] + [2 * alpha / (blocks - 1)] * (blocks - 1)
    expected = 0.0
    for weight in weights:
        for count in range(n + 1):
            chance = math.comb(n, count) * weight**count * (1 - weight) ** (n - count)
            expected += weight * chance / (1 + math.exp(epsilon * count))
    found = _error("component-graph", f"theory-blocks:n={n},m=1,test=4000,blocks={blocks}", epsilon=epsilon, seeds=40)
    assert found == pytest.approx(expected, abs=0.006)


@pytest.mark.slow
def test_pate_learns_from_votes_and_less_than_class_sums() -> None:
    votes, sums = (_run(learner, "digits", epsilon=8.0, public_fraction=0.3) for learner in ("pate", "class-means"))
    assert 0.3 < votes.metrics["accuracy"].mean < sums.metrics["accuracy"].mean


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("learner", "dataset", "said"),
    [
        ("sspp", "digits", "two classes in learner 'sspp', got 10"),
        ("pillar-theory", "theory-lowrank", "needs public examples, unlabelled"),
        ("component-graph", "theory-blocks", "needs public examples, unlabelled"),
        ("pate", "digits", "needs public examples to vote on"),
        ("sspp:rectangles", "theory-lowrank:m=20", r"Expected 2 feature\(s\) for hypotheses=rectangles"),
        ("sspp", "theory-lowrank:m=30000,n=5,d=100", "at most 4,194,304 candidates"),
        ("sspp:intervals", "theory-thresholds:m=4000,n=5,test=5", "at most 4,194,304 candidates"),
        ("pillar-theory:k=30", "theory-lowrank:m=20,d=20", "k=30 <= 20 features"),
        ("pillar-theory:k=15", "theory-lowrank:m=10,d=20,k=2", "that span fewer"),
        ("pillar-theory:mode=faithful", "theory-lowrank:m=10,d=20,k=2,n=2000", "2 to 1000 private examples"),
        ("jl-theory:k=0", "theory-lowrank", "k=0 >= 1 in learner 'jl-theory'"),
        ("jl-theory:radius=public", "theory-lowrank", "center=false and radius=unit in learner 'jl-theory'"),
        ("literal-counts", "digits", "two classes in learner 'literal-counts', got 10"),
        ("pillar-theory:margin=0", "theory-lowrank:m=10", r"margin=0.0 in \(0, 1\]"),
        ("pate:shards=2000", "theory-lowrank:m=30", "shards=2,000 <= 1,000 private examples"),
        ("pate:queries=31", "theory-lowrank:m=30", "queries=31 <= 30 public examples"),
    ],
)
def test_what_a_theorem_does_not_speak_of_is_refused_in_one_sentence(learner: str, dataset: str, said: str) -> None:
    with pytest.raises((SpecError, PlanError), match=said):
        _run(learner, dataset, seeds=1)


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["sspp", "pillar-theory", "jl-theory", "component-graph", "literal-counts", "pate"])
def test_one_private_example_is_enough_to_run(learner: str) -> None:
    result = _run(learner, "theory-blocks:n=1,m=60,test=50,blocks=6,alpha=0.4", seeds=1, delta=0.1)
    assert 0 <= result.metrics["accuracy"].mean <= 1


@pytest.mark.quick(1)
@pytest.mark.parametrize("learner", ["sspp", "pillar-theory", "pate"])
def test_public_points_that_are_all_equal_are_refused(learner: str) -> None:
    with pytest.raises(DpbenchError, match=r"same point|that span fewer"):
        _run(learner, "theory-blocks:n=50,m=20,test=50,blocks=2,alpha=0", seeds=1)


def test_private_labels_of_one_class_are_learned_as_they_are() -> None:
    drawn = (Thresholds(n=4, m=30, test=100, middle=1.0, seed=seed) for seed in range(200))
    dataset = next(data for data in drawn if data.load().train.labels.all())
    result = _run("sspp:thresholds", f"theory-thresholds:n=4,m=30,test=100,middle=1,seed={dataset.seed}", epsilon=500.0)
    recall = result.seeds[0].class_accuracy[1]
    assert recall is not None
    assert recall > 0.5


def test_theorem_1_of_pillar_has_a_counterexample() -> None:
    heavy, light = torch.tensor([1.0, 0.0]), torch.tensor([-0.5, 0.866025])
    target = torch.tensor([0.8, 0.6])
    moment = 0.9 * heavy.outer(heavy) + 0.1 * light.outer(light)
    top = torch.linalg.eigh(moment).eigenvectors[:, -1]
    top = top * top[0].sign()
    xi, margin = 1 - float(top @ target), min(float(heavy @ target), float(light @ target))
    assert xi == pytest.approx(0.231, abs=0.001)
    assert 0.1 < margin < 1
    assert xi < 1 - margin / 10  # within the conditions of the theorem
    assert float(heavy @ top) > 0 > float(light @ top)  # one label, two sides: no threshold at 0 has both right
    assert margin - math.sqrt(xi * (2 - xi)) < 0  # the margin that does follow promises nothing here


@pytest.mark.slow
def test_labelled_public_points_leave_nothing_for_private_labels_to_choose() -> None:
    data, labelled = "theory-thresholds:n=20,m={m},test=1000", {"public_labels": True, "seeds": 12}
    few, many = (_error("sspp-labelled:thresholds", data.format(m=m), **labelled) for m in (3, 100))
    assert many < 0.02 < few < 0.3
    assert many < _error("sspp:thresholds", data.format(m=100), seeds=12)  # 20 private examples choose badly


def test_public_points_are_not_labelled_by_themselves() -> None:
    with pytest.raises(SpecError, match="public labels"):
        _run("sspp-labelled:thresholds", "theory-thresholds:n=20,m=3,test=1000", seeds=1)


def test_the_step_of_the_printed_algorithm_falls_with_the_root_of_its_number() -> None:
    class Slopes:
        task, sigma = Task((1,), 2, 2, torch.device("cpu"), 300), {"gradient": 0.0}

        def noisy_sum(self, rows: object, *, release: str, clip: float) -> torch.Tensor:
            return torch.full((1, 1), -0.1 * clip)

    learner = PillarTheory(mode="faithful", noise=0.0, margin=0.5)
    mean = learner._descend(Slopes(), 1.0, torch.Generator())  # type: ignore[arg-type]
    heads = [0.1 * sum(step**-0.5 for step in range(1, last + 1)) for last in (1, 2, 3)]  # n^2 - 1 steps
    assert mean.item() == pytest.approx(sum(heads) / 3)
