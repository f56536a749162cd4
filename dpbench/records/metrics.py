"""The evidence that a seed keeps of its test predictions, and the metrics that are computed from it.

To add a metric, add its name to `Metric` and one function below under `@register_metric`: results, checks, tables,
flags and pages then include it. No file stores metrics; they are computed when a result is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from dpbench.support.validation import Record

RankMetric = Literal["accuracy", "balanced_accuracy", "worst_class_accuracy", "macro_f1", "auroc"]
"""The metrics that a board may rank by: shares of 1, higher is better."""
Metric = Literal[
    "accuracy", "balanced_accuracy", "worst_class_accuracy", "macro_f1", "auroc", "class_gap", "ece", "nll", "brier"
]
METRICS: tuple[Metric, ...] = get_args(Metric)
BIN_COUNT = 15  # of the reliability diagram (Guo et al. 2017)
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Loss = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Bins = Annotated[tuple[Count, ...], Field(min_length=BIN_COUNT, max_length=BIN_COUNT)]


class CalibrationBins(Record):
    """Reliability bins: test examples grouped by confidence, the predicted probability of the guessed class.

    Bin b holds confidences above b / 15, up to (b + 1) / 15.
    """

    count: Bins
    right: Bins
    confidence: Annotated[tuple[Loss, ...], Field(min_length=BIN_COUNT, max_length=BIN_COUNT)]  # sums
    log_loss: Loss  # sum over test examples of -log p(true class), in nats
    brier: Loss  # sum over test examples of the squared distance from the one-hot label, 0 to 2 each


@dataclass(frozen=True)
class PredictionCounts:
    """A seed's predictions for n test examples, as counts: the confusion matrix and the calibration bins."""

    confusion: tuple[tuple[int, ...], ...]  # row: true class, column: guessed class
    calibration: CalibrationBins | None = None  # None where the learner gives no probabilities

    @cached_property
    def class_sizes(self) -> tuple[int, ...]:
        """The number of test examples of each class."""
        return tuple(map(sum, self.confusion))

    @cached_property
    def correct_counts(self) -> tuple[int, ...]:
        """The number of correct predictions for each class."""
        return tuple(row[label] for label, row in enumerate(self.confusion))

    @property
    def size(self) -> int:
        """The number of test examples."""
        return sum(self.class_sizes)

    @cached_property
    def class_accuracy(self) -> tuple[float | None, ...]:
        """The accuracy of each class; None for a class without test examples."""
        pairs = zip(self.correct_counts, self.class_sizes, strict=True)
        return tuple(correct / count if count else None for correct, count in pairs)

    @property
    def present_accuracies(self) -> tuple[float, ...]:
        """The accuracies of the classes that have test examples."""
        return tuple(accuracy for accuracy in self.class_accuracy if accuracy is not None)


Compute = Callable[[PredictionCounts], float | None]


@dataclass(frozen=True)
class MetricFacts:
    """A metric's title, direction, unit, and the function that computes it."""

    title: str
    higher: bool = True  # is better
    share: bool = True  # of 1: printed in percent
    most: float = 1.0  # the largest value there is; the least is 0
    compute: Compute | None = None  # None: not counted from what a seed keeps

    @property
    def scale(self) -> float:
        """The factor that converts a value for printing and drawing: 100 for a share, else 1."""
        return 100.0 if self.share else 1.0

    @property
    def digits(self) -> int:
        """The number of digits printed after the decimal point."""
        return 2 if self.share else 3

    @property
    def unit(self) -> str:
        """The unit of a printed value."""
        return "%" * self.share

    @property
    def inline_title(self) -> str:
        """The title as written within a sentence, in lower case unless it is an abbreviation."""
        return self.title if self.title.isupper() else f"{self.title[0].lower()}{self.title[1:]}"

    @property
    def axis(self) -> str:
        """The label of an axis or a column, with the unit."""
        return f"{self.inline_title} ({self.unit})" if self.unit else self.inline_title


METRIC_FACTS: dict[str, MetricFacts] = {"auroc": MetricFacts("AUROC")}  # which rests on the order of scores


def register_metric(
    title: str, *, higher: bool = True, share: bool = True, most: float = 1.0
) -> Callable[[Compute], Compute]:
    """Register the decorated function as the metric of the same name."""

    def register(compute: Compute) -> Compute:
        METRIC_FACTS[compute.__name__] = MetricFacts(title, higher, share, most, compute)
        return compute

    return register


@register_metric("Accuracy")
def accuracy(counts: PredictionCounts) -> float:
    """Return the share of test examples that are classified correctly."""
    return sum(counts.correct_counts) / counts.size


@register_metric("Balanced accuracy")
def balanced_accuracy(counts: PredictionCounts) -> float:
    """Return the mean accuracy over the classes that have test examples."""
    return math.fsum(counts.present_accuracies) / len(counts.present_accuracies)


@register_metric("Worst class")
def worst_class_accuracy(counts: PredictionCounts) -> float:
    """Return the lowest class accuracy."""
    return min(counts.present_accuracies)


@register_metric("Macro F1")
def macro_f1(counts: PredictionCounts) -> float:
    """Return the mean F1 over all classes; a class that is never present or never predicted counts as 0."""
    guessed = map(sum, zip(*counts.confusion, strict=True))
    parts = [
        2 * hit / max(a + b, 1) for hit, a, b in zip(counts.correct_counts, counts.class_sizes, guessed, strict=True)
    ]
    return math.fsum(parts) / len(parts)


