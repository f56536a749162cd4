"""Check a result's scores, as far as they can be recounted without the test split."""

from __future__ import annotations

import itertools
import re

import numpy as np

from dpbench.analysis.paired import decode_correct_predictions
from dpbench.board.verify.counts import check_counts
from dpbench.board.verify.expectations import FieldComplaints
from dpbench.board.verify.group_checks import check_group_correct_counts, check_groups
from dpbench.records.metrics import StatedScores
from dpbench.records.result import Result, SeedResult, TaskFacts
from dpbench.records.tolerance import RELATIVE_TOLERANCE, is_close
from dpbench.records.units import decode_units

DIGEST = re.compile(r"[0-9a-f]{64}")


def check_scores(result: Result) -> FieldComplaints:
    """Yield a complaint for each field of seeds, test units or groups that contradicts another field or the spec."""
    stated = tuple(seed.seed for seed in result.seeds)
    if stated != result.spec.seeds:
        yield "seeds", f"expected seeds {result.spec.seeds}, as the spec asks, got {stated}"
    for number, seed in enumerate(result.seeds):
        for field, said in _check_seed(seed, result):
            yield f"seeds.{number}.{field}", said
    if result.task.test_units is not None:
        try:
            decode_units(result.task.test_units, result.task.test)
        except ValueError as error:
            yield "task.test_units", str(error)
    yield from _check_largest_class(result)
    yield from check_groups(result)


def _check_largest_class(result: Result) -> FieldComplaints:
    """Yield a complaint if the first seed's confusion matrix contradicts the stated share of the largest class.

    Only the first seed is checked, because other seeds may draw their own data. If all seeds have the same data,
    `check_shared_test_split` compares their matrices.
    """
    stated = result.task.largest
    for kept in (seed.evidence for seed in result.seeds[:1]):
        if kept is None or kept.size != result.task.test:
            continue
        if not is_close(found := max(kept.class_sizes) / kept.size, stated):
            said = f"expected {stated:.6g} of the test split in the largest class, got {found:.6g}"
            yield "seeds.0.confusion", said


def check_shared_test_split(result: Result) -> FieldComplaints:
    """Yield a complaint for each seed that contradicts another seed, given that all seeds share the test split.

    Class sizes must be the same for all seeds, and seeds with equal predictions must have equal scores.
    """
    by_guess: dict[str, SeedResult] = {}
    yield from _check_same_class_sizes(result)
    for number, seed in enumerate(result.seeds):
        same = by_guess.setdefault(seed.predictions, seed)
        alike = same.correct == seed.correct and same.group_correct == seed.group_correct
        if not alike or not all(map(is_close, same.class_accuracy, seed.class_accuracy)):
            yield f"seeds.{number}.predictions", f"the same as those of seed {same.seed}, which has other scores"


def check_confusion_matrices(result: Result) -> FieldComplaints:
    """Yield a complaint for each seed without a confusion matrix, because nobody could check its scores."""
    for number, seed in enumerate(result.seeds):
        if seed.evidence is None:
            yield f"seeds.{number}.confusion", "expected a confusion matrix, as every result of a board has"


def _check_same_class_sizes(result: Result) -> FieldComplaints:
    """Yield a complaint for each seed whose confusion matrix has other class sizes than the first matrix."""
    kept = [(number, seed.evidence) for number, seed in enumerate(result.seeds)]
    there = next((evidence.class_sizes for _, evidence in kept if evidence), None)
    for number, evidence in kept:
        if evidence is not None and evidence.class_sizes != there:
            said = f"expected {there} test examples by class, as other seeds, got {evidence.class_sizes}"
            yield f"seeds.{number}.confusion", said


def _check_seed(seed: SeedResult, result: Result) -> FieldComplaints:
    hits = None
    try:
        hits = int(decode_correct_predictions(seed, result.task.test).sum())
    except ValueError as error:
        yield "correct", str(error)
    if not DIGEST.fullmatch(seed.predictions):
        yield "predictions", f"expected a SHA-256, got {seed.predictions!r}"
    if seed.stated is not None:
        yield from _check_stated_scores(seed.stated, result.task, hits)
    present = [value for value in seed.class_accuracy if value is not None]
    yield from itertools.chain(
        _check_auroc(seed, result, len(present)), check_counts(seed, result.task, hits), _check_spending(seed, result),
        check_group_correct_counts(seed, hits),
    )  # fmt: skip


def _check_stated_scores(scores: StatedScores, task: TaskFacts, hits: int | None) -> FieldComplaints:
    """Yield a complaint for each stated score that contradicts another score or the number of correct predictions.

    `hits` is the number of correct predictions; None if it is unknown.
    """
    if hits is not None and not is_close(scores.accuracy, hits / task.test):
        yield "stated.accuracy", f"expected {hits} of {task.test}, as `correct` has it, got {scores.accuracy!r}"
    present = [value for value in scores.class_accuracy if value is not None]
    if len(scores.class_accuracy) != len(task.classes) or not present:
        yield "stated.class_accuracy", f"expected one for each of {len(task.classes)} classes, got {len(present)}"
        return
    balanced, worst = float(np.mean(present)), min(present)
    if not is_close(scores.balanced_accuracy, balanced):
        yield (
            "stated.balanced_accuracy",
            f"expected {balanced!r}, the mean over classes, got {scores.balanced_accuracy!r}",
        )
    if not is_close(scores.worst_class_accuracy, worst):
        yield "stated.worst_class_accuracy", f"expected {worst!r}, the least, got {scores.worst_class_accuracy!r}"
    if not worst - RELATIVE_TOLERANCE <= scores.accuracy <= max(present) + RELATIVE_TOLERANCE:
        yield "stated.class_accuracy", "expected accuracy to lie between the worst and the best class"


def _check_auroc(seed: SeedResult, result: Result, test_class_count: int) -> FieldComplaints:
    if (seed.auroc is None) != (len(result.task.classes) != 2 or test_class_count != 2):
        yield "auroc", "expected it where there are two classes, and nowhere else"
    elif seed.auroc is not None and seed.evidence is not None:
        (_, false), (_, true) = seed.evidence.confusion  # the answers are a point of the curve, which never falls
        misses, hits = false / sum(seed.evidence.confusion[0]), true / sum(seed.evidence.confusion[1])
        low, high = hits * (1 - misses), 1 - (1 - hits) * misses
        if not low - RELATIVE_TOLERANCE <= seed.auroc <= high + RELATIVE_TOLERANCE:
            yield "auroc", f"expected {low:.4f} to {high:.4f}, as the confusion matrix allows, got {seed.auroc!r}"


def _check_spending(seed: SeedResult, result: Result) -> FieldComplaints:
    planned = {release.name: release.steps for release in result.privacy.plan}
    private = result.privacy.repeats is not None
    over = any(steps > planned.get(name, 0) or steps < 0 for name, steps in seed.spent.items())
    if seed.spent.keys() != planned.keys() or over:  # stopping early is allowed, and buys no smaller epsilon
        yield "spent", f"expected at most {planned}, as planned, got {seed.spent}"
    elif planned and result.privacy.sigma > 0 and not private and not any(seed.spent.values()):
        yield "spent", "expected at least one step: a fit that spends none of its plan has its answers from elsewhere"
    if (seed.setting is not None) != private:
        yield "setting", "expected one where each seed chose its own, and nowhere else"
