"""Grids of results: a grid for each protocol, a line for each learner (best first), a column for each ε.

Two results share a grid if their data are identical to the byte and they differ at most in learner, settings, ε, seeds
and whether they read public labels. In a column, results that the paired test (`analysis.paired`) cannot distinguish
from the best count as best too. Results that read no private row, or that have no privacy, are references: they are
listed below the entries and are never best.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpbench.analysis.grid import ResultGrid, make_numeric_grid
from dpbench.analysis.paired import collect_ranking_scores, compare_entries
from dpbench.analysis.reader import StoredResult
from dpbench.analysis.rows import (
    SELECTION_WORDS,
    ResultRow,
    ResultStanding,
    compute_distance_behind,
    find_best_score,
    make_result_row,
    sign_adjusted_mean,
    sort_component_options,
)
from dpbench.records.metrics import Metric
from dpbench.records.protocol import Component, Protocol
from dpbench.records.result import Result
from dpbench.records.search import UNRANKED
from dpbench.registry import ComponentKind

FREE_KEYS = {"epsilon", "seeds", "public_labels"}
"""The keys of specs that may differ within a grid, besides the learner and its settings."""
KEY_WORDS = {"epsilon": "ε", "delta": "δ"}


ComponentNamer = Callable[[ComponentKind, Component], str]


def make_grids(
    stored_results: Sequence[StoredResult],
    metric: Metric = "accuracy",
    namer: ComponentNamer = lambda _, part: str(part),
) -> list[ResultGrid[ResultRow]]:
    """Return the grids of some results, sorted by title; results without the metric are left out.

    `namer` writes the components in titles, with all options or with only the options that differ from their defaults
    (`registry.components.make_component_shortener`). Titles have all options if the short titles would not be distinct.
    """
    having = [stored for stored in stored_results if metric in stored.result.metrics]
    grounds: dict[str, list[StoredResult]] = defaultdict(list)
    results = [stored.result for stored in having]
    whole, brief = _make_protocol_titles(results, lambda _, part: str(part)), _make_protocol_titles(results, namer)
    short = dict(zip(whole, brief, strict=True))
    told_apart = len(set(short.values())) == len(short)
    for stored, title in zip(having, whole, strict=True):
        grounds[short[title] if told_apart else title].append(stored)
    return [
        _make_grid(said, ones, metric)
        for title, group in sorted(grounds.items())
        for said, ones in sorted(_group_by_data_digests(title, group).items())
    ]


def _group_by_data_digests(title: str, stored_results: Sequence[StoredResult]) -> dict[str, list[StoredResult]]:
    """Split results by their data, because scores on different data are not comparable; titles then name the data."""
    found = defaultdict[str, list[StoredResult]](list)
    for stored in stored_results:
        task = stored.result.task
        digests = "/".join(dict.fromkeys(digest[:8] for digest in task.digests.values()))
        found[f"{title}, data {digests} ({task.private:,} private, {len(task.classes)} classes)"].append(stored)
    return found if len(found) > 1 else {title: list(stored_results)}


def _make_protocol_titles(results: Sequence[Result], namer: ComponentNamer) -> list[str]:
    """Return the title of each result's protocol: dataset, extractor, and keys that vary or differ from defaults."""
    fields = [name for name in Protocol.model_fields if name not in {*FREE_KEYS, "dataset", "extractor"}]
    told = [
        name
        for name in fields
        if len({str(getattr(result.spec, name)) for result in results}) > 1
        or any(getattr(result.spec, name) != Protocol.model_fields[name].default for result in results)
    ]
    return [
        ", ".join(
            [
                namer("dataset", sort_component_options(result.spec.dataset)),
                namer("extractor", sort_component_options(result.spec.extractor)),
                *_describe_spec_fields(result, told),
            ]
        )
        for result in results
    ]


