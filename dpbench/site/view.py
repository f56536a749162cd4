"""Boards prepared for pages: their tables, the references beside entries, and families of boards."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dpbench.board.index import Entry, Index, Standing
from dpbench.board.rows import EntryRow, find_reference
from dpbench.privacy import MECHANISM
from dpbench.records.metrics import TITLES, Metric
from dpbench.records.result import Interval

MAX_ROWS = 500  # rows of a board's table: beyond, the table of all entries has them
GROUP_HEADS = (
    ("without-labels", "Entries that read no public labels"), ("with-labels", "Entries that read public labels"),
)  # fmt: skip
COLOUR_STEPS = (0.005, 0.01, 0.02, 0.035, 0.055, 0.09, 0.15)  # how far behind the best, in shares: each a paler colour
REFERENCE_LABELS = {"control": "public labels only", "ceiling": "no privacy"}


@dataclass(frozen=True)
class IntervalAxis:
    """The common axis of a table's interval bars, in percent, as narrow as the values allow."""

    low: float
    high: float
    ticks: tuple[float, ...]

    WIDTH: ClassVar[int] = 300  # in the bars' own units
    EDGE: ClassVar[int] = 8

    def coordinate(self, share: float) -> str:
        """Return the SVG coordinate of a value from 0 to 1; values beyond the axis are placed at its edge."""
        part = (100 * share - self.low) / (self.high - self.low)
        return f"{self.EDGE + min(max(part, 0.0), 1.0) * (self.WIDTH - 2 * self.EDGE):.1f}"

    def is_below(self, share: float) -> bool:
        """Return whether a value from 0 to 1 lies below the axis."""
        return 100 * share < self.low

    @classmethod
    def from_scores(cls, scores: Iterable[Interval | None]) -> IntervalAxis:
        """Return an axis with three to six round ticks that includes the best score and cuts off very low scores.

        A score is very low if it is more than twice as far below the median as the best score is above it. Without the
        cut, a single bad entry would leave no room to tell the others apart.
        """
        found = [score for score in scores if score]
        ends = [
            100 * end for interval in found for end in (interval.mean, interval.low, interval.high) if end is not None
        ] or [0.0, 100.0]
        middle, high = statistics.median([100 * interval.mean for interval in found] or ends), min(max(ends), 100.0)
        low = max(min(ends), middle - 2 * (high - middle), 0.0)
        if high - low < 0.5:
            low, high = max(low - 0.25, 0.0), min(high + 0.25, 100.0)
        step = next(step for step in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if (high - low) / step <= 5)
        ticks = [step * place for place in range(math.ceil(low / step), math.floor(high / step) + 1)]
        return cls(low, high, tuple(round(tick, 1) for tick in ticks))


@dataclass(frozen=True)
class RowGroup:
    """A table of a board: the entries that read public labels, or those that read none, with references by score."""

    key: str
    title: str
    rows: list[EntryRow]


@dataclass(frozen=True)
class BoardTable:
    """The tables of a board: entries that read no public labels, then those that do, each with the best first."""

    groups: tuple[RowGroup, ...]
    unranked: tuple[EntryRow, ...]
    entries: int  # with a rank
    left_out: int  # entries that are in the table of all entries alone
    axis: IntervalAxis
    ruled: tuple[tuple[str, Interval], ...]  # role and score of the references that rule the axis

    @property
    def rows(self) -> list[EntryRow]:
        """The rows of all groups."""
        return [row for group in self.groups for row in group.rows]


def make_board_table(lines: Sequence[EntryRow]) -> BoardTable:
    """Return the tables of a board's page, with at most `MAX_ROWS` entries of each role.

    A reference that reads public labels is placed among the entries that read them, and any other reference among the
    other entries. If the board has only one of these two groups, all references are placed there.
    """
    roles: dict[str, list[EntryRow]] = defaultdict(list)
    for row in lines:
        roles[row.entry.role].append(row)
    ranked, unranked = roles["entry"], roles["unranked"]
    beside = [*_choose_best_reference(roles["control"]), *_choose_best_reference(roles["ceiling"])]
    rows: dict[bool, list[EntryRow]] = defaultdict(list)
    for row in ranked[:MAX_ROWS]:
        rows[row.entry.reads_labels].append(row)
    for line in beside if rows else ():
        group = rows[line.entry.reads_labels if line.entry.reads_labels in rows else next(iter(rows))]
        group.insert(sum(_scores_at_least_as_well(row, line) for row in group), line)
    groups = tuple(RowGroup(*GROUP_HEADS[labels], found) for labels, found in sorted(rows.items()))
    ruled = tuple((row.entry.role, row.score) for row in beside if row.score)
    left_out = sum(max(len(found) - MAX_ROWS, 0) for found in (ranked, unranked))
    axis = IntervalAxis.from_scores(row.score for group in groups for row in group.rows)
    return BoardTable(groups, tuple(unranked[:MAX_ROWS]), len(ranked), left_out, axis, ruled)


