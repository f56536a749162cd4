"""What pages show of boards, made ready: their tables, the references beside entries, and the boards akin."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar

from dpbench.board.index import Entry, Index, Standing
from dpbench.board.rows import EntryRow, find_reference
from dpbench.privacy import MECHANISM
from dpbench.records.metrics import TITLES, Metric
from dpbench.records.result import Interval

MOST = 500  # rows of a board's table: beyond, the table of all entries has them
LINES = {"control": "public labels only", "ceiling": "no privacy"}


@dataclass(frozen=True)
class Axis:
    """What the interval bars of a table share: an axis as narrow as its values allow, in percent."""

    low: float
    high: float
    ticks: tuple[float, ...]

    WIDTH: ClassVar[int] = 300  # in the bars' own units
    EDGE: ClassVar[int] = 8

    def at(self, share: float) -> str:
        """Return where a share of 1 lies, a number that SVG reads; what lies beyond stands at the edge."""
        part = (100 * share - self.low) / (self.high - self.low)
        return f"{self.EDGE + min(max(part, 0.0), 1.0) * (self.WIDTH - 2 * self.EDGE):.1f}"

    def cut(self, share: float) -> bool:
        """Return whether a share lies below the axis."""
        return 100 * share < self.low

    @classmethod
    def of(cls, scores: Iterable[Interval | None]) -> Axis:
        """Return an axis that holds the best, three to six round ticks on it, and what is far below the middle cut off.

        Far is more than twice as far as the best is above it: one bad entry would leave no room to tell others apart.
        """
        found = [one for one in scores if one]
        ends = [100 * end for one in found for end in (one.mean, one.low, one.high) if end is not None] or [0.0, 100.0]
        middle, high = statistics.median([100 * one.mean for one in found] or ends), min(max(ends), 100.0)
        low = max(min(ends), middle - 2 * (high - middle), 0.0)
        if high - low < 0.5:
            low, high = max(low - 0.25, 0.0), min(high + 0.25, 100.0)
        step = next(one for one in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if (high - low) / one <= 5)
        ticks = [step * place for place in range(math.ceil(low / step), math.floor(high / step) + 1)]
        return cls(low, high, tuple(round(one, 1) for one in ticks))


@dataclass(frozen=True)
class Table:
    """A board's lines: entries with a rank, and the references where their scores put them among the first group.

    The first group, of entries that read no public labels, and then that of those that do; the best of each first.
    """

    rows: tuple[EntryRow, ...]
    unranked: tuple[EntryRow, ...]
    entries: int  # with a rank
    left_out: int  # entries that are in the table of all entries alone
    axis: Axis
    ruled: tuple[tuple[str, Interval], ...]  # role and score of the references that rule the axis


def table(lines: Sequence[EntryRow]) -> Table:
    """Return the rows of a board as its page shows them, at most `MOST` of each role."""
    roles: dict[str, list[EntryRow]] = defaultdict(list)
    for row in lines:
        roles[row.entry.role].append(row)
    ranked, unranked = roles["entry"], roles["unranked"]
    beside = [*_once(roles["control"]), *_once(roles["ceiling"])]
    rows = ranked[:MOST]
    labels = bool(ranked) and ranked[0].entry.reads_labels  # as all do
    for line in beside:
        first_group = takewhile(lambda row: row.entry.role != "entry" or row.entry.reads_labels is labels, rows)
        rows.insert(sum(_at_least(row, line) for row in first_group), line)
    ruled = tuple((row.entry.role, row.score) for row in beside if row.score)
    left_out = sum(max(len(found) - MOST, 0) for found in (ranked, unranked))
    axis = Axis.of(row.score for row in rows)
    return Table(tuple(rows), tuple(unranked[:MOST]), len(ranked), left_out, axis, ruled)


def _at_least(row: EntryRow, line: EntryRow) -> bool:
    return row.score is not None and line.score is not None and row.score.mean >= line.score.mean


def _once(rows: Sequence[EntryRow]) -> list[EntryRow]:
    """Return one line of those that differ in nothing but how nothing was chosen: the default, else the best."""
    order = sorted(rows, key=lambda row: (row.entry.selection != "default", -(row.score.mean if row.score else -1.0)))
    return [row for row in order if row.score][:1]


def best(standing: Standing) -> Entry | None:
    """Return the first of the ranked entries."""
    return next((entry for entry in standing.entries if entry.role == "entry"), None)


def first(standing: Standing, *, labels: bool = False) -> list[Entry]:
    """Return all entries of rank 1 that read no public labels, or that do, each learner once, in order."""
    tied = [entry for entry in standing.entries if entry.rank == 1 and entry.reads_labels is labels]
    found = {entry.learner: entry for entry in reversed(tied)}
    return sorted(found.values(), key=standing.entries.index)


def some(standing: Standing, limit: int) -> list[Entry]:
    """Return the first ranked entries of a board: of a longer list, its best, the best that read labels among them."""
    ranked = [entry for entry in standing.entries if entry.role == "entry"]
    if len(ranked) <= limit:
        return ranked
    others = [entry for entry in ranked if not entry.reads_labels]
    readers = [entry for entry in ranked if entry.reads_labels][: 2 if others else limit]
    return [*others[: limit - len(readers)], *readers]


def count(standing: Standing) -> int:
    """Return how many entries are ranked."""
    return sum(entry.role == "entry" for entry in standing.entries)


def ceiling(standing: Standing) -> Entry | None:
    """Return the best result without privacy."""
    return find_reference(standing, "ceiling")


def control(standing: Standing) -> Entry | None:
    """Return what public labels alone reach: the default's result, whose learning curve it is, where there is one."""
    return find_reference(standing, "control")