def _describe_spec_fields(result: Result, names: Iterable[str]) -> Iterable[str]:
    for name in names:
        value = getattr(result.spec, name)
        words = KEY_WORDS.get(name, name.replace("_", " "))
        if value is None:
            yield "unit image" if name == "unit" else f"no {words}"
        else:
            yield f"{words} {f'{value:g}' if isinstance(value, float) else value}"


def _make_grid(title: str, stored_results: Sequence[StoredResult], metric: Metric) -> ResultGrid[ResultRow]:
    ceilings = _find_non_private_learners(stored_results)
    beside = [
        stored
        for stored in stored_results
        if stored.result.spec.learner.name in ceilings or not stored.result.privacy.plan
    ]
    entries = [stored for stored in stored_results if stored not in beside]
    x = sorted({entry.result.spec.epsilon for entry in entries}) or [math.inf]
    ranked = {label: _make_rows_by_epsilon(ones, entries, metric) for label, ones in _group_by_label(entries).items()}
    references = {
        f"{label}{' (no privacy)' * bool(ones[0].result.privacy.plan)}": _make_reference_rows(ones, x)
        for label, ones in _group_by_label(beside).items()
    }

    def find_best_adjusted_mean(line: tuple[str, dict[float, ResultRow]]) -> float:
        return max(sign_adjusted_mean(metric, row.facts.metrics[metric]) for row in line[1].values())

    in_order = (
        dict(sorted(ranked.items(), key=_sort_key)),
        dict(sorted(references.items(), key=find_best_adjusted_mean)),
    )
    return make_numeric_grid(title, metric, "ε", *in_order)


def _find_non_private_learners(stored_results: Sequence[StoredResult]) -> set[str]:
    """Return the learners whose only results are at ε = ∞; empty if no learner has private results."""
    without = {stored.result.spec.learner.name for stored in stored_results if math.isinf(stored.result.spec.epsilon)}
    private = {
        stored.result.spec.learner.name for stored in stored_results if not math.isinf(stored.result.spec.epsilon)
    }
    return without - private if private else set()


def _group_by_label(stored_results: Sequence[StoredResult]) -> dict[str, list[StoredResult]]:
    """Group results by label. Results of the same label that share a column are split further, by their settings."""
    groups: dict[str, list[StoredResult]] = defaultdict(list)
    for stored in stored_results:
        groups[make_result_label(stored.result)].append(stored)
    return {label: ones for name, group in groups.items() for label, ones in _separate_by_settings(name, group).items()}


def _separate_by_settings(name: str, stored_results: list[StoredResult]) -> dict[str, list[StoredResult]]:
    """Give results that share a column distinct labels.

    The labels get the settings that differ. Where two labels are still equal, they also get the seeds, and then the
    results' digests. Results that share no column keep the label `name`.
    """
    if not _has_shared_column(stored_results):
        return {name: stored_results}
    differing, found = _list_differing_options(stored_results), defaultdict[str, list[StoredResult]](list)
    for stored in stored_results:
        options = stored.result.spec.learner.options
        parts = [f"{option}={_format_option(options[option])}" for option in differing if option in options]
        found[",".join(parts)].append(stored)
    split = defaultdict[str, list[StoredResult]](list)
    for settings, ones in found.items():
        called = f"{name}:{settings}" if settings else name
        for seeds, same in _separate_by_seeds(ones).items():
            clash = _has_shared_column(same)
            for member in same:
                split[", ".join(filter(None, [called, seeds, member.result.digest[:8] * clash]))].append(member)
    return split


def _separate_by_seeds(stored_results: list[StoredResult]) -> dict[str, list[StoredResult]]:
    """Separate results that share a column by number of seeds, or by the seeds themselves if two numbers are equal.

    The keys are parts of labels. There is a single group, under "", if no column is shared or all seeds are equal.
    """
    seeds = {stored.result.spec.seeds for stored in stored_results}
    if not _has_shared_column(stored_results) or len(seeds) == 1:
        return {"": stored_results}
    counted, found = len({len(seed) for seed in seeds}) == len(seeds), defaultdict[str, list[StoredResult]](list)
    for stored in stored_results:
        own = stored.result.spec.seeds
        many = "s" * (len(own) > 1)
        found[f"{len(own)} seed{many}" if counted else f"seed{many} {' '.join(map(str, own))}"].append(stored)
    return found


