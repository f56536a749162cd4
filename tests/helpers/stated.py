"""Results whose seeds state accuracies that a test chooses, in place of a confusion matrix."""

from __future__ import annotations

from scipy.special import stdtrit

from dpbench.records.metrics import StatedScores
from dpbench.records.result import Result


def with_accuracies(result: Result, *accuracies: float) -> Result:
    """Return a result with a seed of each accuracy."""
    seeds = []
    for number, accuracy in enumerate(accuracies):
        scores = StatedScores(
            accuracy=accuracy, balanced_accuracy=accuracy, worst_class_accuracy=accuracy, macro_f1=accuracy,
            class_accuracy=(accuracy,) * len(result.task.classes),
        )  # fmt: skip
        kept = {"seed": number, "stated": scores, "confusion": None, "calibration": None}
        seeds.append(result.seeds[0].model_copy(update=kept))
    return result.model_copy(update={"seeds": tuple(seeds)})


def with_interval(result: Result, mean: float, half: float) -> Result:
    """Return a result of two seeds with this mean accuracy, whose interval reaches so far to both sides."""
    away = min(half / float(stdtrit(1, 0.975)), mean, 1 - mean)  # an accuracy is a share
    return with_accuracies(result, mean - away, mean + away)
