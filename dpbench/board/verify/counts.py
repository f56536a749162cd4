"""Check the evidence of a seed's predictions: its confusion matrix and its reliability bins."""

from __future__ import annotations

import math

from dpbench.board.verify.expectations import FieldComplaints
from dpbench.records.metrics import BIN_COUNT, CalibrationBins, PredictionCounts
from dpbench.records.result import SeedResult, TaskFacts
from dpbench.records.tolerance import RELATIVE_TOLERANCE


def check_counts(seed: SeedResult, task: TaskFacts, correct_count: int | None) -> FieldComplaints:
    """Yield a complaint if a seed's counts contradict its task or its number of correct predictions.

    `correct_count` is the number of correct predictions; None if it cannot be decoded, and then it is not compared.
    """
    kept = seed.evidence
    if kept is None:
        return
    if correct_count is not None and sum(kept.correct_counts) != correct_count:
        yield (
            "confusion",
            f"expected {correct_count} on the diagonal, as `correct` has it, got {sum(kept.correct_counts)}",
        )
    if kept.size != task.test:
        yield "confusion", f"expected {task.test} test examples, got {kept.size}"
    if kept.calibration is not None:
        yield from _check_calibration(kept.calibration, kept, len(task.classes))


def _check_calibration(bins: CalibrationBins, evidence: PredictionCounts, class_count: int) -> FieldComplaints:
    """Yield a complaint for each bin that does not add up, and for each loss that these confidences make impossible."""
    if sum(bins.count) != evidence.size or sum(bins.right) != sum(evidence.correct_counts):
        yield (
            "calibration.count",
            f"expected {evidence.size} examples, {sum(evidence.correct_counts)} right, "
            f"got {sum(bins.count)} and {sum(bins.right)}",
        )
    for place, (count, right, total) in enumerate(zip(bins.count, bins.right, bins.confidence, strict=True)):
        low, high = (count * end for end in _find_bin_confidence_range(place, class_count))
        if right > count or not low - RELATIVE_TOLERANCE * (1 + low) <= total <= high + RELATIVE_TOLERANCE * (1 + high):
            yield (
                f"calibration.confidence.{place}",
                f"expected at most {count} right and a sum from {low:.6g} to {high:.6g}, got {right} and {total!r}",
            )
    for name, least in zip(("log_loss", "brier"), _compute_minimum_losses(bins, class_count), strict=True):
        found = getattr(bins, name)
        if found < least * (1 - RELATIVE_TOLERANCE) - RELATIVE_TOLERANCE:
            yield f"calibration.{name}", f"expected {least:.6g} at least with these confidences, got {found!r}"
    if bins.brier > 2 * evidence.size * (1 + RELATIVE_TOLERANCE):
        yield "calibration.brier", f"expected 2 an example at most, got {bins.brier!r}"


def _find_bin_confidence_range(bin_index: int, classes: int) -> tuple[float, float]:
    """Return the lowest and highest confidence in a bin; the predicted class has at least 1 / classes."""
    high = (bin_index + 1) / BIN_COUNT
    return min(max(bin_index / BIN_COUNT, 1 / classes), high), high


def _compute_minimum_losses(bins: CalibrationBins, class_count: int) -> tuple[float, float]:
    """Return the smallest log loss and Brier score that the counts allow.

    A correct example with confidence c loses at least -log c and (1 - c)^2. For a wrong example, the probability p of
    the true class is at most c and at most 1 - c: the losses are at least -log p and c^2 + (1 - p)^2.
    """
    log_loss = brier = 0.0
    for place, (count, right) in enumerate(zip(bins.count, bins.right, strict=True)):
        low, high = _find_bin_confidence_range(place, class_count)
        left = min(high, max(1 - low, RELATIVE_TOLERANCE))  # of the true class, where it was not guessed
        log_loss += right * -math.log(high) + (count - right) * -math.log(left)
        brier += right * (1 - high) ** 2 + (count - right) * (low**2 + (1 - left) ** 2)
    return log_loss, brier
