"""Thrift: what follows from public numbers, and that every stage does what it says."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from dpbench_thrift import Thrift, even, fitted, neighbourhoods, noise_share, spectrum, tutored
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dpbench import Budget, Chunk, Predict, PublicData, RankOne, SpecError, Task
from dpbench.learning.linear import residuals
from dpbench.privacy.rows import PrivateRows
from tests.worlds import curator_over

TASK = Task((1280,), 10, 45_000, torch.device("cpu"), public=5_000)


def settled(epsilon: float, task: Task = TASK, **options: bool) -> Thrift:
    return Thrift(**options).settle(task, Budget(epsilon, 1e-6))


def clusters(counts: tuple[int, ...], seed: int = 0, d: int = 12, apart: float = 2.0) -> tuple[Tensor, Tensor]:
    """Return as many rows around each of the classes' corners as are counted, mixed."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    y = y[torch.randperm(len(y), generator=draw)]
    return apart * torch.eye(d)[y] + torch.randn(len(y), d, generator=draw), y


def accuracy(
    learner: Thrift, counts: tuple[int, ...], sigma: float, public: int = 300, classes: int | None = None
) -> tuple[float, Tensor]:
    """Return the accuracy on fresh rows of the same classes, and how often each class is predicted."""
    x, y = clusters(counts)
    share = tuple(max(1, count * public // sum(counts)) for count in counts)
    fresh, labels = clusters(counts, seed=2)
    classes = classes or len(counts)
    task = Task((12,), classes, len(x), torch.device("cpu"), public=sum(share))
    learner = learner.settle(task, Budget(1.0, 1e-6))
    rows = PrivateRows(x, y, torch.arange(len(x)))
    curator = curator_over(rows, learner.plan(task, Budget(1.0, 1e-6)), sigma, classes)
    predict = learner.fit(curator.handle(), PublicData(clusters(share, seed=1)[0], None), torch.Generator())
    predicted = predict(fresh).argmax(1)
    return float((predicted == labels).double().mean()), predicted.bincount(minlength=classes)


@given(st.integers(100, 10**6), st.floats(0.01, 20), st.floats(1.1, 5))
def test_a_larger_budget_or_more_examples_buy_dimensions_and_way(n: int, epsilon: float, factor: float) -> None:
    task = dataclasses.replace(TASK, size=n)
    less, richer = settled(epsilon, task), settled(epsilon * factor, task)
    more = settled(epsilon, dataclasses.replace(task, size=round(n * factor)))
    for better in (richer, more):
        assert better.k >= less.k >= 2  # type: ignore[operator]
        assert better.steps >= less.steps  # type: ignore[operator]
        assert better.steps * better.learning_rate >= 0.99 * less.steps * less.learning_rate  # type: ignore[operator]


def test_k_is_near_what_single_releases_were_best_with() -> None:
    assert 80 <= settled(0.1).k <= 130  # type: ignore[operator]
    assert 250 <= settled(1.0).k <= 400  # type: ignore[operator]
    assert 10 <= settled(0.1, dataclasses.replace(TASK, size=3_000)).k <= 30  # type: ignore[operator]


@pytest.mark.parametrize("epsilon", [0.1, 8.0, math.inf])
def test_k_is_at_most_half_the_public_examples_and_all_features(epsilon: float) -> None:
    assert settled(epsilon, dataclasses.replace(TASK, public=24)).k == 12
    assert settled(epsilon, dataclasses.replace(TASK, example_shape=(3, 5))).k == 15


def test_a_given_number_of_steps_goes_the_same_way() -> None:
    few, usual = Thrift(steps=7).settle(TASK, Budget(0.1, 1e-6)), settled(0.1)
    assert few.steps == 7
    assert 7 * few.learning_rate == pytest.approx(usual.steps * usual.learning_rate, rel=0.01)  # type: ignore[operator]


@given(st.integers(3, 30), st.integers(2, 9), st.integers(1, 9), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_mapped_rows_have_one_norm_so_that_the_clip_bounds_residuals(
    m: int, d: int, k: int, whitening: float, seed: int
) -> None:
    x = torch.randn(m, d, generator=torch.Generator().manual_seed(seed))
    k = min(k, m - 1, d)
    rows = spectrum(x).softened(k, whitening)(x)
    assert rows.shape == (m, k)
    torch.testing.assert_close(rows.norm(dim=1), torch.full((m,), k**0.5))


def test_full_whitening_gives_components_one_deviation_and_none_leaves_the_leading_ones_large() -> None:
    x = torch.randn(4000, 6, generator=torch.Generator().manual_seed(0)) * torch.tensor([9.0, 6.0, 4.0, 3.0, 2.0, 1.0])
    assert float(spectrum(x).softened(6, 1.0)(x).std(0).min()) > 0.9
    spread = spectrum(x).softened(6, 0.0)(x).std(0)
    assert float(spread.max() / spread.min()) > 1.5


def test_a_feature_that_hardly_varies_in_public_is_not_blown_up() -> None:
    x = torch.randn(200, 5, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0])
    far = x[:1] + torch.tensor([0.0, 0.0, 0.0, 0.0, 0.1])
    features = spectrum(x).softened(4, 0.3)
    assert float((features(far) - features(x[:1])).norm()) < 0.5


def test_a_bias_that_noise_explains_goes_and_one_that_it_does_not_stays() -> None:
    head = torch.tensor([[1.0, 0.3], [2.0, -0.1], [3.0, -0.2]])
    torch.testing.assert_close(even(head, 1.0), torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]))
    torch.testing.assert_close(even(head, 0.0), head)
    torch.testing.assert_close(even(head, 0.07 / 2)[:, 1], 0.5 * head[:, 1])