@register_metric("Class gap", higher=False)
def class_gap(counts: PredictionCounts) -> float:
    """Return the accuracy of the best class minus the accuracy of the worst class."""
    return max(counts.present_accuracies) - min(counts.present_accuracies)


@register_metric("Calibration error", higher=False)
def ece(counts: PredictionCounts) -> float | None:
    """Return the expected calibration error; None without calibration bins.

    It is the mean gap between confidence and accuracy over 15 bins, weighted by their test examples. Source: Guo et
    al. 2017, equation 3.
    """
    if counts.calibration is None:
        return None
    bins = zip(counts.calibration.right, counts.calibration.confidence, strict=True)
    return math.fsum(abs(right - confidence) for right, confidence in bins) / counts.size


@register_metric("Log loss", higher=False, share=False, most=math.inf)
def nll(counts: PredictionCounts) -> float | None:
    """Return the mean negative log-likelihood of the true class, in nats; None without calibration bins."""
    return None if counts.calibration is None else counts.calibration.log_loss / counts.size


@register_metric("Brier score", higher=False, share=False, most=2.0)
def brier(counts: PredictionCounts) -> float | None:
    """Return the mean squared distance between probabilities and the one-hot label, 0 to 2; None without bins.

    Source: Brier 1950.
    """
    return None if counts.calibration is None else counts.calibration.brier / counts.size


TITLES: Mapping[Metric, str] = {name: METRIC_FACTS[name].title for name in METRICS}


def compute_metrics(counts: PredictionCounts) -> dict[str, float | None]:
    """Return every metric that can be computed from a seed's evidence, by name."""
    return {name: facts.compute(counts) for name, facts in METRIC_FACTS.items() if facts.compute is not None}


def compute_metric_from_confusion(name: str, confusion: Sequence[Sequence[int]]) -> float:
    """Compute a metric from a confusion matrix; compute accuracy for a metric that needs scores, such as AUROC."""
    compute = METRIC_FACTS[name].compute or accuracy
    value = compute(PredictionCounts(tuple(map(tuple, confusion))))
    assert value is not None  # what a board may rank by needs no probabilities
    return value


class StatedScores(Record):
    """The scores that a seed states because it has no confusion matrix."""

    accuracy: Share
    balanced_accuracy: Share
    worst_class_accuracy: Share
    macro_f1: Share
    class_accuracy: tuple[Share | None, ...]


def encode_confusion_matrix(matrix: Sequence[Sequence[int]]) -> tuple[str, ...]:
    """Return a confusion matrix as one line of text per true class, with a count for each guessed class.

    >>> encode_confusion_matrix([[2, 1], [0, 3]])
    ('2 1', '0 3')
    """
    return tuple(" ".join(map(str, row)) for row in matrix)


class StoredPredictions(Record):
    """The evidence that a seed keeps of its test predictions, from which its metrics are computed."""

    correct: str  # base64 of one bit a test example, in order
    predictions: str  # SHA-256 of the predicted classes, int64 little-endian: a rerun must give them
    auroc: Share | None  # its scores are not kept; None unless there are two classes
    # One line a true class, counts by guessed class: see `encode_confusion_matrix`.
    confusion: tuple[Annotated[str, Field(pattern=r"^[0-9]{1,9}( [0-9]{1,9})*$")], ...] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    calibration: CalibrationBins | None = Field(default=None, exclude_if=lambda value: value is None)
    stated: StatedScores | None = Field(default=None, exclude_if=lambda value: value is None)  # beside no confusion

    @model_validator(mode="after")
    def _check_evidence(self) -> StoredPredictions:
        if (self.evidence is None) == (self.stated is None):
            raise ValueError("expected a confusion matrix, or stated scores where there is none")
        if self.evidence is None:
            if self.calibration is not None:
                raise ValueError("calibration stands beside a confusion matrix")
            return self
        if any(len(row) != len(self.evidence.confusion) for row in self.evidence.confusion):
            raise ValueError("a confusion matrix has as many columns as rows")
        if not self.evidence.size:
            raise ValueError("a confusion matrix counts one test example at least")
        return self

    @property
    def matrix(self) -> tuple[tuple[int, ...], ...] | None:
        """The confusion matrix of counts: rows are true classes, columns are guessed classes."""
        return self.evidence.confusion if self.evidence else None

    @cached_property
    def evidence(self) -> PredictionCounts | None:
        """The counts from which metrics are computed; None if the seed states its scores instead."""
        if not self.confusion:
            return None
        return PredictionCounts(tuple(tuple(map(int, row.split())) for row in self.confusion), self.calibration)

    @cached_property
    def metrics(self) -> Mapping[str, float | None]:
        """All metrics by name; None for a metric that does not apply, such as AUROC for more than two classes."""
        counted = compute_metrics(self.evidence) if self.evidence else self.stated.model_dump() if self.stated else {}
        return {name: self.auroc if name == "auroc" else counted.get(name) for name in METRICS}

    def value(self, name: str) -> float:
        """Return the value of the metric with this name.

        Raises:
            ValueError: the metric does not apply.
        """
        if (found := self.metrics[name]) is None:
            raise ValueError(f"expected {name} in every seed, got none")
        return found

    @property
    def accuracy(self) -> float:
        """The share of test examples that are classified correctly."""
        return self.value("accuracy")

    @property
    def class_accuracy(self) -> tuple[float | None, ...]:
        """The accuracy of each class; None for a class without test examples."""
        if self.evidence is not None:
            return self.evidence.class_accuracy
        return self.stated.class_accuracy if self.stated else ()
