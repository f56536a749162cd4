"""One result in words, and the difference of two."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from dpbench.analysis import paired
from dpbench.analysis.formats import percent, percent_with_sign, unit_of, write_score
from dpbench.analysis.reader import StoredResult
from dpbench.analysis.risk import describe_risk
from dpbench.analysis.tables import label, test_key
from dpbench.analysis.word import list_author_word
from dpbench.errors import DataError, SpecError
from dpbench.records.groups import accuracy_by_group, find_ceiling, price_by_group, write_groups, write_price
from dpbench.records.metrics import FACTS, METRICS, Metric
from dpbench.records.packed import time_of
from dpbench.records.result import TWO_SEEDS, Result
from dpbench.support.messages import duration

Line = tuple[str, str]


def describe_result(filed: StoredResult, others: Iterable[Result] = ()) -> Iterator[Line]:
    """Yield everything that a result says, as a heading and its text.

    `others` are results of its folder: one without privacy shows what privacy costs each group of test images.
    """
    result = filed.result
    yield "learner", label(result)
    yield "settings", _settings(result)
    yield from _data(result)
    yield from _scores(result)
    yield from _groups(result, others)
    yield from _guarantee(result)
    yield from _origin(filed)
    yield "author's word", "; ".join(list_author_word(result))
    for remark in result.remarks:
        yield "note", remark


def _settings(result: Result) -> str:
    search = result.search
    written = ", ".join(f"{name}={value}" for name, value in result.settings.items()) or "none"
    how = {"default": "the defaults", "by-hand": "set by hand"}.get(result.selection, f"chosen by {result.selection}")
    tried = f", {search.tried} of {search.possible} tried" if search and search.trials else ""
    followed = f"; {', '.join(result.settled)} from n, ε and δ" if result.settled else ""
    return f"{written} ({how}{tried}{followed})"


def _data(result: Result) -> Iterator[Line]:
    spec, task = result.spec, result.task
    of = f" {spec.unit}s ({task.units.images:,} images)" if spec.unit and task.units else ""
    sizes = f"{task.private:,} private{of}, {task.public:,} public, {task.test:,} test examples"
    yield "data", f"{spec.dataset}, as {spec.extractor}: {sizes} of {len(task.classes)} classes"
    yield from (("copy of the data", edition) for edition in task.named_editions)
    for pair, counted in task.overlap.items():
        yield pair, str(counted)


def _scores(result: Result) -> Iterator[Line]:
    for metric in METRICS:
        if metric in result.metrics:
            yield metric.replace("_", " "), f"{write_score(metric, result.metrics[metric])}{unit_of(metric)}"
    if "ece" not in result.metrics:
        kept = any(seed.confusion for seed in result.seeds)
        why = "the learner gives none" if kept else "the result is from a version that did not record them"
        yield "probabilities", f"none: {why}"
    yield "by seed", ", ".join(f"{100 * one.accuracy:.2f}% (seed {one.seed})" for one in result.seeds)


def _groups(result: Result, others: Iterable[Result]) -> Iterator[Line]:
    """Yield accuracy by group, the gap between the best and the worst, and how much more privacy costs some."""
    for column in accuracy_by_group(result):
        gap = "" if column.gap is None else f"; gap {100 * column.gap:.2f} points"
        yield f"accuracy by {column.name}", write_groups(column, percent_with_sign) + gap
    ceiling = find_ceiling(result, others)
    for price in price_by_group(result, ceiling) if ceiling else ():
        if price.most:
            yield f"cost of privacy by {price.column}", write_price(price)


def _guarantee(result: Result) -> Iterator[Line]:
    privacy, other = result.privacy, result.privacy.independent
    if math.isinf(result.spec.epsilon):
        yield "privacy", "none: no noise was added"
        return
    if not privacy.plan:
        yield "privacy", result.without_private
        return
    second = f"{other.lower:.4g} to {other.upper:.4g} by {other.accountant}"
    whose = f" for a {result.spec.unit}" if result.spec.unit else ""
    yield "privacy", f"ε {privacy.epsilon:.6g}{whose} by {privacy.accountant}, {second}"
    yield "δ, neighbours", f"{privacy.delta:g}{' (pure)' * (not privacy.delta)}, {privacy.adjacency}"
    yield "membership test", describe_risk(result)
    for one in privacy.plan:
        steps = f"{one.steps:,} steps" if one.steps > 1 else "one step"
        planned = one.planned
        yield f"{type(planned).__name__.lower()} {one.name}", f"{steps}, {planned.describe(one.sigma)}"
    yield "randomness", f"{privacy.rng} RNG, {privacy.mechanism}"
    yield "not covered", "; ".join(result.not_covered)


def _origin(filed: StoredResult) -> Iterator[Line]:
    result, made = filed.result, filed.result.provenance
    took = duration(sum(result.seconds.values()))
    yield "time", f"{took} in all, {duration(result.seconds.get('fit', 0.0))} of it fitting"
    commit = f"{str(made.get('commit'))[:12]}{' with changes' if made.get('dirty') else ''}"
    where = f"{made.get('device')} ({made.get('processor')}, {made.get('platform')})"
    yield "made with", f"dpbench {made.get('dpbench')}, commit {commit}, on {where}"
    for role, item in result.components.items():
        yield f"{role.replace('_', ' ')} from", f"{item.distribution} {item.version}, plugin {item.plugin}"
    written = datetime.fromtimestamp(time_of(filed.file) / 1e9).astimezone().isoformat(" ", "minutes")
    yield "date", str(made.get("date", "not noted"))
    yield "file", f"{filed.file}, written {written}"
    yield "digest", result.digest


def describe_replacement(result: Result, file: Path) -> str:
    """Say what a result is about to replace in its file: nothing, the same predictions, or others."""
    try:
        before = Result.read(file)
    except DataError:
        return ""
    if result.privacy.rng == "secure":
        return f" (replaced another random draw{_was(before)})"
    guesses = [[seed.predictions for seed in one.seeds] for one in (before, result)]
    return (
        " (replaced a result with the same predictions)"
        if guesses[0] == guesses[1]
        else f" (replaced other predictions{_was(before)})"
    )


def _was(before: Result) -> str:
    return f", accuracy {percent(before.metrics['accuracy'])}%"


def describe_difference(first: StoredResult, second: StoredResult, metric: Metric = "accuracy") -> Iterator[str]:
    """Yield both scores, their difference with its 95% interval, and whether it is more than noise.

    Raises:
        SpecError: see `compare_results`.
    """
    found = compare_results(first, second, metric)
    for name, filed in (("A", first), ("B", second)):
        score = f"{write_score(metric, filed.result.metrics[metric])}{unit_of(metric)}"
        yield f"{name}: {_contender(filed.result)}: {score}"
    yield f"A - B: {_difference(found, metric)}, p {found.p:.2g}"
    yield "The difference is significant at 5%." if found.differs else "The difference is not significant at 5%."
    if (seeds := len(first.result.seeds)) == 1:
        yield "One seed does not show how much results vary from seed to seed. Use five or more."
    elif seeds == 2:
        yield TWO_SEEDS


def name_result(filed: StoredResult) -> str:
    """Say which result a file holds, as its name does not tell ε."""
    return f"{filed.file} ({_contender(filed.result)})"


def _contender(result: Result) -> str:
    return f"{label(result)}, ε {result.spec.epsilon:g}"


def _difference(found: paired.PairedComparison, metric: Metric) -> str:
    scale, digits, of = (100, 2, "points of ") if FACTS[metric].share else (1, 3, "")
    half = "" if math.isnan(found.half) else f" ± {scale * found.half:.{digits}f}"
    return f"{scale * found.difference:+.{digits}f}{half} {of}{metric.replace('_', ' ')}"


def compare_results(first: StoredResult, second: StoredResult, metric: Metric = "accuracy") -> paired.PairedComparison:
    """Compare two results by the paired test of the boards (`analysis.paired`).

    Raises:
        SpecError: they share no test examples and seeds to pair, or lack the metric.
    """
    for one in (first, second):
        if metric not in one.result.metrics:
            raise SpecError(f"Expected {metric} in {one.file}. Available: {', '.join(one.result.metrics)}.")
    if test_key(first.result) != test_key(second.result):
        raise SpecError(
            f"Expected two results on the same test examples and seeds: {first.file} ({_ground(first.result)}) and "
            f"{second.file} ({_ground(second.result)}) do not share them, so they cannot be paired."
        )
    return paired.compare_entries(paired.scores_of(first.result, metric), paired.scores_of(second.result, metric))


def _ground(result: Result) -> str:
    seeds = ", ".join(map(str, result.spec.seeds))
    return f"{result.task.test:,} examples of {result.spec.dataset}, seeds {seeds}"
