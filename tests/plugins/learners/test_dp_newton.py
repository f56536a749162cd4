"""DP-Newton: the curvature it asks for, the step that it takes, and how the two noises share the budget."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from dpbench_plugins.learners.dp_newton import DPNewton, make_curvature_weights
from dpbench_plugins.learners.second_moments import ask_second_moment
from torch import Tensor

from dpbench import Budget, PublicData, Release, Task
from dpbench.privacy.core.rows import PrivateRows
from tests.helpers.worlds import curator_over
from tests.plugins.learners.test_thrift import clusters

BUDGET = Budget(1.0, 1e-6)
COUNTS = (300, 300, 300)


def accuracy(learner: DPNewton, sigma: float) -> float:
    (x, y), (fresh, expected) = clusters(COUNTS, apart=1.5), clusters(COUNTS, seed=2, apart=1.5)
    task = Task((12,), len(COUNTS), len(x), torch.device("cpu"), public=90)
    settled = learner.settle(task, BUDGET)
    curator = curator_over(PrivateRows(x, y, torch.arange(len(x))), settled.plan(task, BUDGET), sigma, len(COUNTS))
    public = PublicData(clusters((30, 30, 30), seed=1, apart=1.5)[0], None)
    scores = settled.fit(curator.handle(), public, torch.Generator().manual_seed(0))(fresh)
    return float((scores.argmax(1) == expected).double().mean())


def draw_head() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(3, 5, generator=draw), torch.randn(50, 4, generator=draw)


def test_the_weight_of_a_row_is_its_mean_curvature_in_units_of_the_zero_head() -> None:
    head, rows = draw_head()
    found = make_curvature_weights(head)(rows)
    chances = (rows @ head[:, :-1].T + head[:, -1]).softmax(1)
    for row, weight in zip(chances, found, strict=True):
        hessian = torch.diag(row) - torch.outer(row, row)  # by the logits
        assert float(weight) == pytest.approx(3 * float(hessian.trace()) / 2, abs=1e-3)
    assert torch.equal(make_curvature_weights(0 * head)(rows).round(decimals=5), torch.ones(50))
    assert float(found.max()) <= 1


@pytest.mark.parametrize("weighed", [False, True])
def test_a_second_moment_is_the_weighed_sum_of_outer_products(weighed: bool) -> None:
    head, x = draw_head()
    private = curator_over(PrivateRows(x, torch.zeros(50, dtype=torch.int64), torch.arange(50)), [Release("moment")])
    weigh = make_curvature_weights(head)
    mapped = private.handle().map(lambda rows: torch.nn.functional.normalize(rows) * 2)
    found = ask_second_moment(mapped, "moment", (lambda chunk: weigh(chunk.rows)) if weighed else None)
    rows = torch.nn.functional.pad(torch.nn.functional.normalize(x) * 2, (0, 1), value=1.0)
    weights = weigh(rows[:, :-1]) if weighed else torch.ones(50)
    torch.testing.assert_close(found.float(), (rows * weights.unsqueeze(1)).T @ rows, rtol=0.02, atol=0.3)
    assert torch.equal(found, found.T)


@pytest.mark.parametrize("curvature", ["hessian", "moment"])
def test_the_curvature_has_its_share_of_the_budget(curvature: str) -> None:
    task = Task((12,), 3, 900, torch.device("cpu"), public=90)
    learner = DPNewton(curvature=curvature, share=0.3, steps=6).settle(task, BUDGET)  # type: ignore[arg-type]
    noisy, gradient = learner.plan(task, BUDGET)
    assert noisy.steps == (6 if curvature == "hessian" else 1)
    spent = [release.steps / release.relative_noise**2 for release in (noisy, gradient)]
    assert spent[0] / sum(spent) == pytest.approx(0.3)
    assert [release.name for release in replace(learner, curvature="public").plan(task, BUDGET)] == ["gradient"]


@pytest.mark.parametrize("curvature", ["hessian", "moment", "public"])
def test_without_noise_it_separates_what_is_apart(curvature: str) -> None:
    assert accuracy(DPNewton(curvature=curvature), 0.0) > 0.75  # type: ignore[arg-type]


def test_more_noise_asks_for_a_higher_floor_and_fewer_components() -> None:
    task = Task((1280,), 10, 45_000, torch.device("cpu"), public=5_000)
    chosen = [DPNewton().auto(task, Budget(epsilon, 1e-6)) for epsilon in (0.03, 1.0, math.inf)]
    assert [found["k"] for found in chosen] == sorted(found["k"] for found in chosen)
    assert [found["floor"] for found in chosen] == sorted((found["floor"] for found in chosen), reverse=True)
    assert chosen[-1]["k"] == 100
