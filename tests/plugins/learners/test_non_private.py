"""The ceiling: it asks the curator as every learner does, at infinite epsilon alone, and reaches the optimum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dpbench_plugins.learners.non_private import FOLDS, NonPrivate, _assign_folds
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from dpbench import Budget, Chunk, Curator, Learner, Predict, PublicData, Release, Task, quantise
from dpbench.errors import LawBroken
from dpbench.privacy.core.rows import PrivateRows
from dpbench.records.result import Result
from dpbench.testing import LearnerLaws
from tests.cli.test_cli import refusal, run_arguments
from tests.helpers.commands import Output, call
from tests.helpers.worlds import curator_over, note, noted

FREE = Budget(math.inf, 1e-5)


@pytest.mark.parametrize("epsilon", ["1", "1e4"])
def test_the_command_line_refuses_a_reference_at_finite_epsilon(capsys: Output, tmp_path: Path, epsilon: str) -> None:
    said = refusal(capsys, *run_arguments(tmp_path, "--learner", "non-private", "--epsilon", epsilon))
    assert "'non-private' has no guarantee; it runs at epsilon=inf, not at 1" in said
    assert "Add --epsilon inf" in said
    assert not list((tmp_path / "results").glob("*"))


def _by_command(capsys: Output, folder: Path, learner: str) -> Result:
    assert call(*run_arguments(folder, "--learner", learner, "--epsilon", "inf", "--json")) == 0
    return Result.model_validate_json(capsys.readouterr().out)


@pytest.mark.slow
def test_at_infinite_epsilon_the_reference_runs_and_beats_dp_sgd(capsys: Output, tmp_path: Path) -> None:
    ceiling = _by_command(capsys, tmp_path, "non-private")
    assert (ceiling.privacy.epsilon, ceiling.privacy.sigma) == (math.inf, 0.0)
    assert ceiling.metrics["accuracy"].mean > _by_command(capsys, tmp_path, "dp-sgd").metrics["accuracy"].mean
    planned = {release.name: release.steps for release in ceiling.privacy.plan}
    for seed in ceiling.seeds:  # it converged within its plan
        assert all(0 < seed.spent[name] < planned[name] for name in ("loss", "folds"))


def _fitted(learner: NonPrivate, rows: PrivateRows, classes: int) -> Predict:
    task = Task(rows.example_shape, classes, len(rows), torch.device("cpu"))
    curator = curator_over(rows, learner.plan(task, FREE), classes=classes)
    return learner.fit(curator.handle(), PublicData(rows.x[:0], None), torch.Generator())


def _digits(relabelled: Any) -> PrivateRows:
    digits = load_digits()
    labels = torch.as_tensor(relabelled(digits.target))
    return PrivateRows(torch.as_tensor(digits.data).float() / 16, labels, torch.arange(len(labels)))


def _by_sklearn(rows: PrivateRows, strength: float) -> np.ndarray:
    """Return the log-probabilities (n, classes present) of scikit-learn's optimum on rows in 8 bits, in float64."""
    deviation = rows.x.double().std(0, correction=0)
    scaled = ((rows.x - rows.x.mean(0)) / torch.where(deviation > 0, deviation, 1)).double().numpy()
    model = LogisticRegression(C=strength, max_iter=5000, tol=1e-8)
    kept = quantise(torch.from_numpy(scaled).float()).double().numpy()
    found: np.ndarray = model.fit(kept, rows.y.numpy()).predict_log_proba(scaled)
    return found


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("relabelled", "classes"),
    [
        (lambda y: y, 10),
        (lambda y: y % 2, 2),
        (lambda y: 2 * (y % 2), 3),
        (lambda y: y % 3, 3),
        (lambda y: 2 + y % 3, 6),
    ],
    ids=["ten classes", "two classes", "two of three", "three classes", "three of six"],
)
def test_non_private_predicts_what_logistic_regression_does(relabelled: Any, classes: int) -> None:
    """A class without an example is never predicted."""
    rows = _digits(relabelled)
    scores = _fitted(NonPrivate(0.01 * len(rows)), rows, classes)(rows.x)
    assert scores.shape == (len(rows), classes)
    assert set(scores.argmax(1).tolist()) == set(rows.y.tolist())
    present = sorted(set(rows.y.tolist()))
    expected = torch.as_tensor(_by_sklearn(rows, 0.01))
    torch.testing.assert_close(scores[:, present].double().log_softmax(1), expected, rtol=5e-3, atol=5e-3)


