"""Scores of a predictor on the test split."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Predict, Task
from dpbench.errors import ComponentFailed

BATCH = 4096
COMPARED, TOLERANCE = 8, 1e-3  # examples that are scored again among fewer, and what rounding may change


def predict_all(predict: Predict, x: Tensor, task: Task) -> np.ndarray:
    """Return (n, classes) scores of `predict` over all of `x`, in batches.

    Raises:
        ComponentFailed: scores of another shape, not finite, or of an example that follow from others.
    """
    parts = []
    with torch.no_grad():
        for start in range(0, len(x), BATCH):
            scores = predict(_own(x[start : start + BATCH], task))
            rows = min(BATCH, len(x) - start)
            if tuple(scores.shape) != (rows, task.classes):
                raise ComponentFailed(
                    f"The predictor returned scores of shape {tuple(scores.shape)}; expected {(rows, task.classes)}, "
                    "one row per example and one column per class."
                )
            parts.append(scores.double().cpu())
        few = min(COMPARED, len(x) // 2)
        alone = predict(_own(x[:few], task)).double().cpu() if few else torch.zeros(0, task.classes).double()
    scores = torch.cat(parts)
    if not bool(scores.isfinite().all()):
        raise ComponentFailed(
            "The predictor returned scores that are not finite: training diverged. Lower its learning rate."
        )
    if not torch.allclose(scores[:few], alone, rtol=TOLERANCE, atol=TOLERANCE * float(scores.abs().mean())):
        raise ComponentFailed(
            "The predictor scores an example otherwise beside other examples: expected its scores to follow from that "
            "example alone. Learn what it subtracts or divides by in the fit, and not from the test batch."
        )
    array: np.ndarray = scores.numpy()
    return array


def _own(x: Tensor, task: Task) -> Tensor:
    return x.to(task.device, torch.float32, copy=True)  # a predictor may write to its input


def score(scores: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Return accuracy, balanced and worst-class accuracy, macro-F1, AUROC (two classes only) and accuracy by class.

    `correct` is one bit a test example, in base64: it lets two results be compared example by example, and lets
    accuracy be counted again. `predictions` is the SHA-256 of the predicted classes.

    A class without test examples has accuracy None and is left out of the balanced and the worst-class figures; in
    macro-F1 it counts as 0, like a class that is never guessed.
    """
    classes = scores.shape[1]
    guesses = scores.argmax(1)
    matrix = np.bincount(classes * labels + guesses, minlength=classes**2).reshape(classes, classes)  # (true, guessed)
    counts = matrix.sum(1)
    either = counts + matrix.sum(0)
    by_class = [float(matrix[k, k] / counts[k]) if counts[k] else None for k in range(classes)]
    present = [value for value in by_class if value is not None]
    both = classes == 2 and len(present) == 2
    return {
        "accuracy": float((guesses == labels).mean()),
        "balanced_accuracy": float(np.mean(present)),
        "worst_class_accuracy": min(present),
        "macro_f1": float(np.mean(2 * np.diag(matrix) / np.maximum(either, 1))),
        "auroc": _auroc(scores[:, 1] - scores[:, 0], labels == 1) if both else None,
        "class_accuracy": by_class,
        "correct": base64.b64encode(np.packbits(guesses == labels).tobytes()).decode(),
        "predictions": hashlib.sha256(guesses.astype("<i8").tobytes()).hexdigest(),
    }


def _auroc(scores: np.ndarray, positive: np.ndarray) -> float:
    """Return the chance that a positive example scores above a negative one, ties counted half."""
    from scipy.stats import rankdata

    hits, misses = int(positive.sum()), int((~positive).sum())
    return float((rankdata(scores)[positive].sum() - hits * (hits + 1) / 2) / (hits * misses))