def _has_shared_column(stored_results: Sequence[StoredResult]) -> bool:
    return len({stored.result.spec.epsilon for stored in stored_results}) < len(stored_results)


def _format_option(value: object) -> str:
    return "auto" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def make_result_label(result: Result) -> str:
    """Return a result's label: learner, selection of settings, and whether it read public labels or no private data."""
    notes = [
        *[SELECTION_WORDS[result.selection]] * (result.selection != "default"),
        *["reads public labels"] * result.task.public_labels_seen,
        *["no private data"] * (not result.privacy.plan),
    ]
    return result.spec.learner.name + (f" ({', '.join(notes)})" if notes else "")


def _list_differing_options(stored_results: Sequence[StoredResult]) -> list[str]:
    options: list[dict[str, Any]] = [stored.result.spec.learner.options for stored in stored_results]
    names = dict.fromkeys(name for option in options for name in option)
    return [name for name in names if len({str(option.get(name)) for option in options}) > 1]


def _make_rows_by_epsilon(
    stored_results: Sequence[StoredResult], entries: Sequence[StoredResult], metric: Metric
) -> dict[float, ResultRow]:
    """Return a learner's rows by epsilon, each compared with all entries of its column."""
    found = {}
    for mine in stored_results:
        column = [entry for entry in entries if entry.result.spec.epsilon == mine.result.spec.epsilon]
        rivals = [entry for entry in column if entry.result.selection not in UNRANKED]
        best = find_best_score(metric, [entry.result.metrics[metric] for entry in column])
        behind = compute_distance_behind(metric, mine.result.metrics[metric], best)
        standing = ResultStanding(mine in rivals and _is_tied_with_best(mine, rivals, metric), behind)
        found[mine.result.spec.epsilon] = replace(make_result_row(mine), standing=standing)
    return found


def _is_tied_with_best(stored: StoredResult, rivals: Sequence[StoredResult], metric: Metric) -> bool:
    """Return whether the paired test cannot distinguish a result from the best of its column.

    The best result itself counts as tied only if another result can be paired with it.
    """
    best = max(rivals, key=lambda rival: sign_adjusted_mean(metric, rival.result.metrics[metric]))
    if stored is best:  # which is said where some other could be paired with it
        return sum(make_pairing_key(rival.result) == make_pairing_key(best.result) for rival in rivals) > 1
    if make_pairing_key(stored.result) != make_pairing_key(best.result):
        return False  # other seeds: nothing to pair
    return not compare_entries(
        collect_ranking_scores(best.result, metric), collect_ranking_scores(stored.result, metric)
    ).is_significant


def make_pairing_key(result: Result) -> tuple[object, ...]:
    """Return the facts that two results must share to be paired: seeds, private data and number of test examples."""
    return result.spec.seeds, result.task.digests.get("private"), result.task.test


def _make_reference_rows(stored_results: Sequence[StoredResult], epsilons: Sequence[float]) -> dict[float, ResultRow]:
    """Return a reference's row for every ε; where it has no result, use its row at another ε."""
    at = {stored.result.spec.epsilon: stored for stored in stored_results}
    return {epsilon: make_result_row(at.get(epsilon, stored_results[-1])) for epsilon in epsilons}


def _sort_key(line: tuple[str, Mapping[float, ResultRow]]) -> tuple[float, str]:
    """Return the sort key of a line: its mean distance behind the best over its columns, then its label."""
    label, rows = line
    gaps = [row.standing.behind or 0.0 for _, row in sorted(rows.items()) if row.standing]
    return sum(gaps) / len(gaps), label
