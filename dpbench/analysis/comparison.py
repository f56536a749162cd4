"""Comparisons of a new result with the stored result that it replaces, and of the scores of any two results."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from dpbench.analysis import paired
from dpbench.analysis.formats import format_metric_score
from dpbench.analysis.reader import StoredResult
from dpbench.analysis.tables import make_pairing_key, make_result_label
from dpbench.errors import DataError, SpecError
from dpbench.records.metrics import METRIC_FACTS, Metric
from dpbench.records.result import TWO_SEEDS_REMARK, Result

MAX_NAMED_RESULTS = 12  # results that a message names


def describe_replacement(result: Result, file: Path) -> str:
    """Describe whether a new result has the same predictions as the result that it replaces in `file`.

    The text is empty if `file` has no readable result. Predictions made with secure noise are not compared, because
    each run draws other noise.
    """
    try:
        before = Result.read(file)
    except DataError:
        return ""
    if result.privacy.rng == "secure":
        return f" (replaced another random draw{_format_previous_accuracy(before)})"
    guesses = [[seed.predictions for seed in run.seeds] for run in (before, result)]
    return (
        " (replaced a result with the same predictions)"
        if guesses[0] == guesses[1]
        else f" (replaced other predictions{_format_previous_accuracy(before)})"
    )


def _format_previous_accuracy(previous: Result) -> str:
    return f", accuracy {format_metric_score('accuracy', previous.metrics['accuracy'], unit=True)}"


def describe_difference(first: StoredResult, second: StoredResult, metric: Metric = "accuracy") -> Iterator[str]:
    """Yield lines that compare two results: their scores, the difference with its 95% interval, and its significance.

    With one or two seeds, a note says that these are few.

    Raises:
        SpecError: see `compare_results`.
    """
    found = compare_results(first, second, metric)
    for name, filed in (("A", first), ("B", second)):
        score = format_metric_score(metric, filed.result.metrics[metric], unit=True)
        yield f"{name}: {_format_learner_and_epsilon(filed.result)}: {score}"
    yield f"A - B: {_format_difference(found, metric)}, p {found.p:.2g}"
    yield "The difference is significant at 5%." if found.is_significant else "The difference is not significant at 5%."
    if (seeds := len(first.result.seeds)) == 1:
        yield "One seed does not show how much results vary from seed to seed. Use five or more."
    elif seeds == 2:
        yield TWO_SEEDS_REMARK


def pair_results(
    first: Sequence[StoredResult], second: Sequence[StoredResult]
) -> Iterator[tuple[StoredResult, StoredResult]]:
    """Yield the comparable pairs of results from two lists (same test examples, seeds and ε), in ascending order of ε.

    Two lists of one result each give one pair, without any check.

    Raises:
        SpecError: there is no such pair, or a list has several results for one pair.
    """
    if len(first) == len(second) == 1:
        yield first[0], second[0]
        return
    groups = [_group_by_pairing_key(side) for side in (first, second)]
    shared = sorted(groups[0].keys() & groups[1].keys(), key=lambda key: (groups[0][key][0].result.spec.epsilon, key))
    if not shared:
        shown = f"{describe_stored_result(first[0])} and {describe_stored_result(second[0])}"
        raise SpecError(
            "Expected results of both on the same test examples and seeds, and at the same ε, found none among "
            f"{len(first)} and {len(second)}, such as {shown}."
        )
    for key in shared:
        for group in groups:
            if len(group[key]) > 1:
                shown = "; ".join(map(describe_stored_result, group[key][:MAX_NAMED_RESULTS]))
                raise SpecError(f"Expected one result for each side, got {len(group[key])}: {shown}. Name two files.")
        yield groups[0][key][0], groups[1][key][0]


def _group_by_pairing_key(results: Sequence[StoredResult]) -> dict[str, list[StoredResult]]:
    """Group results by the facts that the two results of a pair share: `make_pairing_key` and ε."""
    found: dict[str, list[StoredResult]] = defaultdict(list)
    for stored in results:
        found[f"{make_pairing_key(stored.result)} {stored.result.spec.epsilon}"].append(stored)
    return found


def describe_stored_result(stored: StoredResult) -> str:
    """Return the file, learner and ε of a result, because a file name shows neither learner nor ε."""
    return f"{stored.file} ({_format_learner_and_epsilon(stored.result)})"


def _format_learner_and_epsilon(result: Result) -> str:
    return f"{make_result_label(result)}, ε {result.spec.epsilon:g}"


def _format_difference(comparison: paired.PairedComparison, metric: Metric) -> str:
    facts = METRIC_FACTS[metric]
    half = (
        ""
        if math.isnan(comparison.interval_half_width)
        else f" ± {facts.scale * comparison.interval_half_width:.{facts.digits}f}"
    )
    if facts.share and comparison.interval_half_width > 1:
        half = " (too few test examples or seeds for an interval)"
    points = "points of " * facts.share
    return f"{facts.scale * comparison.difference:+.{facts.digits}f}{half} {points}{metric.replace('_', ' ')}"


def compare_results(first: StoredResult, second: StoredResult, metric: Metric = "accuracy") -> paired.PairedComparison:
    """Compare two results with the paired test of the boards (`analysis.paired`).

    Raises:
        SpecError: the results share no test examples and seeds, or lack the metric.
    """
    for stored in (first, second):
        if metric not in stored.result.metrics:
            raise SpecError(f"Expected {metric} in {stored.file}. Available: {', '.join(stored.result.metrics)}.")
    if make_pairing_key(first.result) != make_pairing_key(second.result):
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
