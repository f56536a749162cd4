"""Results -> tables: one for each protocol, a row for each learner, a column for each ε, best first.

Two results stand in one table if they are of the same data, to the byte, and differ at most in learner, settings, ε,
seeds and whether public labels were read. In a column, those that a paired test cannot tell from the best
(`analysis.paired`) are best as well. What reads no private row, and what has no privacy, is a reference: it stands
below and is never best.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dpbench.analysis.paired import compare_entries, scores_of
from dpbench.analysis.reader import StoredResult
from dpbench.records.metrics import FACTS, Metric
from dpbench.records.protocol import Component, Protocol
from dpbench.records.result import Interval, Result
from dpbench.records.search import UNRANKED
from dpbench.registry import Kind

FREE = {"epsilon", "seeds", "public_labels"}
"""What may differ within a table, beside the learner and its settings."""
WORDS = {"epsilon": "ε", "delta": "δ"}


@dataclass(frozen=True)
class TableCell:
    """One cell: a score, and whether it cannot be told from the best of its column."""

    score: Interval
    best: bool
    filed: StoredResult


@dataclass(frozen=True)
class Row:
    """One learner: a cell for each column, None where there is no result."""

    label: str
    cells: tuple[TableCell | None, ...]
    reference: bool


@dataclass(frozen=True)
class Table:
    """All results of one protocol."""

    title: str
    metric: Metric
    epsilons: tuple[float, ...]
    rows: tuple[Row, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The heads of its columns."""
        return tuple(f"ε {'∞' if math.isinf(one) else f'{one:g}'}" for one in self.epsilons)


Named = Callable[[Kind, Component], str]


def arrange(
    filed: Sequence[StoredResult], metric: Metric = "accuracy", named: Named = lambda _, part: str(part)
) -> list[Table]:
    """Return the tables of some results, in the order of their titles; results without the metric are left out.

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
        _table(said, ones, metric)
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
                named("dataset", ordered(one.spec.dataset)),
                named("extractor", ordered(one.spec.extractor)),
                *_said(one, told),
            ]
        )
        for one in results
    ]


def ordered(component: Component) -> Component:
    """Return the component with its options as a file has them: a result that was just made has another order."""
    parts = [Component(name=part.name, options=dict(sorted(part.options.items()))) for part in component.parts]
    return component.with_parts(parts)


def _said(result: Result, names: Iterable[str]) -> Iterable[str]:
    for name in names:
        value = getattr(result.spec, name)
        words = WORDS.get(name, name.replace("_", " "))
        if value is None:
            yield "unit image" if name == "unit" else f"no {words}"
        else:
            yield f"{words} {f'{value:g}' if isinstance(value, float) else value}"


def _table(title: str, filed: Sequence[StoredResult], metric: Metric) -> Table:
    ceilings = _only_without_privacy(filed)
    lines = [one for one in filed if one.result.spec.learner.name in ceilings or not one.result.privacy.plan]
    entries = [one for one in filed if one not in lines]
    columns = sorted({one.result.spec.epsilon for one in entries}) or [math.inf]
    rows = [_row(label, ones, columns, entries, metric) for label, ones in _by_label(entries).items()]
    rows = sorted(rows, key=lambda row: _behind(row, rows, metric))
    beside = [_reference(label, ones, columns, metric) for label, ones in _by_label(lines).items()]
    beside.sort(key=lambda row: max(_merit(metric, cell.score) for cell in row.cells if cell))
    return Table(title, metric, tuple(columns), (*rows, *beside))


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
    chosen = {"default": "", "by-hand": "set by hand", "public-validation": "tuned"}.get(
        result.selection, result.selection
    )
    notes = [
        *filter(None, [chosen]),
        *["reads public labels"] * result.task.public_labels_seen,
        *["no private data"] * (not result.privacy.plan),
    ]
    return result.spec.learner.name + (f" ({', '.join(notes)})" if notes else "")


def _differing(filed: Sequence[StoredResult]) -> list[str]:
    options: list[dict[str, Any]] = [one.result.spec.learner.options for one in filed]
    names = dict.fromkeys(name for one in options for name in one)
    return [name for name in names if len({str(one.get(name)) for one in options}) > 1]


def _row(
    label: str, filed: Sequence[StoredResult], columns: Sequence[float], entries: Sequence[StoredResult], metric: Metric
) -> Row:
    at = {one.result.spec.epsilon: one for one in filed}
    cells: list[TableCell | None] = []
    for epsilon in columns:
        mine = at.get(epsilon)
        rivals = [one for one in entries if one.result.spec.epsilon == epsilon and one.result.selection not in UNRANKED]
        best = mine in rivals and _ties(mine, rivals, metric) if mine else False
        cells.append(TableCell(mine.result.metrics[metric], best, mine) if mine else None)
    return Row(label, tuple(cells), reference=False)


def _ties(mine: StoredResult, rivals: Sequence[StoredResult], metric: Metric) -> bool:
    """Say whether a result is the best of its column, or cannot be told from it by a test of the two."""
    best = max(rivals, key=lambda one: _merit(metric, one.result.metrics[metric]))
    if mine is best:  # which is said where some other could be paired with it
        return sum(test_key(one.result) == test_key(best.result) for one in rivals) > 1
    if test_key(mine.result) != test_key(best.result):
        return False  # other seeds: nothing to pair
    return not compare_entries(scores_of(best.result, metric), scores_of(mine.result, metric)).differs


def test_key(result: Result) -> tuple[object, ...]:
    """Return what two results must share to be paired: the data, how much of it is tested on, and the seeds."""
    return result.spec.seeds, result.task.digests.get("private"), result.task.test


def _reference(name: str, filed: Sequence[StoredResult], columns: Sequence[float], metric: Metric) -> Row:
    """Return a row that holds at every ε: in each column its result, or another where there is none at that ε."""
    at = {one.result.spec.epsilon: one for one in filed}
    chosen = [at.get(epsilon, filed[-1]) for epsilon in columns]
    note = "" if not filed[0].result.privacy.plan else " (no privacy)"
    cells = tuple(TableCell(one.result.metrics[metric], best=False, filed=one) for one in chosen)
    return Row(name + note, cells, reference=True)


def _behind(row: Row, rows: Sequence[Row], metric: Metric) -> tuple[float, str]:
    """Return by how much a row is behind the best, on average over its columns."""
    gaps = [
        max(_merit(metric, other.score) for one in rows if (other := one.cells[place])) - _merit(metric, cell.score)
        for place, cell in enumerate(row.cells)
        if cell
    ]
    return sum(gaps) / len(gaps), row.label


def _merit(metric: Metric, score: Interval) -> float:
    """Return what is larger for a better score."""
    return score.mean if FACTS[metric].higher else -score.mean
