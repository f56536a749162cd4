"""Every learner, fitted without noise, equals a computation in which each example's gradient is written out.

Learners compute in float32, on rows in 8 bits and logits by weights in 12: closed forms start from the same rows, in
float64, and are compared to a thousandth or so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from dpbench_plugins.learners import gep as dpbench_gep
from dpbench_plugins.learners.adadps import AdaDPS
from dpbench_plugins.learners.class_means import ClassMeans
from dpbench_plugins.learners.dp_raft import DPRAFT
from dpbench_plugins.learners.dp_sgd import DPSGD
from dpbench_plugins.learners.jl import JL
from dpbench_plugins.learners.pillar import Pillar
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from dpbench import AnchorBasis, Chunk, Curator, DenseBasis, Learner, PublicData, Task
from dpbench.learning.probabilities import label_temperature
from dpbench.privacy.core.exact.quantised import QuantisedRows, convert_to_float_rows, quantise
from dpbench.privacy.core.forms.blocks import wrap_blocks
from dpbench.privacy.core.ledger_curator import Question
from dpbench.privacy.core.map import MapQuestion
from dpbench.privacy.core.sum import Sum
from tests.helpers.oracles import clipped_sum

SEED, STEPS, RATE, MOMENTUM = 3, 3, 0.5, 0.9
TRAINED: dict[str, Any] = {"steps": STEPS, "learning_rate": RATE, "momentum": MOMENTUM}
CLIPS = st.sampled_from([0.3, 1.0, 100.0])


@dataclass(frozen=True)
class Exact:
    """Answers by sums in floating point, over all rows and without noise."""

    x: Tensor | QuantisedRows
    y: Tensor
    classes: int

    def handle(self) -> Curator:
        x, y = self.x, self.y

        def answer(question: Question) -> Any:
            if isinstance(question, MapQuestion):
                return Exact(quantise(question.transform(convert_to_float_rows(x))), y, self.classes).handle()
            assert isinstance(question, Sum)
            blocks = wrap_blocks(question.rows(Chunk(x.clone(), y, torch.zeros_like(y))))
            answers = tuple(clipped_sum(*pair).float() for pair in zip(blocks, question.clips, strict=True))
            return answers if isinstance(question.clip, tuple) else answers[0]

        task = Task(tuple(x.shape[1:]), self.classes, len(x), torch.device("cpu"))
        return Curator(task, {"gradient": 0.0, "class-sums": 0.0}, answer)


@dataclass(frozen=True)
class World:
    private: Exact
    public: PublicData
    public_y: Tensor
    test_x: Tensor

    def predictions(self, learner: Learner) -> Tensor:
        public = self.public if learner.public == "labelled" else PublicData(self.public.x, None)
        predict = learner.fit(self.private.handle(), public, torch.Generator().manual_seed(SEED))
        return predict(self.test_x).double()

    @property
    def rows(self) -> Tensor:
        return convert_to_float_rows(self.private.x)

    def standardised(self, x: Tensor) -> Tensor:
        return (x - self.public.x.mean(0)) / self.public.x.std(0, correction=0)


def mapped(rows: Tensor) -> Tensor:
    """Return rows as a curator keeps them once they are mapped, in float64."""
    return quantise(rows.float()).double()


def _world(n: int, classes: int, d: int, public: int, seed: int) -> World:
    draw = torch.Generator().manual_seed(seed)
    private, others, test_x = (torch.randn(size, d, generator=draw) for size in (n, public, 4))
    private_y, public_y = (torch.randint(classes, (size,), generator=draw) for size in (n, public))
    return World(Exact(private * 2, private_y, classes), PublicData(others, public_y), public_y, test_x)


WORLDS = st.builds(
    _world, st.integers(1, 6), st.integers(2, 4), st.integers(1, 6), st.integers(4, 9), st.integers(0, 2**32 - 1)
)


def _logits(head: Tensor, features: Tensor) -> Tensor:
    return features @ head[:, : features.shape[1]].T + head[:, features.shape[1] :].sum(1)  # the bias, if any


def _gradients(head: Tensor, features: Tensor, y: Tensor) -> Tensor:
    """Return the gradients of the cross-entropy by autograd, one example at a time, (n, *head.shape)."""
    found = [torch.zeros(0, *head.shape, dtype=head.dtype)]
    for row, label in zip(features, y, strict=True):
        variable = head.clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy(_logits(variable, row.unsqueeze(0)), label.unsqueeze(0))
        found.append(torch.autograd.grad(loss, variable)[0].unsqueeze(0))
    return torch.cat(found)


def _clipped(rows: Tensor, clip: float) -> Tensor:
    return torch.einsum("n,n...->...", (clip / rows.flatten(1).norm(dim=1)).clamp(max=1), rows)


def _descend(shape: tuple[int, int], answer: Callable[[Tensor, int], Tensor], size: int) -> Tensor:
    head = velocity = torch.zeros(shape, dtype=torch.float64)
    for step in range(STEPS):
        velocity = MOMENTUM * velocity + answer(head, step) / size
        head = head - RATE * velocity
    return head


def _probe(world: World, features: Callable[[Tensor], Tensor], clip: float, bias: bool = True) -> Tensor:
    """Return the test logits of DP-SGD on the features, gradients written out."""
    private, x = world.private, mapped(features(world.rows))
    answer = lambda head, _: _clipped(_gradients(head, x, private.y), clip)
    head = _descend((private.classes, x.shape[1] + bias), answer, len(x))
    return _logits(head, features(world.test_x).double())


def _same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-3 * (1 + float(expected.abs().max())))


@settings(max_examples=settings().max_examples // 2)
@given(WORLDS, CLIPS, st.sampled_from(["public", "norm", "none"]))
def test_dp_sgd_equals_gradients_by_autograd_clipped_one_at_a_time(world: World, clip: float, scaling: Any) -> None:
    scale = {"public": world.standardised, "none": lambda x: x}.get(scaling, torch.nn.functional.normalize)
    _same(world.predictions(DPSGD(**TRAINED, clip=clip, scaling=scaling)), _probe(world, scale, clip))


@settings(max_examples=settings().max_examples // 2)
@given(WORLDS, CLIPS)
def test_adadps_equals_gradients_divided_by_roots_of_public_moments_and_then_clipped(world: World, clip: float) -> None:
    private, x = world.private, mapped(world.standardised(world.rows))
    public_x = world.standardised(world.public.x).double()
    scales: dict[int, Tensor] = {}

    def answer(head: Tensor, step: int) -> Tensor:
        if step % 2 == 0:
            roots = _gradients(head, public_x, world.public_y).square().mean(0).sqrt()
            quarters = ((roots + 0.1) / (roots + 0.1).mean()).log2() * 4
            assume(float((quarters - quarters.floor() - 0.5).abs().min()) > 1e-2)  # a tie may be rounded either way
            scales[step] = torch.exp2(quarters.round() / 4)
        return _clipped(_gradients(head, x, private.y) / scales[step - step % 2], clip)

    head = _descend((private.classes, x.shape[1] + 1), answer, len(x))
    found = world.predictions(AdaDPS(**TRAINED, clip=clip, refresh=2, epsilon_c=0.1))
    temperature = label_temperature(_logits(head, public_x), world.public_y)
    _same(found * temperature, _logits(head, world.standardised(world.test_x).double()))


def _components(rows: Tensor, k: int) -> Tensor:
    """Return the k leading directions of the rows, by singular values, where they are distinct."""
    values, directions = torch.linalg.svd(rows)[1:]
    smaller = [*values.tolist()[1:], 0.0]
    assume(k <= len(values) and float(values[k - 1]) - smaller[k - 1] > 1e-2 * float(values[0]))
    return torch.as_tensor(directions[:k].T)


@given(WORLDS, CLIPS, st.integers(1, 6), st.sampled_from(["public", "none"]), st.booleans())
def test_pillar_equals_dp_sgd_on_public_principal_components(
    world: World, clip: float, k: int, scaling: Any, center: bool
) -> None:
    scale = world.standardised if scaling == "public" else lambda x: x
    rows = scale(world.public.x)
    mean, components = rows.mean(0) * center, _components(rows - rows.mean(0) * center, k)  # up to signs
    expected = _probe(world, lambda x: (scale(x) - mean) @ components, clip)
    _same(world.predictions(Pillar(**TRAINED, clip=clip, k=k, scaling=scaling, center=center)), expected)


@settings(max_examples=settings().max_examples // 2)
@given(WORLDS, CLIPS, st.integers(1, 6))
def test_jl_equals_dp_sgd_on_randomly_projected_features(world: World, clip: float, k: int) -> None:
    features = world.test_x.shape[1]
    assume(k <= features)
    learner = JL(**TRAINED, clip=clip, k=k)
    matrix = learner.matrix(features, torch.Generator().manual_seed(SEED))
    _same(world.predictions(learner), _probe(world, lambda x: world.standardised(x) @ matrix, clip))


@given(WORLDS, CLIPS, st.booleans(), st.sampled_from([1.0, 7.0]))
def test_dp_raft_equals_dp_sgd_without_bias_on_unit_rows(world: World, clip: float, centred: bool, norm: float) -> None:
    def unit(x: Tensor) -> Tensor:
        return norm * torch.stack([row / row.norm() for row in x])

    mean = _clipped(unit(world.rows), norm) / len(world.rows) if centred else 0
    learner = DPRAFT(STEPS, momentum=MOMENTUM, rate_limit=RATE, clip=clip, feature_norm=norm, private_mean=centred)
    _same(world.predictions(learner), _probe(world, lambda x: unit(x) - mean, clip, bias=False))


@given(WORLDS, st.integers(1, 5))
def test_class_means_equals_centred_sums_of_whitened_rows_class_by_class(world: World, k: int) -> None:
    assume(k <= min(len(world.public.x) - 1, world.test_x.shape[1]))

    def unit(x: Tensor) -> Tensor:
        return torch.stack([row / row.norm() for row in x])

    mean = unit(world.public.x).mean(0)
    components = _components(unit(world.public.x) - mean, k)
    deviations = ((unit(world.public.x) - mean) @ components).square().mean(0).sqrt()

    def whiten(x: Tensor) -> Tensor:
        return unit((unit(x) - mean) @ components / deviations)

    private = world.private
    x = mapped(whiten(world.rows))
    sums = [(x * (private.y == label).unsqueeze(1)).sum(0) for label in range(private.classes)]
    centred = torch.stack(sums) - x.sum(0) / private.classes
    scale = k * private.classes / len(x)
    _same(world.predictions(ClassMeans(k=k)) / scale, whiten(world.test_x).double() @ centred.T)


@given(WORLDS, st.sampled_from([1.0, 3.0, 100.0]), st.integers(1, 3), st.booleans(), st.booleans())
def test_gep_equals_gradients_projected_on_the_basis_and_what_is_left_of_them(
    world: World, clip: float, k: int, residual: bool, whole: bool
) -> None:
    private, x, bases = world.private, mapped(world.standardised(world.rows)), list[Tensor]()

    def recorded(*arguments: Any) -> AnchorBasis | DenseBasis:
        anchors, basis = arguments[0], made(*arguments)
        dense = anchors.dense().flatten(1).T @ basis.mixing if isinstance(basis, AnchorBasis) else basis.vectors
        bases.append(dense.reshape(-1, basis.k).double())
        return DenseBasis(dense.reshape(*anchors.dense().shape[1:], -1)) if whole else basis

    def answer(head: Tensor, step: int) -> Tensor:
        vectors, rows = bases[step // 2], _gradients(head, x, private.y).flatten(1)
        embedding = rows @ vectors
        rest = _clipped(rows - embedding @ vectors.T, 0.5 * clip)
        total: Tensor = vectors @ _clipped(embedding, clip) + residual * rest
        return total.reshape(head.shape)

    made = dpbench_gep.compute_leading_subspace
    options = {"clip": clip, "residual_ratio": 0.5, "refresh": 2, "residual": residual}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dpbench_gep, "compute_leading_subspace", recorded)
        found = world.predictions(dpbench_gep.GEP(**TRAINED, **options, k=k, anchors=4))  # type: ignore[arg-type]
    assert len(bases) == 2
    head = _descend((private.classes, x.shape[1] + 1), answer, len(x))
    _same(found, _logits(head, world.standardised(world.test_x).double()))