def chance(standing: Standing, metric: str) -> float | None:
    """Return what a uniform guess scores, where that is known."""
    return standing.chance if metric in ("accuracy", "balanced_accuracy") and standing.chance else None


def families(index: Index) -> list[list[Standing]]:
    """Return all boards, those together that differ in epsilon alone: the largest families of entries first."""
    groups: dict[str, list[Standing]] = defaultdict(list)
    for standing in index.standings:
        groups[standing.board.family].append(standing)
    for found in groups.values():
        found.sort(key=lambda one: one.board.epsilon)
    return sorted(groups.values(), key=lambda found: (-sum(bool(count(one)) for one in found), title(found[0])))


def title(standing: Standing) -> str:
    """Return the title of a board without the number of its epsilon, which all of its family share.

    Where the title says whose epsilon it is, as in "ε 1 for a patient", that stays: boards differ in it.
    """
    shared, _, budget = standing.board.title.rpartition(", ε ")
    whose = budget.partition(" ")[2]
    return f"{shared}, ε {whose}" if shared and whose else shared or standing.board.title


def whose(standing: Standing) -> str:
    """Return what one unit of a board's guarantee is."""
    return standing.board.unit or "image"


def describe_split(standing: Standing) -> str:
    """Return how many units and images a board has."""
    return (
        f"{standing.private:,} private {whose(standing)}s, {standing.public:,} public and {standing.test:,} test images"
    )


def uncorrected(entry: Entry) -> int | None:
    """Return the rank of an entry without correction for the number of comparisons, where that is another one."""
    return entry.uncorrected_rank if entry.uncorrected_rank != entry.rank else None


def is_by_other_code(entry: Entry) -> bool:
    """Return whether the code before this one made a result: it would sum and add noise otherwise today."""
    return entry.reads_private and entry.mechanism != MECHANISM


def count_by_other_code(index: Index) -> tuple[int, int]:
    """Return how many results the code before made, and how many read private rows at all."""
    read = [entry for standing in index.standings for entry in standing.entries if entry.reads_private]
    return sum(map(is_by_other_code, read)), len(read)


def metric_name(metric: Metric) -> str:
    """Return what a column is called."""
    return TITLES[metric]
