"""The linear probe through the curator is DP-SGD, and equals two independent computations of it."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
import torch
from dpbench_plugins.learners.dp_sgd import DPSGD
from torch import Tensor

from dpbench import AdamBC, Budget, LinearProbe, RankOne, Release, Task, quantise, standardisation, unit_norm
from dpbench.api import Chunk
from dpbench.errors import SpecError
from dpbench.privacy.core.rows import PrivateRows
from tests.helpers.worlds import curator_over, note, noted, private_rows


def _in_8_bits(rows: PrivateRows) -> PrivateRows:
    """Return rows that lose nothing in the form in which a curator adds them up."""
    return PrivateRows(quantise(rows.x).float(), rows.y, rows.index)


def _gradients(head: Tensor, bias: Tensor) -> object:
    def rows(chunk: Chunk) -> RankOne:
        residual = torch.addmm(bias, chunk.x, head.T).softmax(1) - torch.nn.functional.one_hot(chunk.y, len(head))
        return RankOne(residual, chunk.x, bias=True)

    return rows


@pytest.mark.parametrize("clip", [0.1, 1.0, 20.0])
def test_a_step_equals_clipped_per_example_gradients_of_opacus_and_of_autograd(clip: float) -> None:
    rows = _in_8_bits(private_rows(n=64, d=20, classes=4))
    layer = torch.nn.Linear(20, 4)
    answer = curator_over(rows, [Release("sum")], classes=4).noisy_sum(
        _gradients(layer.weight.detach(), layer.bias.detach()),  # type: ignore[arg-type]
        release="sum",
        clip=clip,
    )
    torch.testing.assert_close(answer, _by_opacus(layer, rows.x, rows.y, clip), rtol=0, atol=2e-3 * clip)
    torch.testing.assert_close(answer, _one_at_a_time(layer, rows.x, rows.y, clip), rtol=0, atol=2e-3 * clip)


def _by_opacus(layer: torch.nn.Linear, x: Tensor, y: Tensor, clip: float) -> Tensor:
    from opacus import GradSampleModule

    wrapped = GradSampleModule(torch.nn.Linear(layer.in_features, layer.out_features), loss_reduction="sum")
    wrapped._module.load_state_dict(layer.state_dict())
    torch.nn.functional.cross_entropy(wrapped(x.clone().requires_grad_()), y, reduction="sum").backward()  # type: ignore[no-untyped-call]
    weight, bias = wrapped._module.weight.grad_sample, wrapped._module.bias.grad_sample
    whole = torch.cat([weight, bias.unsqueeze(2)], 2)  # (n, k, d + 1)
    factors = (clip / whole.flatten(1).norm(dim=1)).clamp(max=1)
    return torch.einsum("n,nkd->kd", factors, whole)


def _one_at_a_time(layer: torch.nn.Linear, x: Tensor, y: Tensor, clip: float) -> Tensor:
    total = torch.zeros(layer.out_features, layer.in_features + 1)
    for row, label in zip(x, y, strict=True):
        loss = torch.nn.functional.cross_entropy(layer(row), label)
        weight, bias = torch.autograd.grad(loss, [layer.weight, layer.bias])
        gradient = torch.cat([weight, bias.unsqueeze(1)], 1)
        total += gradient * min(1.0, clip / float(gradient.norm()))
    return total


def test_training_without_noise_and_clipping_follows_gradient_descent_with_momentum() -> None:
    rows = _in_8_bits(private_rows(n=50, d=6, classes=3))
    probe = LinearProbe(steps=7, sample_rate=1.0, learning_rate=0.5, momentum=0.9, clip=20.0)
    curator = curator_over(rows, [probe.release()])
    predict = probe.train(curator.handle(), lambda x: x, torch.Generator())
    layer = torch.nn.Linear(6, 3)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.5, momentum=0.9)
    for _ in range(7):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(layer(rows.x), rows.y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    torch.testing.assert_close(predict(rows.x), layer(rows.x).detach(), rtol=0, atol=2e-3)


def test_the_step_is_divided_by_the_expected_batch_and_not_by_the_drawn_one() -> None:
    rows = private_rows(n=200, d=2, classes=2)
    rows.x.fill_(1.0)
    rows.y.fill_(0)
    probe = LinearProbe(steps=1, sample_rate=0.1, learning_rate=1.0, momentum=0.0, clip=20.0)
    curator = curator_over(rows, [probe.release()], classes=2)
    predict = probe.train(curator.handle(), lambda x: x, torch.Generator())
    drawn = len(_sample_of(curator_over(rows, [probe.release()], classes=2)))
    assert drawn != 20  # else the two denominators could not be told apart
    score = float(predict(torch.ones(1, 2))[0, 0])
    assert score == pytest.approx(3 * 0.5 * drawn / 20, rel=1e-3)


def _sample_of(curator: object) -> Tensor:
    def look(chunk: Chunk) -> Tensor:
        note(chunk.y.clone())
        return chunk.x.clone()

    curator.noisy_sum(look, release="gradient", clip=1.0)  # type: ignore[attr-defined]
    samples: list[Tensor] = noted()
    return max(samples, key=len)


def test_standardisation_uses_public_statistics_and_survives_constant_features() -> None:
    public = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    transform = standardisation(public)
    torch.testing.assert_close(transform(torch.tensor([[5.0, 7.0]])), torch.tensor([[3.0, 2.0]]))


@pytest.mark.parametrize("examples", [0, 1])
def test_standardising_with_too_few_public_examples_is_refused(examples: int) -> None:
    with pytest.raises(SpecError, match=f"at least 2 public examples .* got {examples}"):
        standardisation(torch.ones(examples, 3))


def test_a_zero_row_keeps_norm_zero() -> None:
    assert unit_norm(torch.zeros(1, 3)).tolist() == [[0.0, 0.0, 0.0]]


WRONG = [
    ("learning_rate", 0.0),
    ("learning_rate", 1e30),
    ("learning_rate", math.nan),
    ("momentum", 1.0),
    ("clip", 0.0),
    ("clip", math.nan),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_settings_that_cannot_train_are_refused(name: str, value: float) -> None:
    good = LinearProbe(steps=1, sample_rate=1.0, learning_rate=0.1, momentum=0.0, clip=1.0)
    with pytest.raises(SpecError, match=f"Expected {name}={re.escape(str(value))} .*of a linear head"):
        dataclasses.replace(good, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_setting_that_a_learner_cannot_train_with_is_the_one_that_is_named_and_so_is_the_learner(
    name: str, value: float
) -> None:
    task = Task((4,), 2, 100, torch.device("cpu"))
    with pytest.raises(SpecError, match=f"Expected {name}={re.escape(str(value))} .*(in|of) learner 'dp-sgd'"):
        DPSGD(**{name: value}).settle(task, Budget(1.0, 1e-5))  # type: ignore[arg-type]


def test_adam_moves_each_number_of_the_head_by_the_learning_rate_where_nothing_is_noise() -> None:
    rows = private_rows(n=64, d=5, classes=3)
    probe = LinearProbe(1, 1.0, 0.25, 0.9, 100.0, optimiser="adam")
    head = probe.descend(curator_over(rows, [probe.release()]).handle().map(lambda x: x), torch.Generator())
    gradient = LinearProbe(1, 1.0, 1.0, 0.0, 100.0).descend(
        curator_over(rows, [probe.release()]).handle().map(lambda x: x), torch.Generator()
    )
    clear = gradient.square() > 1e-2 * gradient.square().mean()
    torch.testing.assert_close(head[clear], 0.25 * gradient[clear].sign())
    assert clear.double().mean() > 0.5


def test_adam_takes_the_noise_that_the_harness_adds_out_of_its_second_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []
    honest = AdamBC.__init__

    def recorded(self: AdamBC, noise: float) -> None:
        told.append(noise)
        honest(self, noise)

    monkeypatch.setattr(AdamBC, "__init__", recorded)
    rows = private_rows(n=50, d=5)
    probe = LinearProbe(1, 0.5, 0.1, 0.0, 2.0, optimiser="adam")
    probe.descend(curator_over(rows, [probe.release()], 3.0).handle().map(lambda x: x), torch.Generator())
    assert told == [pytest.approx(3.0 * 2.0 / (0.5 * 50))]


def test_a_probes_rate_for_adam_follows_from_its_features_and_steps() -> None:
    settled = DPSGD(optimiser="adam").settle(Task((64,), 3, 1000, torch.device("cpu")), Budget(1.0, 1e-5))
    assert settled.steps is not None and settled.learning_rate == pytest.approx(1 / settled.steps, rel=1e-2)


def test_an_expected_batch_is_a_sample_rate_of_the_private_split() -> None:
    budget = Budget(1.0, 1e-5)
    settled = DPSGD(batch=128, steps=10).settle(Task((64,), 3, 1000, torch.device("cpu")), budget)
    assert settled == DPSGD(sample_rate=0.128, steps=10).settle(Task((64,), 3, 1000, torch.device("cpu")), budget)
    assert settled.plan(Task((64,), 3, 1000, torch.device("cpu")), budget)[0].sample_rate == 0.128
    assert DPSGD(batch=1024).settle(Task((64,), 3, 1000, torch.device("cpu")), budget).sample_rate == 1
