"""Least squares: without noise it is ridge regression, and what it asks for follows from public numbers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from dpbench_plugins.learners.least_squares import LeastSquares, compute_private_moment_weight
from dpbench_plugins.learners.spectrum import compute_spectrum
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dpbench import Budget, PublicData, Release, SpecError, Task, quantise
from dpbench.privacy.core.rows import PrivateRows
from tests.helpers.worlds import curator_over
from tests.plugins.learners.test_thrift import clusters

BUDGET = Budget(1.0, 1e-5)
TASK = Task((1280,), 10, 45_000, torch.device("cpu"), public=5_000)
COUNTS, CLASSES, K = (120, 80, 100), 3, 4
PUBLIC = PublicData(clusters((30, 30, 30), seed=1)[0], None)


def fitted(sigma: float = 0.0, **settings: Any) -> Tensor:
    """Return the scores of fresh rows, of a head fitted with this base noise multiplier."""
    x, y = clusters(COUNTS)
    task = Task((12,), CLASSES, len(x), torch.device("cpu"), public=90)
    learner = LeastSquares(**{"k": K, "moment": 0.0, **settings}).settle(task, BUDGET)
    curator = curator_over(PrivateRows(x, y, torch.arange(len(x))), learner.plan(task, BUDGET), sigma, CLASSES)
    predict = learner.fit(curator.handle(), PUBLIC, torch.Generator())
    assert curator.ledger.spent == {release.name: release.steps for release in learner.plan(task, BUDGET)}
    return predict(clusters(COUNTS, seed=2)[0]).double()


def coordinates(x: Tensor) -> Tensor:
    """Return rows as the head reads them, with their bias, in float64."""
    rows = compute_spectrum(PUBLIC.x).make_whitening_map(K, 0.0)(x).double() * K**0.5
    return torch.nn.functional.pad(rows, (0, 1), value=1.0)


@pytest.mark.parametrize("moment", [0.0, 0.5])
def test_one_round_without_noise_is_ridge_regression_on_centred_labels(moment: float) -> None:
    x, y = clusters(COUNTS)
    rows = coordinates(x)
    rows = torch.nn.functional.pad(quantise(rows[:, :-1].float()).double(), (0, 1), value=1.0)
    known = coordinates(PUBLIC.x)
    second = rows.T @ rows if moment else known.T @ known * (len(x) / len(known))
    target = torch.nn.functional.one_hot(y, CLASSES).double() - 1 / CLASSES
    penalty = 0.5 * len(x) * torch.eye(K + 1)
    expected = 0.97 * coordinates(clusters(COUNTS, seed=2)[0]) @ torch.linalg.solve(second + penalty, rows.T @ target)
    found = fitted(ridge=0.5, rounds=1, moment=moment)
    torch.testing.assert_close(found, expected, rtol=0, atol=3e-3)


def test_rounds_share_the_fit_of_one_where_the_second_moment_is_known() -> None:
    once, shared = fitted(ridge=1e-6, rounds=1, moment=0.5), fitted(ridge=1e-6, rounds=5, moment=0.5)
    torch.testing.assert_close(shared, once, rtol=0, atol=0.05)


def test_rounds_make_up_for_a_second_moment_that_is_another() -> None:
    truth = fitted(ridge=1e-6, rounds=1, moment=0.5)
    away = [float((fitted(ridge=0.3, rounds=rounds) - truth).norm()) for rounds in (1, 8)]
    assert away[1] < 0.6 * away[0]


def test_a_private_second_moment_so_noisy_that_it_says_nothing_leaves_the_public_one() -> None:
    x, _ = clusters(COUNTS)
    task = Task((K,), CLASSES, len(x), torch.device("cpu"))
    rows, known = (
        PrivateRows(coordinates(x)[:, :-1].float(), torch.zeros(len(x)).long(), torch.arange(len(x))),
        PUBLIC.x,
    )
    learner = LeastSquares(k=K, rounds=1, moment=0.5)
    curator = curator_over(rows, learner.plan(task, BUDGET), 1e7, CLASSES)
    found = learner._estimate_second_moment(curator.handle(), coordinates(known))
    expected = coordinates(known).T @ coordinates(known) * (len(x) / len(known))
    torch.testing.assert_close(found, expected, rtol=0, atol=0.02 * float(expected.max()))


@given(st.floats(1, 1e6), st.integers(1, 2000), st.integers(0, 10**5), st.floats(1.1, 10))
def test_the_private_second_moment_counts_for_more_with_more_examples_and_less_with_more_public_ones(
    size: float, k: int, public: int, factor: float
) -> None:
    weight = compute_private_moment_weight(size, k, public)
    assert 0 < weight < compute_private_moment_weight(size * factor, k, public) < 1 + 1e-9
    assert compute_private_moment_weight(size, k, round(public * factor) + 1) <= weight
    assert compute_private_moment_weight(math.inf, k, public) == 1


@pytest.mark.parametrize(("public", "epsilon", "asked"), [(5_000, 1.0, False), (144, 0.1, False), (144, 8.0, True)])
def test_it_is_asked_for_where_the_public_one_says_less(public: int, epsilon: float, asked: bool) -> None:
    task = TASK if public == TASK.public else dataclasses.replace(TASK, size=1_294, example_shape=(64,), public=public)
    learner = LeastSquares().settle(task, Budget(epsilon, 1e-5))
    assert [release.name for release in learner.plan(task, BUDGET)] == ["moment"] * asked + ["residuals"]


@given(st.floats(0.01, 0.9), st.integers(1, 30))
def test_the_second_moment_takes_its_share_of_the_budget(moment: float, rounds: int) -> None:
    plan = LeastSquares(k=5, rounds=rounds, moment=moment).plan(TASK, BUDGET)
    spent = [release.steps / release.relative_noise**2 for release in plan if isinstance(release, Release)]
    assert spent[0] / sum(spent) == pytest.approx(moment)


def test_more_budget_buys_components_and_rounds() -> None:
    settled = [LeastSquares().settle(TASK, Budget(epsilon, 1e-5)) for epsilon in (0.03, 0.3, 3.0, math.inf)]
    assert [learner.rounds for learner in settled] == sorted({learner.rounds for learner in settled if learner.rounds})
    assert [learner.k for learner in settled] == sorted(learner.k for learner in settled if learner.k)


def test_more_components_than_public_examples_are_refused_with_what_to_set() -> None:
    with pytest.raises(SpecError, match=r"k=90 in 1\.\.12 .*least-squares:k="):
        fitted(k=90)
