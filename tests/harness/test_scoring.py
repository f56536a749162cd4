"""Metrics: figures that a hand can check, and predictors that are refused."""

from __future__ import annotations

import base64
import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.metrics import f1_score, log_loss, roc_auc_score
from torch import Tensor

from dpbench import Task
from dpbench.board.verify.counts import check_counts
from dpbench.errors import ComponentFailed
from dpbench.harness.scoring import BATCH, MOST_COMPARED, predict_all, score_predictions
from dpbench.records.metrics import StoredPredictions
from dpbench.records.result import SeedResult, TaskFacts


def _task(classes: int) -> Task:
    return Task((1,), classes, 10, torch.device("cpu"))


def scored(labels: list[int], guesses: list[int], classes: int = 3) -> StoredPredictions:
    return score_predictions(np.eye(classes)[guesses], np.array(labels))


# Three of class 0, one of them taken for 1; two of class 1, one taken for 2; one of class 2.
LABELS, GUESSES = [0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        ("accuracy", 4 / 6),
        ("balanced_accuracy", (2 / 3 + 1 / 2 + 1) / 3),
        ("worst_class_accuracy", 1 / 2),
        ("macro_f1", (4 / 5 + 1 / 2 + 2 / 3) / 3),
        ("class_gap", 1 / 2),
    ],
)
def test_figures_are_those_of_the_confusion_matrix(figure: str, expected: float) -> None:
    assert scored(LABELS, GUESSES).value(figure) == pytest.approx(expected)


def test_the_confusion_matrix_has_a_line_for_each_true_class() -> None:
    found = scored(LABELS, GUESSES)
    assert found.confusion == ("2 1 0", "0 1 1", "0 0 1")
    assert found.class_accuracy == pytest.approx((2 / 3, 1 / 2, 1.0))


def test_more_than_two_classes_have_no_auroc() -> None:
    assert scored(LABELS, GUESSES).auroc is None


def test_auroc_of_two_classes_is_the_share_of_pairs_in_order() -> None:
    scores = np.array([[9.0, 8.0], [0.0, 0.5], [0.0, 0.2], [1.0, 3.0]])  # margins -1, 0.5 against 0.2, 2
    assert score_predictions(scores, np.array([0, 0, 1, 1])).auroc == 3 / 4


def test_auroc_needs_examples_of_both_classes() -> None:
    assert scored([1, 1], [0, 1], classes=2).auroc is None


def test_a_class_without_test_examples_has_no_accuracy() -> None:
    assert scored([0, 0, 1], [0, 2, 1]).class_accuracy == (0.5, 1.0, None)


def test_a_class_without_test_examples_is_left_out_of_balanced_and_worst() -> None:
    found = scored([0, 0, 1], [0, 2, 1])
    assert (found.value("balanced_accuracy"), found.value("worst_class_accuracy")) == (0.75, 0.5)


def test_scores_of_all_batches_come_in_order() -> None:
    x = torch.arange(2 * BATCH + 3).float()[:, None]
    scores = predict_all(lambda rows: torch.cat([rows, -rows], 1), x, _task(2))
    assert np.array_equal(scores[:, 0], np.arange(2 * BATCH + 3))


def test_a_predictor_never_sees_more_than_a_batch() -> None:
    seen = []

    def predict(rows: Tensor) -> Tensor:
        seen.append(len(rows))
        return torch.zeros(len(rows), 2)

    predict_all(predict, torch.zeros(BATCH + 1, 1), _task(2))
    assert seen == [BATCH, 1, MOST_COMPARED]


def test_a_predictor_that_reads_other_examples_is_refused() -> None:
    x = torch.arange(20).float()[:, None]
    with pytest.raises(ComponentFailed, match="that example alone"):
        predict_all(lambda rows: torch.cat([rows - rows.mean(0), rows], 1), x, _task(2))


def test_scores_that_need_gradients_are_accepted() -> None:
    weights = torch.ones(1, 2, requires_grad=True)
    assert predict_all(lambda rows: rows @ weights, torch.ones(3, 1), _task(2)).shape == (3, 2)


def test_a_predictor_cannot_change_the_test_split() -> None:
    x = torch.ones(3, 2)
    predict_all(lambda rows: rows.mul_(5), x, _task(2))
    assert torch.equal(x, torch.ones(3, 2))


@pytest.mark.parametrize("shape", [(5, 4), (4, 3), (5,), (5, 3, 1), (1, 3)])
def test_scores_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ComponentFailed, match=r"expected \(5, 3\)"):
        predict_all(lambda rows: torch.zeros(shape), torch.zeros(5, 2), _task(3))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_scores_that_are_not_finite_are_refused(value: float) -> None:
    def predict(rows: Tensor) -> Tensor:
        scores = torch.zeros(len(rows), 3)
        scores[-1, 0] = value
        return scores

    with pytest.raises(ComponentFailed, match="not finite"):
        predict_all(predict, torch.zeros(5, 2), _task(3))


