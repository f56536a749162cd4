"""Rows of a board: each result with its rank, ties and distance from the best entry, computed once."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpbench.analysis.rows import (
    SELECTION_WORDS,
    ResultFacts,
    ResultRow,
    ResultStanding,
    compute_distance_behind,
    find_best_score,
)
from dpbench.board.index import Entry, Standing
from dpbench.records.board import Board
from dpbench.records.result import Interval

FACT_FIELDS = tuple(field.name for field in dataclasses.fields(ResultFacts))


@dataclass(frozen=True, kw_only=True)
class EntryRow(ResultRow):
    """A result on its board, with its rank and its distance from the best entry."""

    protocol: Board
    standing: ResultStanding
    entry: Entry
    above: float | None  # the score of the ceiling less this one, in shares of 1
    differs: str  # settings that tell it from other entries of its learner

    @property
    def distance_behind(self) -> float | None:
        """Distance from the best comparable entry, as a share of 1; negative for a reference that scores better."""
        return self.standing.behind

    @property
    def label(self) -> str:
        """The learner's name, followed by the selection rule unless its settings are the defaults."""
        return format_entry_label(self.entry)


def make_board_rows(standing: Standing) -> tuple[EntryRow, ...]:
    """Return all results of a board as rows, in the board's order.

    An entry that reads public labels is compared with the best of all entries. Any other entry, and each reference, is
    compared with the best entry that reads no public labels.
    """
    metric, varied = standing.board.metric, _find_varied_settings(standing.entries)
    rivals = {labels: count_rivals(standing, labels=labels) for labels in (False, True)}
    tops, limit = _find_best_scores(standing), find_reference(standing, "ceiling")
    rows = []
    for entry in standing.entries:
        score = entry.metrics.get(metric)
        top = tops.get(entry.role == "entry" and entry.reads_labels)
        behind = compute_distance_behind(metric, score, top) if score and top else None
        above = compute_distance_behind(metric, score, limit.metrics[metric]) if score and limit else None
        rows.append(EntryRow(
            file=entry.file, protocol=standing.board, entry=entry, above=above,
            facts=ResultFacts(**{name: getattr(entry, name) for name in FACT_FIELDS}),
            standing=_make_result_standing(entry, standing.board, behind, rivals[entry.reads_labels]),
            differs=_describe_settings(entry, varied[entry.learner]),
        ))  # fmt: skip
    return tuple(rows)


def _describe_settings(entry: Entry, varied: Sequence[str]) -> str:
    shown = [f"{key}={entry.settings[key]}" for key in varied if key in entry.settings]
    if entry.defaults_version:
        chosen = "defaults" if entry.selection == "default" else "open settings"
        shown.append(f"{chosen} of version {entry.defaults_version}")
    if entry.challenge is not None and entry.challenge.replaced:
        shown.append(f"challenge seeds drawn {entry.challenge.replaced + 1} times")
    return ", ".join(shown)


def _find_best_scores(standing: Standing) -> Mapping[bool, Interval]:
    """Return the best score among entries without public labels (key False) and among all entries (key True).

    Both scores are the same if all entries read public labels. The mapping is empty if no entry is ranked.
    """
    ranked = [entry for entry in standing.entries if entry.role == "entry"]
    alone = [entry for entry in ranked if not entry.reads_labels] or ranked
    metric = standing.board.metric
    return {
        labels: find_best_score(metric, [entry.metrics[metric] for entry in group])
        for labels, group in ((False, alone), (True, ranked))
        if group
    }


def _make_result_standing(entry: Entry, board: Board, behind: float | None, rivals: int) -> ResultStanding:
    return ResultStanding(
        tied=entry.rank == 1, behind=behind, board=board.name, role=entry.role, rank=entry.rank,
        uncorrected_rank=entry.uncorrected_rank, rivals=rivals, why=entry.why, trust=entry.trust,
        checks=describe_trust(entry), reproduced=entry.reproduced, reads=entry.reads, command=entry.command,
    )  # fmt: skip


def count_rivals(standing: Standing, *, labels: bool) -> int:
    """Count the ranked entries: all of them if `labels`, otherwise those that read no public labels."""
    return sum(entry.role == "entry" and (labels or not entry.reads_labels) for entry in standing.entries)


def find_reference(standing: Standing, role: str) -> Entry | None:
    """Return the board's reference with this role; None if none has a score by the board's metric.

    If there are several, those with default settings come first, and then the highest score decides.
    """
    metric = standing.board.metric
    found = [entry for entry in standing.entries if entry.role == role and metric in entry.metrics]
    return max(found, key=lambda entry: _reference_sort_key(entry, metric), default=None)


def find_reference_row(rows: Sequence[EntryRow], role: str) -> EntryRow | None:
    """Return the row of the board's reference with this role, chosen as by `find_reference`; None if there is none."""
    found = [row for row in rows if row.entry.role == role and row.score]
    return max(found, key=lambda row: _reference_sort_key(row.entry, row.protocol.metric), default=None)


def _reference_sort_key(entry: Entry, metric: str) -> tuple[bool, float]:
    return entry.selection == "default", entry.metrics[metric].mean


def format_entry_label(entry: Entry) -> str:
    """Return an entry's learner, followed by the selection rule unless its settings are the defaults."""
    return entry.learner if entry.selection == "default" else f"{entry.learner}, {SELECTION_WORDS[entry.selection]}"


def describe_trust(entry: Entry) -> str:
    """Describe in a few words how far an entry was verified, such as "reproduced and audited"."""
    again = entry.again
    words = []
    if entry.reproduced:
        words.append("reproduced")
    elif again is not None:
        many = f"{max(1, len(again.seeds))} of {again.of or entry.seeds} seeds"
        words.append("re-run by other code" if again.code == "other" else f"{many} re-run")
    return " and ".join(words + ["audited"] * (entry.audit is not None)) or entry.trust


def _find_varied_settings(entries: Sequence[Entry]) -> Mapping[str, list[str]]:
    """Return, for each learner, the settings that have several values among its entries.

    An entry that is the learner's only one with its selection rule does not count.
    """
    alike = Counter((entry.learner, entry.selection) for entry in entries)
    values: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for entry in entries:
        if alike[entry.learner, entry.selection] > 1:
            for key, value in entry.settings.items():
                values[entry.learner][key].add(value)
    found = {learner: [key for key, seen in keys.items() if len(seen) > 1] for learner, keys in values.items()}
    return defaultdict(list, found)
