"""Thrift: what follows from public numbers, and that every stage does what it says."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from dpbench_plugins.learners.coordinates import (
    Coordinates,
    build_neighbour_graph,
    compute_diffusion_coordinates,
    make_neighbourhood_map,
    shrink_head_bias,
)
from dpbench_plugins.learners.spectrum import compute_spectrum
from dpbench_plugins.learners.thrift import Thrift
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dpbench import Budget, Chunk, PublicData, RankOne, Release, SpecError, Task, choose_temperature, plan_temperature
from dpbench.learning.linear import residuals, unit_norm
from dpbench.privacy.binding import bind
from dpbench.privacy.core.accounting import accountant
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.curator import make_learner_curator
from tests.helpers.worlds import curator_over

TASK = Task((1280,), 10, 45_000, torch.device("cpu"), public=5_000)


def settled(epsilon: float, task: Task = TASK) -> Thrift:
    return Thrift().settle(task, Budget(epsilon, 1e-6))


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
    rows = compute_spectrum(x).make_whitening_map(k, whitening)(x)
    assert rows.shape == (m, k)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(m))


def test_full_whitening_gives_components_one_deviation_and_none_leaves_the_leading_ones_large() -> None:
    x = torch.randn(4000, 6, generator=torch.Generator().manual_seed(0)) * torch.tensor([9.0, 6.0, 4.0, 3.0, 2.0, 1.0])
    assert float(compute_spectrum(x).make_whitening_map(6, 1.0)(x).std(0).min()) * 6**0.5 > 0.9
    spread = compute_spectrum(x).make_whitening_map(6, 0.0)(x).std(0)
    assert float(spread.max() / spread.min()) > 1.5


def test_a_feature_that_hardly_varies_in_public_is_not_blown_up() -> None:
    x = torch.randn(200, 5, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0])
    far = x[:1] + torch.tensor([0.0, 0.0, 0.0, 0.0, 0.1])
    features = compute_spectrum(x).make_whitening_map(4, 0.3)
    assert float((features(far) - features(x[:1])).norm()) < 0.5


def test_a_bias_that_noise_explains_goes_and_one_that_it_does_not_stays() -> None:
    head = torch.tensor([[1.0, 0.3], [2.0, -0.1], [3.0, -0.2]])
    torch.testing.assert_close(shrink_head_bias(head, 1.0), torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]))
    torch.testing.assert_close(shrink_head_bias(head, 0.0), head)
    torch.testing.assert_close(shrink_head_bias(head, 0.07 / 2)[:, 1], 0.5 * head[:, 1])


@given(st.floats(0, 1), st.integers(40, 80), st.integers(2, 9), st.integers(0, 2**32 - 1))
def test_rows_have_one_norm_whatever_the_graph_has_of_it(graph: float, m: int, k: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(m, 12, generator=draw)
    rows = Coordinates("thrift", k, graph).features(x, draw)(x)
    torch.testing.assert_close(rows.norm(dim=1), torch.full((m,), k**0.5))
    torch.testing.assert_close(rows[:, :k].square().sum(1), torch.full((m,), k * (1 - graph)), atol=1e-4, rtol=1e-4)


def test_the_graph_is_for_little_data_and_components_are_for_much() -> None:
    shares = [settled(0.1, dataclasses.replace(TASK, size=size)).graph for size in (300, 3_000, 12_000, 45_000)]
    assert shares == sorted(shares, reverse=True)  # type: ignore[type-var]
    assert shares[0] > 0.9  # type: ignore[operator]
    assert settled(8.0).graph == settled(math.inf).graph == 0
    assert settled(0.1, dataclasses.replace(TASK, size=300, public=39)).graph == 0
    assert settled(0.1, dataclasses.replace(TASK, size=300, same_source=False)).graph == 0


def test_neighbours_are_those_of_the_same_cluster() -> None:
    x, y = clusters((60, 60, 60), apart=20.0)
    graph = build_neighbour_graph(unit_norm(x - x.mean(0)), 7)
    torch.testing.assert_close(graph, graph.T)
    assert float(graph[y.unsqueeze(1) == y].sum() / graph.sum()) > 0.99
    assert float(graph.diagonal().abs().max()) == 0


def test_eigenvectors_are_those_of_a_full_decomposition_without_the_constant() -> None:
    draw = torch.Generator().manual_seed(0)
    graph = build_neighbour_graph(unit_norm(clusters((40, 40, 40), d=6, apart=3.0)[0]), 6)
    scale = graph.sum(1).rsqrt()
    values, vectors = torch.linalg.eigh((graph * scale * scale.unsqueeze(1)).double())
    assert float(values[-1]) == pytest.approx(1)
    exact = (vectors[:, -3:-1] * values[-3:-1].pow(3)).float()  # up to a rotation
    found = compute_diffusion_coordinates(graph, 2, draw)
    whole = exact @ exact.T
    assert float((found @ found.T - whole).norm() / whole.norm()) < 0.1


def test_a_graph_in_parts_tells_them_apart() -> None:
    x, y = clusters((50, 50, 50), apart=60.0)
    found = compute_diffusion_coordinates(build_neighbour_graph(unit_norm(x), 6), 2, torch.Generator().manual_seed(0))
    means = torch.stack([found[y == label].mean(0) for label in range(3)])
    assert float(torch.pdist(means).min()) > 0.05


def test_rounding_does_not_choose_coordinates_where_a_graph_is_in_more_parts_than_it_keeps() -> None:
    x, _ = clusters((20,) * 12, apart=60.0)
    graph = build_neighbour_graph(unit_norm(x), 4)
    moved = graph * (1 + 1e-6 * torch.randn(len(x), 1, generator=torch.Generator().manual_seed(1)).abs())
    found, other = (
        compute_diffusion_coordinates(tensor, 5, torch.Generator().manual_seed(0))
        for tensor in (graph, (moved + moved.T) / 2)
    )
    torch.testing.assert_close(found, other, atol=1e-3, rtol=0)


@pytest.mark.parametrize("public", [2, 3, 5, 40])
def test_a_graph_that_is_asked_for_is_made_of_whatever_rows_there_are(public: int) -> None:
    x = clusters((20, 20), d=6)[0][:public]
    rows = make_neighbourhood_map(compute_spectrum(x), x, 4, torch.Generator().manual_seed(0))(clusters((5, 5), d=6)[0])
    assert bool(rows.isfinite().all())
    assert 1 <= rows.shape[1] <= 4


@given(st.integers(1, 1100), st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_coordinates_of_a_row_are_the_same_bits_wherever_it_stands(first: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    public, rows = torch.randn(60, 7, generator=draw), torch.randn(1200, 7, generator=draw)
    rows[5:9] = public[:4]
    near = make_neighbourhood_map(compute_spectrum(public), public, 6, draw)
    assert torch.equal(near(rows)[first : first + 3], near(rows[first : first + 3]))


def test_a_fresh_row_is_where_its_neighbours_are() -> None:
    x, y = clusters((80, 80, 80), apart=8.0)
    fresh, labels = clusters((20, 20, 20), seed=2, apart=8.0)
    near = make_neighbourhood_map(compute_spectrum(x), x, 3, torch.Generator().manual_seed(0))
    means = torch.stack([near(x[y == label]).mean(0) for label in range(3)])
    assert float(((near(fresh) @ means.T).argmax(1) == labels).double().mean()) > 0.97


def test_classes_in_opposite_parts_which_no_plane_divides_are_learned_by_the_graph() -> None:
    def opposite(n: int, seed: int) -> tuple[Tensor, Tensor]:
        draw = torch.Generator().manual_seed(seed)
        part = torch.arange(n) % 6
        corners = 6 * torch.cat([torch.eye(12)[:3], -torch.eye(12)[:3]])
        return corners[part] + torch.randn(n, 12, generator=draw), part % 3

    x, y = opposite(150, 0)
    fresh, labels = opposite(300, 2)

    def right(graph: float) -> float:
        learner = Thrift(k=5, graph=graph, steps=30, learning_rate=0.5)
        curator = curator_over(PrivateRows(x, y, torch.arange(150)), learner.plan(TASK, Budget(1.0, 1e-6)), 2.0)
        predict = learner.fit(curator.handle(), PublicData(opposite(600, 1)[0], None), torch.Generator().manual_seed(0))
        return float((predict(fresh).argmax(1) == labels).double().mean())

    assert right(0.0) < 0.6
    assert right(0.9) > 0.9


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
    learner = Thrift(k=4, graph=0.5, steps=3, learning_rate=1.0)
    curator = curator_over(PrivateRows(x, y, torch.arange(40)), learner.plan(TASK, Budget(1.0, 1e-6)), 1.0)
    assert bool(learner.fit(curator.handle(), PublicData(x, None), torch.Generator())(x).isfinite().all())


def test_no_contribution_is_above_the_clip_at_which_a_residual_of_one_would_be_cut() -> None:
    x, y = clusters((30, 30, 30))
    mapped = compute_spectrum(x).make_whitening_map(5, 0.3)(x) * 5**0.5
    norms = RankOne(residuals(torch.zeros(90, 3), y), mapped, bias=True).norms()
    assert float(norms.max()) == pytest.approx((2 / 3) ** 0.5 * 6**0.5, rel=1e-4)
    assert len(Chunk(mapped, y, y)) == 90


@pytest.mark.parametrize(("m", "k"), [(0, 2), (1, 2), (5, 5), (50, 13)])
def test_more_components_than_public_data_carries_are_refused_in_a_sentence(m: int, k: int) -> None:
    with pytest.raises(SpecError, match=r"thrift.*public|public.*thrift"):
        compute_spectrum(torch.randn(m, 12)).make_whitening_map(k, 0.3)


def test_public_features_that_are_not_finite_are_refused() -> None:
    x = torch.randn(20, 4)
    x[3, 1] = math.nan
    with pytest.raises(SpecError, match="finite"):
        compute_spectrum(x)


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_private_rows_choose_the_temperature_that_makes_logits_honest(factor: float) -> None:
    x, y = clusters((3000, 3000, 3000), apart=1.0)
    head = factor * torch.cat([torch.eye(3, 12), -0.5 * torch.ones(3, 1)], 1)  # the posterior's, times a factor
    curator = curator_over(PrivateRows(x, y, torch.arange(len(x))), [plan_temperature(30)], sigma=2.0)
    mapped = curator.handle().map(lambda rows: rows)
    assert choose_temperature(mapped, head) == pytest.approx(factor, rel=0.01)


def test_a_chosen_temperature_costs_three_percent_of_the_budget() -> None:
    budget, gradient = Budget(0.1, 1e-6), Release("gradient", steps=30)
    plain, chosen = (accountant.calibrate(it, budget, "rdp") for it in ([gradient], [gradient, plan_temperature(30)]))
    assert plan_temperature(30).relative_noise ** -2 == pytest.approx(0.9, rel=0.01)
    assert plain < chosen < 1.03 * plain


def test_for_balanced_accuracy_a_rare_class_is_predicted_as_often_as_it_should() -> None:
    counts = (2000, 100, 100)
    x, y = clusters(counts, apart=0.6)
    public, fresh, labels = clusters(counts, seed=1, apart=0.6)[0], *clusters(counts, seed=2, apart=0.6)
    recall = {}
    for metric in ("accuracy", "balanced_accuracy"):
        task = Task((12,), 3, len(x), torch.device("cpu"), public=len(public), metric=metric)
        learner = Thrift().settle(task, Budget(1.0, 1e-6))
        rows = PrivateRows(x, y, torch.arange(len(x)))
        bound = bind(rows, task, learner.plan(task, Budget(1.0, 1e-6)), 5.0, Randomness.research(0, "a test"))
        predict = learner.fit(make_learner_curator(bound), PublicData(public, None), torch.Generator())
        guesses = predict(fresh).argmax(1)
        recall[metric] = [float((guesses[labels == label] == label).double().mean()) for label in range(3)]
    assert sum(recall["balanced_accuracy"]) > sum(recall["accuracy"]) + 0.15