@given(st.floats(0.01, 10), st.integers(0, 2**32 - 1))
def test_the_share_of_noise_is_that_of_a_head_made_of_known_parts(spread: float, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    x, noise = torch.randn(50, 3000, generator=draw), torch.randn(4, 3001, generator=draw)
    signal = spread * torch.randn(4, 3001, generator=draw)
    assert noise_share(signal + noise, x, 1.0) == pytest.approx(1 / (1 + spread**2), rel=0.2)


def test_neighbours_are_those_of_the_same_cluster() -> None:
    x, y = clusters((60, 60, 60), apart=20.0)
    graph = neighbourhoods(x - x.mean(0))
    torch.testing.assert_close(graph, graph.T)
    assert float(graph[y.unsqueeze(1) == y].sum() / graph.sum()) > 0.99
    assert float(graph.diagonal().abs().max()) == 0


def test_the_student_learns_what_it_is_told() -> None:
    x, y = clusters((100, 100, 100), apart=6.0)
    head = fitted(x, torch.nn.functional.one_hot(y).float())
    assert float(((x @ head[:, :-1].T + head[:, -1]).argmax(1) == y).double().mean()) > 0.97


def test_a_noisy_head_gains_by_its_student() -> None:
    x, _ = clusters((200, 200, 200), apart=4.0)
    fresh, labels = clusters((200, 200, 200), seed=2, apart=4.0)
    head = torch.eye(12)[:3] + 0.6 * torch.randn(3, 12, generator=torch.Generator().manual_seed(5))

    def right(predict: Predict) -> float:
        return float((predict(fresh).argmax(1) == labels).double().mean())

    teacher = right(lambda rows: rows @ head.T)
    assert teacher < 0.9
    assert right(tutored(lambda rows: rows @ head.T, x, spectrum(x), pull=0.6)) > teacher + 0.05


def test_the_student_acts_where_a_head_is_noisy() -> None:
    with_, without = (accuracy(Thrift(k=8, student=on), (100, 100, 100), sigma=60.0)[1] for on in (True, False))
    assert not torch.equal(with_, without)


def test_a_sharp_head_is_left_alone() -> None:
    with_, without = (accuracy(Thrift(k=8, student=on), (400, 400, 400), sigma=0.1)[1] for on in (True, False))
    assert torch.equal(with_, without)


@pytest.mark.parametrize("counts", [(300, 300), (200, 200, 200, 200, 200)])
def test_it_learns_two_classes_and_five(counts: tuple[int, ...]) -> None:
    assert accuracy(Thrift(), counts, sigma=1.0)[0] > 0.75


def test_unequal_classes_are_predicted_as_often_as_they_are() -> None:
    right, predicted = accuracy(Thrift(), (1200, 60), sigma=1.0)
    assert right > 0.95
    assert float(predicted[1]) < 120


def test_a_class_without_an_example_is_not_predicted() -> None:
    assert int(accuracy(Thrift(), (300, 300), sigma=0.5, classes=4)[1][2:].sum()) == 0


def test_few_public_examples_and_few_features_are_enough() -> None:
    assert accuracy(Thrift(), (300, 300, 300), sigma=1.0, public=9)[0] > 0.5


def test_rows_of_zeros_teach_nothing_and_break_nothing() -> None:
    x, y = torch.zeros(40, 12), torch.zeros(40, dtype=torch.int64)
    learner = Thrift(k=4, steps=3, learning_rate=1.0)
    curator = curator_over(PrivateRows(x, y, torch.arange(40)), learner.plan(TASK, Budget(1.0, 1e-6)), 1.0)
    assert bool(learner.fit(curator.handle(), PublicData(x, None), torch.Generator())(x).isfinite().all())


def test_no_contribution_is_above_the_clip_at_which_a_residual_of_one_would_be_cut() -> None:
    x, y = clusters((30, 30, 30))
    mapped = spectrum(x).softened(5, 0.3)(x)
    norms = RankOne(residuals(torch.zeros(90, 3), y), mapped, bias=True).norms()
    assert float(norms.max()) == pytest.approx((2 / 3) ** 0.5 * 6**0.5, rel=1e-4)
    assert len(Chunk(mapped, y, y)) == 90


@pytest.mark.parametrize(("m", "k"), [(0, 2), (1, 2), (5, 5), (50, 13)])
def test_more_components_than_public_data_carries_are_refused_in_a_sentence(m: int, k: int) -> None:
    with pytest.raises(SpecError, match=r"thrift.*public|public.*thrift"):
        spectrum(torch.randn(m, 12)).softened(k, 0.3)


def test_public_features_that_are_not_finite_are_refused() -> None:
    x = torch.randn(20, 4)
    x[3, 1] = math.nan
    with pytest.raises(SpecError, match="finite"):
        spectrum(x)


@pytest.mark.parametrize(("option", "value"), [("k", 0), ("whitening", 1.5), ("clip", 0.0)])
def test_a_setting_that_makes_no_sense_is_refused(option: str, value: float) -> None:
    with pytest.raises(SpecError, match=f"{option}=.*thrift"):
        dataclasses.replace(Thrift(), **{option: value})  # type: ignore[arg-type]