def test_each_test_example_has_a_bit_that_says_whether_it_was_right() -> None:
    bits = np.unpackbits(np.frombuffer(base64.b64decode(scored(LABELS, GUESSES).correct), np.uint8), count=6)
    assert bits.tolist() == [guess == label for guess, label in zip(GUESSES, LABELS, strict=True)]


def test_the_digest_of_predictions_is_that_of_the_predicted_classes_alone() -> None:
    first = scored(LABELS, GUESSES).predictions
    assert first == scored(LABELS[::-1], GUESSES).predictions
    assert first != scored(LABELS, GUESSES[::-1]).predictions
    assert first == hashlib.sha256(np.array(GUESSES, "<i8").tobytes()).hexdigest()


def test_scores_that_are_no_logits_give_no_probabilities() -> None:
    found = scored(LABELS, GUESSES)
    assert [found.metrics[name] for name in ("ece", "nll", "brier")] == [None] * 3
    with pytest.raises(ValueError, match="expected nll in every seed"):
        found.value("nll")


def test_calibration_error_is_the_gap_of_confidence_and_accuracy_bin_by_bin() -> None:
    logits = np.log([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.45, 0.55]])  # bins 14, 14, 9 and 9 of 15
    found = score_predictions(logits, np.array([0, 1, 1, 1]), logits=True)
    assert found.value("ece") == pytest.approx((abs(1 - 1.8) + abs(2 - 1.15)) / 4)
    assert found.calibration is not None
    assert (found.calibration.count[13], found.calibration.right[8]) == (2, 2)


def test_a_confidence_of_one_stands_in_the_last_bin() -> None:
    found = score_predictions(np.array([[1e4, -1e4]]), np.array([1]), logits=True)
    assert found.calibration is not None and found.calibration.count[-1] == 1
    assert [found.value(name) for name in ("nll", "brier", "ece")] == [2e4, 2.0, 1.0]


@given(classes=st.integers(2, 20), size=st.integers(1, 60), seed=st.integers(0, 10**6))
def test_losses_are_those_of_scikit_learn(classes: int, size: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    labels, logits = draw.integers(0, classes, size), 3 * draw.normal(size=(size, classes))
    found, shares = score_predictions(logits, labels, logits=True), softmax(logits, axis=1)
    assert found.value("nll") == pytest.approx(log_loss(labels, shares, labels=range(classes)))
    assert found.value("brier") == pytest.approx(np.square(shares - np.eye(classes)[labels]).sum(1).mean())


@given(classes=st.integers(2, 20), size=st.integers(1, 40), scale=st.floats(0, 50), seed=st.integers(0, 10**6))
def test_what_honest_probabilities_leave_behind_passes_every_check(
    classes: int, size: int, scale: float, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    labels, logits = draw.integers(0, classes, size), scale * draw.normal(size=(size, classes))
    seed_result = SeedResult(seed=0, spent={}, **score_predictions(logits, labels, logits=True).model_dump())
    task = TaskFacts(
        example_shape=(1,), classes=tuple(map(str, range(classes))), private=1, public=0, test=size, digests={},
        public_labels_seen=False, licence="", overlap={}, largest=np.bincount(labels).max() / size, sketch="",
        looks=None, copies=None, processing=None,
    )  # fmt: skip
    hits = int((logits.argmax(1) == labels).sum())
    assert list(check_counts(seed_result, task, hits)) == []


@given(classes=st.integers(2, 5), size=st.integers(1, 60), seed=st.integers(0, 10**6))
def test_metrics_are_those_of_scikit_learn(classes: int, size: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    labels, scores = draw.integers(0, classes, size), draw.integers(0, 4, (size, classes)).astype(float)  # with ties
    found, guesses = score_predictions(scores, labels), scores.argmax(1)
    f1 = f1_score(labels, guesses, labels=range(classes), average="macro", zero_division=0)
    assert found.value("macro_f1") == pytest.approx(f1, abs=1e-12)
    if classes == 2 and len(np.unique(labels)) == 2:
        assert found.auroc == pytest.approx(roc_auc_score(labels, scores[:, 1] - scores[:, 0]), abs=1e-12)


def test_a_predictor_may_use_its_output_again() -> None:
    x, output = torch.randn(BATCH + 9, 3), torch.empty(BATCH, 3, dtype=torch.float64)

    def predict(batch: Tensor) -> Tensor:
        return output[: len(batch)].copy_(batch)

    assert np.array_equal(predict_all(predict, x, _task(3)), x.double().numpy())