def _scores_at_least_as_well(row: EntryRow, reference: EntryRow) -> bool:
    return row.score is not None and reference.score is not None and row.score.mean >= reference.score.mean


def _choose_best_reference(rows: Sequence[EntryRow]) -> list[EntryRow]:
    """Return the best of several references, preferring default settings, as a list of at most one row."""
    order = sorted(rows, key=lambda row: (row.entry.selection != "default", -(row.score.mean if row.score else -1.0)))
    return [row for row in order if row.score][:1]


def find_best_entry(standing: Standing) -> Entry | None:
    """Return the best ranked entry, or None if no entry is ranked."""
    return next((entry for entry in standing.entries if entry.role == "entry"), None)


def list_first_rank_entries(standing: Standing, *, labels: bool = False) -> list[Entry]:
    """Return the first rank-1 entry of each learner.

    Only entries that read public labels are considered if `labels`; otherwise only entries that read none.
    """
    tied = [entry for entry in standing.entries if entry.rank == 1 and entry.reads_labels is labels]
    found = {entry.learner: entry for entry in reversed(tied)}
    return sorted(found.values(), key=standing.entries.index)


def list_top_entries(standing: Standing, limit: int) -> list[Entry]:
    """Return the best ranked entries, at most `limit`.

    If more are ranked, up to two places are kept for entries that read public labels. If all ranked entries read them,
    they get all places.
    """
    ranked = [entry for entry in standing.entries if entry.role == "entry"]
    if len(ranked) <= limit:
        return ranked
    others = [entry for entry in ranked if not entry.reads_labels]
    readers = [entry for entry in ranked if entry.reads_labels][: 2 if others else limit]
    return [*others[: limit - len(readers)], *readers]


def count_ranked_entries(standing: Standing) -> int:
    """Count the ranked entries of a board."""
    return sum(entry.role == "entry" for entry in standing.entries)


def find_non_private_result(standing: Standing) -> Entry | None:
    """Return the best result without privacy, preferably with default settings, or None."""
    return find_reference(standing, "ceiling")


def find_public_only_result(standing: Standing) -> Entry | None:
    """Return the result of training on public labels alone, preferably with default settings, or None."""
    return find_reference(standing, "control")


def find_chance_score(standing: Standing, metric: str) -> float | None:
    """Return the score of guessing uniformly; None if it is unknown.

    It is known only for accuracy and balanced accuracy.
    """
    return standing.chance if metric in ("accuracy", "balanced_accuracy") and standing.chance else None


def group_families(index: Index) -> list[list[Standing]]:
    """Group boards into families, which differ only in epsilon.

    The families with the most boards that have ranked entries come first.
    """
    groups: dict[str, list[Standing]] = defaultdict(list)
    for standing in index.standings:
        groups[standing.board.family].append(standing)
    for found in groups.values():
        found.sort(key=lambda standing: standing.board.epsilon)
    return sorted(
        groups.values(),
        key=lambda found: (-sum(bool(count_ranked_entries(view)) for view in found), family_title(found[0])),
    )


def family_title(standing: Standing) -> str:
    """Return the title that all boards of a family share: a board's title without its value of epsilon.

    If the title names the unit of epsilon, as in "ε 1 for a patient", the unit stays, because families differ in it.
    """
    shared, _, budget = standing.board.title.rpartition(", ε ")
    whose = budget.partition(" ")[2]
    return f"{shared}, ε {whose}" if shared and whose else shared or standing.board.title


def privacy_unit(standing: Standing) -> str:
    """Return the privacy unit of a board, such as an image or a patient."""
    return standing.board.unit or "image"


def describe_split(standing: Standing) -> str:
    """Describe the split of a board: its numbers of private units, public images and test images."""
    private = f"{standing.private:,} private {privacy_unit(standing)}s"
    return f"{private}, {standing.public:,} public and {standing.test:,} test images"


def uncorrected_rank(entry: Entry) -> int | None:
    """Return the entry's rank without the correction for multiple comparisons; None if both ranks are the same."""
    return entry.uncorrected_rank if entry.uncorrected_rank != entry.rank else None


def has_earlier_mechanism(entry: Entry) -> bool:
    """Return whether an entry is a private result of an earlier mechanism, whose sums and noise differ from today's."""
    return entry.reads_private and entry.mechanism != MECHANISM


def count_earlier_mechanisms(index: Index) -> tuple[int, int]:
    """Count the private results of earlier mechanisms, and all private results."""
    read = [entry for standing in index.standings for entry in standing.entries if entry.reads_private]
    return sum(map(has_earlier_mechanism, read)), len(read)


def metric_title(metric: Metric) -> str:
    """Return the title of a metric as a column head."""
    return TITLES[metric]


def compute_cell_shade(row: EntryRow) -> int:
    """Return a cell's shade: 0 if tied with the best entry, otherwise 1 plus the number of `COLOUR_STEPS` exceeded."""
    return 0 if row.standing.tied else 1 + sum((row.distance_behind or 0.0) > step for step in COLOUR_STEPS)