def test_of_a_single_class_that_class_is_predicted() -> None:
    rows = _digits(lambda y: 0 * y + 1)
    assert set(_fitted(NonPrivate(), rows, 3)(rows.x).argmax(1).tolist()) == {1}


def test_constant_features_do_no_harm() -> None:
    rows = _digits(lambda y: y % 3)
    wider = PrivateRows(torch.cat([rows.x, torch.full((len(rows), 2), 7.0)], 1), rows.y, rows.index)
    found, expected = _fitted(NonPrivate(15.0), wider, 3)(wider.x), _fitted(NonPrivate(15.0), rows, 3)(rows.x)
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=5e-3)


def _world(n: int, d: int, signal: float, seed: int) -> PrivateRows:
    """Two classes whose means lie `signal` apart, in the first of d dimensions."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (n,), generator=draw)
    x = torch.randn(n, d, generator=draw)
    x[:, 0] += signal * (y - 0.5)
    return PrivateRows(x, y, torch.arange(n))


@pytest.mark.parametrize(
    ("n", "d", "best"),
    [pytest.param(120, 60, 1.0, marks=pytest.mark.slow), (4000, 3, None)],
    ids=["few rows", "many rows"],
)
def test_cross_validation_chooses_a_strength_that_holds_on_rows_it_never_saw(n: int, d: int, best: float) -> None:
    """Among many useless features the strongest penalty is right; with rows in plenty none hurts."""
    learned, fresh = _world(n, d, 2.0, seed=1), _world(5000, d, 2.0, seed=2)

    def right(learner: NonPrivate) -> float:
        return float((_fitted(learner, learned, 2)(fresh.x).argmax(1) == fresh.y).float().mean())

    chosen, weakest = right(NonPrivate()), right(NonPrivate(4.0**9))
    if best is None:
        assert abs(chosen - weakest) < 0.01
    else:
        assert chosen > weakest + 0.02
        assert abs(chosen - right(NonPrivate(best))) < 0.03


def test_equal_rows_share_a_fold_and_the_folds_are_alike_in_size() -> None:
    x = _digits(lambda y: y).x
    folds = _assign_folds(torch.cat([x, x]), 12345)
    assert folds[: len(x)].equal(folds[len(x) :])
    counts = torch.bincount(folds.long(), minlength=FOLDS)
    assert len(counts) == FOLDS
    assert bool((counts > 0.8 * counts.sum() / FOLDS).all())
    assert not _assign_folds(x, 12347).equal(folds[: len(x)])


def test_the_plan_covers_the_longest_optimisation() -> None:
    """Features far from any standard scale, hardly any penalty: the questions stay within the plan."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(200, 30, generator=draw) @ torch.diag(torch.logspace(-6, 6, 30))
    rows = PrivateRows(x, torch.randint(3, (200,), generator=draw), torch.arange(200))
    scores = _fitted(NonPrivate(1e12), rows, 3)(rows.x)
    assert bool(scores.isfinite().all())


class PlansForAnyBudget(NonPrivate):
    """Plans as if it had a guarantee."""

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return super().plan(task, FREE)


class PlansForLargeBudgets(NonPrivate):
    """Takes a large epsilon for none at all."""

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return super().plan(task, FREE if budget.epsilon > 1e3 else budget)


class Remembers(NonPrivate):
    """Keeps private rows in its predictor."""

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        def rows(chunk: Chunk) -> Tensor:
            note(chunk.x.clone())
            return chunk.y.unsqueeze(1).float()

        curator.noisy_sum(rows, release="moments", clip=1.0)
        kept = noted()
        return lambda x: torch.eye(10)[torch.cdist(x, torch.cat(kept)).argmin(1) % 10]


@pytest.mark.parametrize(
    ("broken", "law", "said"),
    [
        (PlansForAnyBudget, "a_tiny_budget_stays_at_chance", r"epsilon 0\.001"),
        (PlansForLargeBudgets, "a_tiny_budget_stays_at_chance", r"epsilon 1e\+06"),
        (Remembers, "no_private_row_outlives_the_fit", "holds a private row"),
    ],
)
def test_each_fault_breaks_its_law(broken: type[Learner], law: str, said: str) -> None:
    class Suite(LearnerLaws):
        learner = broken()

    with pytest.raises(LawBroken, match=said):
        getattr(Suite(), f"test_{law}")()


@pytest.mark.long  # `test_laws.py` holds it to them too
def test_check_holds_the_reference_against_the_laws_of_learners(capsys: Output) -> None:
    assert call("check", "non-private") == 0
    shown = capsys.readouterr().out
    assert "a tiny budget stays at chance" in shown
    assert "broken" not in shown
