"""Comparison of two results: a new result with its file's previous content, and the scores of any two results."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from dpbench.analysis import paired
from dpbench.analysis.formats import write_score
from dpbench.analysis.reader import StoredResult
from dpbench.analysis.tables import pairing_key, write_result_label
from dpbench.errors import DataError, SpecError
from dpbench.records.metrics import METRIC_FACTS, Metric
from dpbench.records.result import TWO_SEEDS_REMARK, Result


def describe_replacement(result: Result, file: Path) -> str:
    """Describe the stored file that a new result replaces: missing, the same predictions, or other predictions."""
    try:
        before = Result.read(file)
    except DataError:
        return ""
    if result.privacy.rng == "secure":
        return f" (replaced another random draw{_write_previous_accuracy(before)})"
    guesses = [[seed.predictions for seed in run.seeds] for run in (before, result)]
    return (
        " (replaced a result with the same predictions)"
        if guesses[0] == guesses[1]
        else f" (replaced other predictions{_write_previous_accuracy(before)})"
    )


def _write_previous_accuracy(before: Result) -> str:
    return f", accuracy {write_score('accuracy', before.metrics['accuracy'], unit=True)}"


def describe_difference(first: StoredResult, second: StoredResult, metric: Metric = "accuracy") -> Iterator[str]:
    """Yield both scores, their difference with its 95% interval, and whether the difference is more than noise.

    Raises:
        SpecError: see `compare_results`.
    """
    found = compare_results(first, second, metric)
    for name, filed in (("A", first), ("B", second)):
        score = write_score(metric, filed.result.metrics[metric], unit=True)
        yield f"{name}: {_name_learner(filed.result)}: {score}"
    yield f"A - B: {_write_difference(found, metric)}, p {found.p:.2g}"
    yield "The difference is significant at 5%." if found.is_significant else "The difference is not significant at 5%."
    if (seeds := len(first.result.seeds)) == 1:
        yield "One seed does not show how much results vary from seed to seed. Use five or more."
    elif seeds == 2:
        yield TWO_SEEDS_REMARK


def name_result(filed: StoredResult) -> str:
    """Return the file, learner and ε of a result, because a file name shows neither learner nor ε."""
    return f"{filed.file} ({_name_learner(filed.result)})"


def _name_learner(result: Result) -> str:
    return f"{write_result_label(result)}, ε {result.spec.epsilon:g}"


def _write_difference(found: paired.PairedComparison, metric: Metric) -> str:
    facts = METRIC_FACTS[metric]
    half = "" if math.isnan(found.half_width) else f" ± {facts.scale * found.half_width:.{facts.digits}f}"
    points = "points of " * facts.share
    return f"{facts.scale * found.difference:+.{facts.digits}f}{half} {points}{metric.replace('_', ' ')}"


def compare_results(first: StoredResult, second: StoredResult, metric: Metric = "accuracy") -> paired.PairedComparison:
    """Compare two results by the paired test of the boards (`analysis.paired`).

    Raises:
        SpecError: the results share no test examples and seeds, or lack the metric.
    """
    for stored in (first, second):
        if metric not in stored.result.metrics:
            raise SpecError(f"Expected {metric} in {stored.file}. Available: {', '.join(stored.result.metrics)}.")
    if pairing_key(first.result) != pairing_key(second.result):
        raise SpecError(
            "Expected two results on the same test examples and seeds: "
            f"{first.file} ({_describe_test_set(first.result)}) and {second.file} "
            f"({_describe_test_set(second.result)}) do not share them, so they cannot be paired."
        )
    return paired.compare_entries(
        paired.collect_ranking_scores(first.result, metric), paired.collect_ranking_scores(second.result, metric)
    )


def _describe_test_set(result: Result) -> str:
    seeds = ", ".join(map(str, result.spec.seeds))
    return f"{result.task.test:,} examples of {result.spec.dataset}, seeds {seeds}"
