"""Drawn datasets: what they claim of themselves, and how a run takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from dpbench_plugins.theory.datasets.graphs import Disjunction, WeightedBlocks
from dpbench_plugins.theory.datasets.halfspaces import GaussianMixture, LowRankHalfspace
from dpbench_plugins.theory.datasets.plane import HalfPlane, Rectangles, Thresholds
from dpbench_plugins.theory.datasets.shifted import DummyThresholds, IncompatibleDisjunction, ShiftedLowRank
from dpbench_plugins.theory.datasets.synthetic import SyntheticDataset
from sklearn.linear_model import LogisticRegression

from dpbench import Features, SpecError, Split, registry
from dpbench.harness.prepare import prepare_seed
from dpbench.harness.source import draw_datasets_for_seed
from dpbench.records.spec import Spec, make_spec
from dpbench.registry.components import resolve
from tests.helpers.sessions import session

pytestmark = pytest.mark.usefixtures("fresh_cache")

ALL = (
    GaussianMixture, LowRankHalfspace, ShiftedLowRank, Thresholds, DummyThresholds, HalfPlane, Rectangles, Disjunction,
    IncompatibleDisjunction, WeightedBlocks,
)  # fmt: skip


def _arrays(split: Split | None) -> tuple[np.ndarray, np.ndarray]:
    assert split is not None
    assert isinstance(split.images, Features)
    return split.images.x, split.labels


def _spec(dataset: str, **values: Any) -> Spec:
    return make_spec({"learner": "class-means:k=2", "dataset": dataset, "seeds": 2, **values}, "a test")


@pytest.mark.parametrize("kind", ALL)
def test_another_seed_draws_other_examples_of_the_same_sizes(kind: type[SyntheticDataset]) -> None:
    data, other = kind(n=50, m=20, test=30).drawn(1).load(), kind(n=50, m=20, test=30).drawn(2).load()
    for mine, its in zip((data.train, data.public, data.test), (other.train, other.public, other.test), strict=True):
        assert _arrays(mine)[0].shape == _arrays(its)[0].shape
    assert not np.array_equal(np.column_stack(_arrays(data.train)), np.column_stack(_arrays(other.train)))


def test_a_seed_that_is_given_is_that_of_every_fit() -> None:
    assert WeightedBlocks(seed=3).drawn(8) == WeightedBlocks(seed=3)
    assert WeightedBlocks().drawn(8).seed == 8


def test_train_public_and_test_are_draws_of_their_own() -> None:
    splits = LowRankHalfspace(n=40, m=40, test=40).load()
    train, public, test = (_arrays(split)[0] for split in (splits.train, splits.public, splits.test))
    assert len(np.unique(np.concatenate([train, public, test]), axis=0)) == 120


def test_the_separator_of_the_mixture_is_its_mean() -> None:
    x, y = _arrays(GaussianMixture(n=4000, d=40, sigma=0.5).load().train)
    mean = ((2 * y - 1)[:, None] * x).mean(0)
    assert np.linalg.norm(mean) == pytest.approx(1, abs=0.06)
    wrong = ((x @ mean > 0) != y).mean()
    assert wrong == pytest.approx(0.0228, abs=0.015)  # Phi(-1 / sigma)


@pytest.mark.parametrize(("tau", "s"), [(0.5, 0.0), (0.9, 0.0), (0.2, 1.0)])
def test_low_rank_data_has_the_xi_that_it_states(tau: float, s: float) -> None:
    data = LowRankHalfspace(n=20_000, d=50, k=5, tau=tau, s=s)
    x, y = _arrays(data.load().train)
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    target = LogisticRegression(C=1e6, fit_intercept=False, max_iter=3000).fit(x, y).coef_[0]
    xi = 1 - np.linalg.norm(vectors[:, -5:].T @ target) / np.linalg.norm(target)
    assert values[-5:].sum() == pytest.approx(1 - tau, abs=0.05 + 0.1 * tau)
    assert xi == pytest.approx(1 - (1 - s**2) ** 0.5, abs=0.05)


def test_low_rank_data_keeps_its_margin_before_it_is_brought_to_unit_norm() -> None:
    x, y = _arrays(LowRankHalfspace(n=3000, d=30, k=3, tau=0.3, margin=0.5).load().train)
    direction = ((2 * y - 1)[:, None] * x).mean(0)
    direction /= np.linalg.norm(direction)
    assert np.quantile((2 * y - 1) * (x @ direction), 0.02) > 0.1


def test_the_window_of_thresholds_is_resolved_and_unknown() -> None:
    starts = []
    for seed in range(20):
        x, y = _arrays(Thresholds(n=500, seed=seed).load().train)
        assert len(np.unique(x)) > 490
        assert x.max() <= 2 * x.min() * (1 + 0.02)
        assert x[y == 1].min() > x[y == 0].max()
        starts.append(x.min())
    assert max(starts) / min(starts) > 1e6


def test_noise_turns_training_labels_alone() -> None:
    splits = Thresholds(n=4000, test=4000, noise=0.1).load()
    (x, y), (clean_x, clean_y) = _arrays(splits.train), _arrays(splits.test)
    threshold = clean_x[clean_y == 1].min()
    assert clean_x[clean_y == 0].max() < threshold
    assert ((x[:, 0] >= threshold) != y).mean() == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("kind", [HalfPlane, Rectangles, Disjunction])
def test_both_classes_are_even(kind: type[SyntheticDataset]) -> None:
    _, y = _arrays(kind(n=4000).load().train)
    assert y.mean() == pytest.approx(0.5, abs=0.03)


def test_no_disjunction_mixes_literals_with_other_variables() -> None:
    x, y = _arrays(Disjunction(n=2000, d=30, k=8, p=0.05).load().train)
    literals, others = x[y == 1].any(0), x[y == 0].any(0)
    assert not (literals & others).any()
    assert literals.sum() == 8
    assert x.sum(1).min() >= 2


def test_blocks_have_their_weights() -> None:
    x, _ = _arrays(WeightedBlocks(n=20_000, blocks=5, alpha=0.1).load().train)
    assert x.mean(0) == pytest.approx([0.8, *[0.05] * 4], abs=0.01)


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (LowRankHalfspace, {"k": 100}, "k=100 below d=100"),
        (Disjunction, {"k": 59}, "k=59 <= d - 2 = 58"),
    ],
)
def test_options_that_describe_no_distribution_are_refused(kind: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        kind(**options)


def test_a_run_takes_features_as_they_are_with_public_ones_beside() -> None:
    prepared = session().prepare(_spec("theory-lowrank:n=100,m=30,d=8,k=2,test=20", public_fraction=0.2))
    assert prepared.roles.task.example_shape == (8,)
    assert (prepared.roles.task.size, len(prepared.public.x), len(prepared.test.scorer.y)) == (80, 50, 20)
    whole = LowRankHalfspace(n=100, m=30, d=8, k=2, test=20, seed=0).load()
    assert torch.equal(prepared.public.x[-30:], torch.from_numpy(_arrays(whole.public)[0]))


@pytest.mark.slow
def test_every_seed_of_a_run_draws_data_of_its_own_under_one_digest() -> None:
    spec = _spec("theory-lowrank:n=100,m=30,d=8,k=2,test=200")
    prepared, alone = session().prepare(spec), session().prepare(spec.model_copy(update={"seeds": (1,)}))
    second = prepare_seed(prepared, 1)
    assert not torch.equal(second.public.x, prepared.public.x)
    assert torch.equal(second.public.x, alone.public.x)
    assert prepared.images.digests == second.images.digests == alone.images.digests
    assert prepared.identity == second.identity == alone.identity
    both, single = session().run(spec), session().run(spec.model_copy(update={"seeds": (1,)}))
    assert both.seeds[1].predictions == single.seeds[0].predictions


def test_a_seed_that_is_given_makes_one_draw_for_all() -> None:
    prepared = session().prepare(_spec("theory-lowrank:n=100,m=30,d=8,k=2,test=20,seed=5"))
    assert prepare_seed(prepared, 1) is prepared


def test_images_that_are_not_drawn_are_those_of_every_seed() -> None:
    parts = resolve(_spec("digits"), registry.load()).parts
    assert draw_datasets_for_seed(parts, 3) == parts


def test_features_need_no_other_extractor() -> None:
    with pytest.raises(SpecError, match="holds features, not images: expected the extractor pixels"):
        session().prepare(_spec("theory-blocks", extractor="pixels:size=8"))


def test_public_examples_of_the_dataset_and_a_public_dataset_exclude_each_other() -> None:
    with pytest.raises(SpecError, match="public examples of its own"):
        session().prepare(_spec("theory-blocks:m=10", public_dataset="theory-blocks:seed=9"))


def test_a_share_eta_of_shifted_public_examples_is_on_a_direction_that_no_other_example_is_on() -> None:
    splits = ShiftedLowRank(n=500, m=4000, test=500, d=30, eta=0.2).load()
    still = LowRankHalfspace(n=500, m=4000, test=500, d=30).load()
    public, (private, _) = _arrays(splits.public)[0], _arrays(splits.train)
    moved = np.linalg.eigh(public.T @ public)[1][:, -1]
    for x, share in ((public, 0.2), (private, 0.0), (_arrays(splits.test)[0], 0.0)):
        assert (abs(x @ moved) > 0.999).mean() == pytest.approx(share, abs=0.02)
    assert _arrays(still.public)[0].shape == public.shape
    assert (abs(_arrays(still.public)[0] @ moved) > 0.999).mean() == 0


def test_the_reduction_hands_over_dummies_and_one_private_example_in_a_hundred_for_each_public_one() -> None:
    splits = DummyThresholds(n=40_000, m=2, test=1000, octaves=60).load()
    start = _arrays(splits.test)[0].min()
    x, y = _arrays(splits.train)
    inside = ((x >= start) & (x <= 2 * start)).mean()
    assert inside == pytest.approx(1 / 200 + 1.5 / 60, abs=0.02)  # a window of a dummy meets it with chance 2 / 60
    assert y.mean() == pytest.approx(0.5, abs=0.02)
    assert len(_arrays(splits.public)[0]) == 2
    wide = _arrays(DummyThresholds(n=10, m=1000, test=10, octaves=60).load().public)
    assert np.log2(wide[0]).min() < -50
    assert wide[1].mean() == pytest.approx(0.5, abs=0.06)


def test_half_of_the_joined_examples_are_not_compatible_with_the_disjunction() -> None:
    x, y = _arrays(IncompatibleDisjunction(n=4000, d=40, k=15, p=0.1, mixed=0.4).load().train)
    pure, _ = _arrays(Disjunction(n=4000, d=40, k=15, p=0.1).load().train)
    assert x.shape == pure.shape
    literals = ~(x[y == 0] > 0).any(0)  # what no example of label no has active
    assert literals.sum() == 15
    incompatible = (x[:, literals] > 0).any(1) & (x[:, ~literals] > 0).any(1)
    assert incompatible.mean() == pytest.approx(0.2, abs=0.03)
    assert np.array_equal(y == 1, (x[:, literals] > 0).any(1))
