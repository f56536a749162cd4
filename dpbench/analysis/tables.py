"""Results -> grids: one for each protocol, a line for each learner, a column for each ε, best first.

Two results stand in one grid if they are of the same data, to the byte, and differ at most in learner, settings, ε,
seeds and whether public labels were read. In a column, those that a paired test cannot tell from the best
(`analysis.paired`) are best as well. What reads no private row, and what has no privacy, is a reference: it stands
below and is never best.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpbench.analysis.grid import Grid, grid_by_number
from dpbench.analysis.paired import compare_entries, scores_of
from dpbench.analysis.reader import StoredResult
from dpbench.analysis.rows import (
    CHOSEN,
    ResultRow,
    ResultStanding,
    best_score,
    distance_behind,
    file_row,
    merit,
    sort_options,
)
from dpbench.records.metrics import Metric
from dpbench.records.protocol import Component, Protocol
from dpbench.records.result import Result
from dpbench.records.search import UNRANKED
from dpbench.registry import Kind

FREE = {"epsilon", "seeds", "public_labels"}
"""What may differ within a grid, beside the learner and its settings."""
WORDS = {"epsilon": "ε", "delta": "δ"}


Named = Callable[[Kind, Component], str]


def arrange(
    filed: Sequence[StoredResult], metric: Metric = "accuracy", named: Named = lambda _, part: str(part)
) -> list[Grid[ResultRow]]:
    """Return the grids of some results, in the order of their titles; results without the metric are left out.

    `named` says how titles write components: with all their options, or with those that are not at their default
    (`registry.components.shorten_component`), as long as that tells them apart.
    """
    having = [one for one in filed if metric in one.result.metrics]
    grounds: dict[str, list[StoredResult]] = defaultdict(list)
    results = [one.result for one in having]
    whole, brief = _titles(results, lambda _, part: str(part)), _titles(results, named)
    short = dict(zip(whole, brief, strict=True))
    told_apart = len(set(short.values())) == len(short)
    for one, title in zip(having, whole, strict=True):
        grounds[short[title] if told_apart else title].append(one)
    return [
        _grid(said, ones, metric)
        for title, group in sorted(grounds.items())
        for said, ones in sorted(_of_one_data(title, group).items())
    ]


def _of_one_data(title: str, filed: Sequence[StoredResult]) -> dict[str, list[StoredResult]]:
    """Part results of data that have changed between them, which are no rivals: titles say which are whose."""
    found = defaultdict[str, list[StoredResult]](list)
    for one in filed:
        task = one.result.task
        digests = "/".join(dict.fromkeys(digest[:8] for digest in task.digests.values()))
        found[f"{title}, data {digests} ({task.private:,} private, {len(task.classes)} classes)"].append(one)
    return found if len(found) > 1 else {title: list(filed)}


def _titles(results: Sequence[Result], named: Named) -> list[str]:
    """Name each result's protocol: dataset, extractor, and what differs between these results or from the default."""
    fields = [name for name in Protocol.model_fields if name not in {*FREE, "dataset", "extractor"}]
    told = [
        name
        for name in fields
        if len({str(getattr(one.spec, name)) for one in results}) > 1
        or any(getattr(one.spec, name) != Protocol.model_fields[name].default for one in results)
    ]
    return [
        ", ".join(
            [
                named("dataset", sort_options(one.spec.dataset)),
                named("extractor", sort_options(one.spec.extractor)),
                *_said(one, told),
            ]
        )
        for one in results
    ]


def _said(result: Result, names: Iterable[str]) -> Iterable[str]:
    for name in names:
        value = getattr(result.spec, name)
        words = WORDS.get(name, name.replace("_", " "))
        if value is None:
            yield "unit image" if name == "unit" else f"no {words}"
        else:
            yield f"{words} {f'{value:g}' if isinstance(value, float) else value}"


def _grid(title: str, filed: Sequence[StoredResult], metric: Metric) -> Grid[ResultRow]:
    ceilings = _only_without_privacy(filed)
    beside = [one for one in filed if one.result.spec.learner.name in ceilings or not one.result.privacy.plan]
    entries = [one for one in filed if one not in beside]
    x = sorted({one.result.spec.epsilon for one in entries}) or [math.inf]
    ranked = {label: _by_epsilon(ones, entries, metric) for label, ones in _by_label(entries).items()}
    references = {
        f"{label}{' (no privacy)' * bool(ones[0].result.privacy.plan)}": _level(ones, x)
        for label, ones in _by_label(beside).items()
    }

    def best(line: tuple[str, dict[float, ResultRow]]) -> float:
        return max(merit(metric, row.facts.metrics[metric]) for row in line[1].values())

    in_order = dict(sorted(ranked.items(), key=_place)), dict(sorted(references.items(), key=best))
    return grid_by_number(title, metric, "ε", *in_order)


def _only_without_privacy(filed: Sequence[StoredResult]) -> set[str]:
    """Return the learners that have results at ε = ∞ alone, beside others that have privacy."""
    without = {one.result.spec.learner.name for one in filed if math.isinf(one.result.spec.epsilon)}
    private = {one.result.spec.learner.name for one in filed if not math.isinf(one.result.spec.epsilon)}
    return without - private if private else set()


