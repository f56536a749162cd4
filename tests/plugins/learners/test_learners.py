"""What each baseline computes, beside a computation written out."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from dpbench_plugins.learners import adadps as dpbench_adadps
from dpbench_plugins.learners.class_means import ClassMeans
from dpbench_plugins.learners.dp_raft import DPRAFT
from dpbench_plugins.learners.jl import JL
from dpbench_plugins.learners.public_only import PublicOnly
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dpbench import Budget, Learner, PublicData, SpecError, Task
from dpbench.privacy.core.accounting.accountant import epsilon
from dpbench.privacy.core.rows import PrivateRows
from dpbench.records.spec import make_spec
from tests.helpers.sessions import session
from tests.helpers.worlds import curator_over, private_rows

TASK = Task((6,), 3, 1000, torch.device("cpu"))
BUDGET = Budget(1.0, 1e-5)


@given(st.integers(2, 12), st.integers(2, 4), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_adadps_preconditioner_equals_the_moments_of_gradients_by_autograd(m: int, k: int, d: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    x, y = torch.randn(m, d, generator=draw), torch.randint(k, (m,), generator=draw)
    head = torch.randn(k, d + 1, generator=draw)
    moments = torch.zeros_like(head)
    for row, label in zip(x, y, strict=True):
        variable = head.clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy(variable[:, :-1] @ row + variable[:, -1], label)
        moments += torch.autograd.grad(loss, variable)[0].square() / m
    expected = moments.sqrt() + 0.1
    found = dpbench_adadps.compute_preconditioner(head, x, y, 0.1)
    quarters = 4 * found.log2()  # rounded to powers of 2^(1/4)
    torch.testing.assert_close(quarters, quarters.round(), rtol=0, atol=1e-4)
    assert float((quarters - 4 * (expected / expected.mean()).clamp(min=1e-6).log2()).abs().max()) <= 0.5 + 1e-3


def test_adadps_refreshes_the_preconditioner_as_often_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[Tensor] = []
    honest = dpbench_adadps.compute_preconditioner

    def counted(head: Tensor, x: Tensor, y: Tensor, epsilon_c: float) -> Tensor:
        heads.append(head.clone())
        return honest(head, x, y, epsilon_c)

    monkeypatch.setattr(dpbench_adadps, "compute_preconditioner", counted)
    learner = dpbench_adadps.AdaDPS(steps=7, refresh=3).settle(TASK, BUDGET)
    rows = private_rows(n=50, d=6)
    curator = curator_over(rows, learner.plan(TASK, BUDGET))
    learner.fit(curator.handle(), PublicData(rows.x, rows.y), torch.Generator())
    assert len(heads) == 3
    assert not torch.equal(heads[1], heads[2])


def test_adadps_reads_its_public_share_of_all_training_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Tensor] = []
    honest = dpbench_adadps.compute_preconditioner

    def recorded(head: Tensor, x: Tensor, y: Tensor, epsilon_c: float) -> Tensor:
        read.append(x)
        return honest(head, x, y, epsilon_c)

    monkeypatch.setattr(dpbench_adadps, "compute_preconditioner", recorded)
    learner = dpbench_adadps.AdaDPS(steps=1, public_share=0.1, batch=10).settle(TASK, BUDGET)
    assert learner.sample_rate == 10 / TASK.size
    rows = private_rows(n=50, d=6)
    curator = curator_over(rows, learner.plan(TASK, BUDGET))
    learner.fit(curator.handle(), PublicData(rows.x, rows.y), torch.Generator())
    assert [len(x) for x in read] == [round(0.1 * (curator.handle().task.size + 50))]


@pytest.mark.parametrize("share", [0.001, 0.0037, 0.3])
@pytest.mark.parametrize("steps", [10, 100])
def test_dp_raft_spends_the_stated_share_on_the_mean(share: float, steps: int) -> None:
    mean, gradient = DPRAFT(steps=steps, private_mean=True, mean_share=share).plan(TASK, BUDGET)
    on_mean, on_gradient = mean.relative_noise**-2, gradient.steps * gradient.relative_noise**-2
    assert on_mean / (on_mean + on_gradient) == pytest.approx(share)


def test_dp_rafts_default_share_is_that_of_the_paper() -> None:
    mean, gradient = DPRAFT(private_mean=True).plan(TASK, BUDGET)
    sigma = 43.0  # table 23 at epsilon 1: 71 for the mean, 43 for 100 steps, delta 8e-7
    assert sigma * mean.relative_noise == pytest.approx(71, rel=0.01)
    assert epsilon([mean, gradient], sigma, 8e-7) == pytest.approx(0.9945, rel=1e-3)


@pytest.mark.parametrize(("sigma", "rate"), [(72, 5.5), (38, 10), (21, 20), (8, 60), (7, 60)])
def test_dp_rafts_learning_rate_follows_the_papers_table(sigma: float, rate: float) -> None:
    learner = DPRAFT().settle(dataclasses.replace(TASK, size=50_000), BUDGET)
    assert learner == DPRAFT(**DPRAFT.paper)
    assert learner.learning_rate(sigma) == pytest.approx(rate, rel=0.2)
    assert learner.learning_rate(0.0) == learner.rate_limit


def _none() -> PublicData:
    return PublicData(torch.zeros(0, 5), None)


def test_dp_raft_centres_by_the_noiseless_mean_when_there_is_no_noise() -> None:
    rows = private_rows(n=200, d=6)
    shifted = PrivateRows(rows.x + 3, rows.y, rows.index)
    learner = DPRAFT(steps=1, private_mean=True, rate_limit=1.0)
    predict = learner.fit(curator_over(shifted, learner.plan(TASK, BUDGET)).handle(), _none(), torch.Generator())
    unit = torch.nn.functional.normalize(shifted.x)
    assert float(predict(unit.mean(0, keepdim=True) / unit.mean(0).norm()).abs().max()) < 0.02


def test_jl_is_a_gaussian_matrix_that_keeps_norms_on_average() -> None:
    draw = torch.Generator().manual_seed(0)
    rows = PrivateRows(torch.randn(30, 400, generator=draw), torch.zeros(30, dtype=torch.int64), torch.arange(30))
    learner = JL(k=200, scaling="none")
    ratios = (rows.x @ learner.matrix(400, torch.Generator().manual_seed(1))).norm(dim=1) / rows.x.norm(dim=1)
    assert float(ratios.mean()) == pytest.approx(1, abs=0.05)
    assert float(ratios.std()) == pytest.approx((2 * 200) ** -0.5, rel=0.5)


def test_class_means_rows_have_norm_one_so_that_clipping_never_acts() -> None:
    rows = private_rows(n=100, d=6)
    whiten = ClassMeans(k=4)._make_whitening_map(rows.x)
    torch.testing.assert_close(whiten(rows.x).norm(dim=1), torch.ones(100))


def test_public_only_spends_nothing_and_says_so() -> None:
    values = {"learner": "public-only", "public_labels": True, "seeds": 1}
    result = session().run(make_spec(values, "the test"))
    assert (result.privacy.epsilon, result.privacy.sigma, result.privacy.plan) == (0.0, 0.0, ())
    assert result.seeds[0].spent == {}
    assert result.metrics["accuracy"].mean > 0.7


def test_public_only_never_predicts_a_class_that_has_no_public_label() -> None:
    rows = private_rows(n=60, d=6, classes=2)
    curator = curator_over(rows, [], classes=3)
    predict = PublicOnly().fit(curator.handle(), PublicData(rows.x, rows.y), torch.Generator())
    assert set(predict(rows.x).argmax(1).tolist()) <= {0, 1}
    assert predict(rows.x).shape == (60, 3)


@pytest.mark.parametrize("learner", [dpbench_adadps.AdaDPS(), PublicOnly()])
def test_learners_that_need_public_labels_refuse_to_go_without(learner: Learner) -> None:
    rows, learner = private_rows(d=6), learner.settle(TASK, BUDGET)
    with pytest.raises(SpecError, match="--public-labels"):
        learner.fit(
            curator_over(rows, learner.plan(TASK, BUDGET)).handle(), PublicData(rows.x, None), torch.Generator()
        )


@pytest.mark.parametrize("learner", [JL(k=7), ClassMeans(k=7)])
def test_more_components_than_features_are_refused(learner: Learner) -> None:
    rows, learner = private_rows(d=6), learner.settle(TASK, BUDGET)
    with pytest.raises(SpecError, match="k="):
        learner.fit(
            curator_over(rows, learner.plan(TASK, BUDGET)).handle(), PublicData(rows.x, None), torch.Generator()
        )
