"""Score a predictor on the test split. The predictor gets the examples; only the scorer has their labels."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Predict, Task
from dpbench.data import groups
from dpbench.errors import ComponentFailed
from dpbench.records.metrics import BIN_COUNT, CalibrationBins, StoredPredictions, encode_confusion_matrix

BATCH = 4096
MOST_COMPARED, TOLERANCE = 8, 1e-3  # examples that are scored again among fewer, and what rounding may change


@dataclass(frozen=True)
class TestScorer:
    """Scores predictions on the test split; it alone has the labels, and a predictor never gets the scorer."""

    y: np.ndarray  # (n,) int64
    classes: int
    groups: Mapping[str, np.ndarray] = field(default_factory=dict)  # column -> (n,) text

    def __len__(self) -> int:
        return len(self.y)

    def score(self, scores: np.ndarray, logits: bool = False) -> StoredPredictions:
        """Return the evidence of scores (n, classes), from which metrics are computed; see `score_predictions`."""
        return score_predictions(scores, self.y, logits)

    def count_groups(self, scores: np.ndarray | None = None) -> dict[str, dict[str, str]] | None:
        """Count test images or, given `scores`, correct predictions, by group and class; None without groups."""
        correct = None if scores is None else scores.argmax(1) == self.y
        return groups.count_groups(self.groups, self.y, self.classes, correct) if self.groups else None


def predict_all(predict: Predict, x: Tensor, task: Task) -> np.ndarray:
    """Return the scores (n, classes) that `predict` gives for all rows of `x`, in batches.

    Raises:
        ComponentFailed: scores have the wrong shape, are not finite, or depend on other examples in the batch.
    """
    parts = []
    with torch.no_grad():
        for start in range(0, len(x), BATCH):
            scores = predict(_copy_input(x[start : start + BATCH], task))
            rows = min(BATCH, len(x) - start)
            if tuple(scores.shape) != (rows, task.classes):
                raise ComponentFailed(
                    f"The predictor returned scores of shape {tuple(scores.shape)}; expected {(rows, task.classes)}, "
                    "one row per example and one column per class."
                )
            parts.append(scores.to("cpu", torch.float64, copy=True))  # a predictor may use its output again
        few = min(MOST_COMPARED, len(x) // 2)
        alone = predict(_copy_input(x[:few], task)).double().cpu() if few else torch.zeros(0, task.classes).double()
    scores = torch.cat(parts)
    if not bool(scores.isfinite().all()):
        raise ComponentFailed(
            "The predictor returned scores that are not finite: training diverged. If the learner has a learning rate, "
            "lower it."
        )
    if not torch.allclose(scores[:few], alone, rtol=TOLERANCE, atol=TOLERANCE * float(scores.abs().mean())):
        raise ComponentFailed(
            "The predictor scores an example differently when other examples are in the batch: scores must depend on "
            "that example alone. Learn what it subtracts or divides by in the fit, not from the test batch."
        )
    array: np.ndarray = scores.numpy()
    return array


def _copy_input(x: Tensor, task: Task) -> Tensor:
    return x.to(task.device, torch.float32, copy=True)  # a predictor may write to its input


def score_predictions(scores: np.ndarray, labels: np.ndarray, logits: bool = False) -> StoredPredictions:
    """Return the evidence that a seed keeps of its predictions, from which metrics are computed; see `records.metrics`.

    `correct` is one bit per test example, in base64, so that results can be compared example by example and accuracy
    can be recounted. `predictions` is the SHA-256 of the predicted classes. `confusion` is the confusion matrix.
    `calibration` measures how well the softmax of `scores` fits; it is None unless `logits` says that these are logits.
    `auroc` is None unless there are two classes and both have test examples.

    A class without test examples has accuracy None and is left out of the balanced and the worst-class figures; in
    macro-F1 it counts as 0, like a class that is never guessed.
    """
    guesses, matrix = scores.argmax(1), compute_confusion_matrix(scores, labels)
    both = scores.shape[1] == 2 and bool(matrix.any(1).all())
    return StoredPredictions(
        correct=base64.b64encode(np.packbits(guesses == labels).tobytes()).decode(),
        predictions=hashlib.sha256(guesses.astype("<i8").tobytes()).hexdigest(),
        auroc=_compute_auroc(scores[:, 1] - scores[:, 0], labels == 1) if both else None,
        confusion=encode_confusion_matrix(matrix.tolist()),
        calibration=_measure_calibration(scores, labels, guesses) if logits else None,
    )


def compute_confusion_matrix(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the confusion matrix (true, guessed) of scores (n, classes) and labels (n,)."""
    classes = scores.shape[1]
    return np.bincount(classes * labels + scores.argmax(1), minlength=classes**2).reshape(classes, classes)


def _measure_calibration(logits: np.ndarray, labels: np.ndarray, guesses: np.ndarray) -> CalibrationBins:
    """Measure how well the softmax of logits (n, classes) fits labels (n,), given the predicted classes (n,)."""
    from scipy.special import log_softmax

    logs, rows = log_softmax(logits, axis=1), np.arange(len(labels))
    shares = np.exp(logs)  # (n, classes)
    confidence = shares[rows, guesses]
    places = np.clip(np.ceil(confidence * BIN_COUNT).astype(int) - 1, 0, BIN_COUNT - 1)  # (n,)
    binned = [np.bincount(places, weights, BIN_COUNT) for weights in (None, guesses == labels, confidence)]
    residuals = shares.copy()
    residuals[rows, labels] -= 1
    return CalibrationBins(
        count=tuple(map(int, binned[0])), right=tuple(map(int, binned[1])), confidence=tuple(map(float, binned[2])),
        log_loss=abs(float(logs[rows, labels].sum())), brier=float(np.square(residuals).sum()),
    )  # fmt: skip


def _compute_auroc(scores: np.ndarray, positive: np.ndarray) -> float:
    """Return the area under the ROC curve: the probability that a positive outscores a negative. Ties count half."""
    from scipy.stats import rankdata

    hits, misses = int(positive.sum()), int((~positive).sum())
    return float((rankdata(scores)[positive].sum() - hits * (hits + 1) / 2) / (hits * misses))