def _by_label(filed: Sequence[StoredResult]) -> dict[str, list[StoredResult]]:
    """Group results by learner and how its settings were chosen; by settings too where those decide."""
    groups: dict[str, list[StoredResult]] = defaultdict(list)
    for one in filed:
        groups[label(one.result)].append(one)
    return {label: ones for name, group in groups.items() for label, ones in _apart(name, group).items()}


def _apart(name: str, filed: list[StoredResult]) -> dict[str, list[StoredResult]]:
    """Tell results of one column apart by the settings that differ, then by their seeds, and then by their digests."""
    if not _share_a_column(filed):
        return {name: filed}
    differing, found = _differing(filed), defaultdict[str, list[StoredResult]](list)
    for one in filed:
        options = one.result.spec.learner.options
        parts = [f"{option}={_value(options[option])}" for option in differing if option in options]
        found[",".join(parts)].append(one)
    split = defaultdict[str, list[StoredResult]](list)
    for settings, ones in found.items():
        called = f"{name}:{settings}" if settings else name
        for seeds, same in _by_seeds(ones).items():
            clash = _share_a_column(same)
            for one in same:
                split[", ".join(filter(None, [called, seeds, one.result.digest[:8] * clash]))].append(one)
    return split


def _by_seeds(filed: list[StoredResult]) -> dict[str, list[StoredResult]]:
    """Tell results of one column apart by how many seeds they have, or by which where they have as many."""
    seeds = {one.result.spec.seeds for one in filed}
    if not _share_a_column(filed) or len(seeds) == 1:
        return {"": filed}
    counted, found = len({len(one) for one in seeds}) == len(seeds), defaultdict[str, list[StoredResult]](list)
    for one in filed:
        own = one.result.spec.seeds
        many = "s" * (len(own) > 1)
        found[f"{len(own)} seed{many}" if counted else f"seed{many} {' '.join(map(str, own))}"].append(one)
    return found


def _share_a_column(filed: Sequence[StoredResult]) -> bool:
    return len({one.result.spec.epsilon for one in filed}) < len(filed)


def _value(value: object) -> str:
    return "auto" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def label(result: Result) -> str:
    """Return the learner, how its settings were chosen, and whether it read public labels."""
    notes = [
        *[CHOSEN[result.selection]] * (result.selection != "default"),
        *["reads public labels"] * result.task.public_labels_seen,
        *["no private data"] * (not result.privacy.plan),
    ]
    return result.spec.learner.name + (f" ({', '.join(notes)})" if notes else "")


def _differing(filed: Sequence[StoredResult]) -> list[str]:
    options: list[dict[str, Any]] = [one.result.spec.learner.options for one in filed]
    names = dict.fromkeys(name for one in options for name in one)
    return [name for name in names if len({str(one.get(name)) for one in options}) > 1]


def _by_epsilon(
    filed: Sequence[StoredResult], entries: Sequence[StoredResult], metric: Metric
) -> dict[float, ResultRow]:
    """Return the rows of a learner, each compared with all entries of its column."""
    found = {}
    for mine in filed:
        column = [entry for entry in entries if entry.result.spec.epsilon == mine.result.spec.epsilon]
        rivals = [entry for entry in column if entry.result.selection not in UNRANKED]
        best = best_score(metric, [entry.result.metrics[metric] for entry in column])
        behind = distance_behind(metric, mine.result.metrics[metric], best)
        standing = ResultStanding(mine in rivals and _ties(mine, rivals, metric), behind)
        found[mine.result.spec.epsilon] = replace(file_row(mine), standing=standing)
    return found


def _ties(mine: StoredResult, rivals: Sequence[StoredResult], metric: Metric) -> bool:
    """Say whether a result is the best of its column, or cannot be told from it by a test of the two."""
    best = max(rivals, key=lambda one: merit(metric, one.result.metrics[metric]))
    if mine is best:  # which is said where some other could be paired with it
        return sum(test_key(one.result) == test_key(best.result) for one in rivals) > 1
    if test_key(mine.result) != test_key(best.result):
        return False  # other seeds: nothing to pair
    return not compare_entries(scores_of(best.result, metric), scores_of(mine.result, metric)).differs


def test_key(result: Result) -> tuple[object, ...]:
    """Return what two results must share to be paired: the data, how much of it is tested on, and the seeds."""
    return result.spec.seeds, result.task.digests.get("private"), result.task.test


def _level(filed: Sequence[StoredResult], x: Sequence[float]) -> dict[float, ResultRow]:
    """Return a reference's rows, which hold at every ε: its result there, or another where there is none."""
    at = {one.result.spec.epsilon: one for one in filed}
    return {epsilon: file_row(at.get(epsilon, filed[-1])) for epsilon in x}


def _place(line: tuple[str, Mapping[float, ResultRow]]) -> tuple[float, str]:
    """Return what a line is sorted by: how far it is behind the best, on average over its columns."""
    label, rows = line
    gaps = [row.standing.behind or 0.0 for _, row in sorted(rows.items()) if row.standing]
    return sum(gaps) / len(gaps), label
