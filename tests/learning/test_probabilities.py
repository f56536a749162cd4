"""Temperatures and priors: what they leave alone, and that they are those of models whose answer is known."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dpbench import PublicData, Task
from dpbench.learning.linear import LinearProbe, train_heads
from dpbench.learning.probabilities import MAX_TEMPERATURE, aimed, calibrated, label_temperature, noise_temperature

CLASSES, ROWS = 5, 4000
TASK = Task((CLASSES,), CLASSES, 1000, torch.device("cpu"), public=ROWS)
BALANCED = dataclasses.replace(TASK, metric="balanced_accuracy")


def drawn(deviation: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return logits (m, k) of this deviation, and labels (m,) drawn from their softmax."""
    draw = torch.Generator().manual_seed(seed)
    logits = deviation * torch.randn(ROWS, CLASSES, generator=draw)
    return logits, torch.multinomial(logits.softmax(1), 1, generator=draw).squeeze(1)


def calibration_error(logits: Tensor, y: Tensor) -> float:
    """Return by how much mean confidence differs from accuracy."""
    confidence, guesses = logits.softmax(1).max(1)
    return abs(float(confidence.mean() - (guesses == y).double().mean()))


@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0])
def test_labels_find_the_factor_by_which_logits_are_too_large(factor: float) -> None:
    logits, y = drawn(2.0)
    assert label_temperature(factor * logits.double(), y) == pytest.approx(factor, rel=0.1)


def test_a_single_label_says_little() -> None:
    assert 0.3 < label_temperature(torch.tensor([[9.0, 0.0]]).double(), torch.tensor([0])) <= 1
    assert label_temperature(torch.tensor([[0.0, 9.0]]).double(), torch.tensor([0])) < 10


def test_logits_without_noise_keep_their_temperature() -> None:
    assert noise_temperature(drawn(1.0)[0].double(), 0.0) == 1.0


@pytest.mark.parametrize("deviation", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0])
def test_logits_with_known_noise_become_honest(deviation: float, noise: float) -> None:
    logits, y = drawn(deviation)
    noisy = (logits + noise * torch.randn(ROWS, CLASSES, generator=torch.Generator().manual_seed(1))).double()
    temperature = noise_temperature(noisy, noise**2)
    assert calibration_error(noisy / temperature, y) < 0.03
    assert temperature > 1
    assert calibration_error(noisy / temperature, y) < calibration_error(noisy, y)


def test_logits_that_are_all_noise_become_nearly_even() -> None:
    assert noise_temperature(drawn(1.0)[0].double(), 5.0) == MAX_TEMPERATURE
    assert noise_temperature(torch.zeros(3, CLASSES).double(), 1.0) >= 1.0


@pytest.mark.parametrize("labelled", [True, False])
def test_a_temperature_changes_no_predicted_class(labelled: bool) -> None:
    logits, y = drawn(2.0)
    predict = calibrated(lambda x: 7 * x, PublicData(logits, y if labelled else None), lambda _: 40.0)
    assert torch.equal(predict(logits).argmax(1), logits.argmax(1))
    assert not torch.allclose(predict(logits), 7 * logits)


def test_without_public_data_logits_stay() -> None:
    identity = lambda x: x
    assert calibrated(identity, PublicData(torch.zeros(0, CLASSES), None), lambda _: 1.0) is identity
    assert aimed(identity, BALANCED, PublicData(torch.zeros(0, CLASSES), None)) is identity


def test_a_protocol_that_compares_by_accuracy_changes_no_predictor() -> None:
    identity = lambda x: x
    for metric in ("accuracy", "macro_f1", "worst_class_accuracy", "auroc"):
        task = dataclasses.replace(TASK, metric=metric)
        assert aimed(identity, task, PublicData(drawn(1.0)[0], None)) is identity


def test_for_balanced_accuracy_the_prior_is_taken_off() -> None:
    shares = torch.tensor([0.4, 0.3, 0.1, 0.1, 0.1])
    logits, _ = drawn(1.0)
    adjusted = aimed(lambda x: x, BALANCED, PublicData(logits, None), 100 * shares)(logits)
    assert torch.allclose(adjusted, logits - shares.log())


def test_the_prior_of_honest_logits_is_found_in_public_predictions() -> None:
    shares, public = torch.tensor([0.6, 0.2, 0.1, 0.05, 0.05]), torch.zeros(ROWS, CLASSES)
    adjusted = aimed(lambda x: x + shares.log(), BALANCED, PublicData(public, None))
    assert torch.allclose(adjusted(public), torch.zeros(ROWS, CLASSES), atol=1e-5)


def test_a_class_that_public_predictions_never_name_is_raised_no_further_than_a_tenth_of_an_even_share() -> None:
    shift = torch.tensor([0.0, 0.0, 0.0, 0.0, -1e4])
    public = torch.zeros(ROWS, CLASSES)
    raised = aimed(lambda x: x + shift, BALANCED, PublicData(public, None))(public[:1])[0]
    assert float(raised[4]) == pytest.approx(-1e4 + 3.9, abs=0.1)


@given(st.integers(1, 30), st.sampled_from([0.0, 0.5, 0.9]), st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_the_noise_of_a_head_is_what_its_steps_add_up(steps: int, momentum: float, seed: int) -> None:
    probe = LinearProbe(steps, 0.5, 0.3, momentum, clip=2.0)
    draw = torch.Generator().manual_seed(seed)
    noise = lambda heads, going, step: (6.0 * torch.randn(100, 100, generator=draw),)  # sigma 3, clip 2
    (head,) = train_heads([probe], [torch.zeros(100, 100)], 50, noise)
    assert float(head.square().mean()) == pytest.approx(probe.head_noise(3.0, 50), rel=0.15)
