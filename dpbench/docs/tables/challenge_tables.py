"""What changes on boards once challenge seeds, which nobody chose, take the place of the submitters' seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from dpbench.board.index import ChallengeSummary, Entry, Standing
from dpbench.docs.tables.distance_tables import DATASET_TITLES
from dpbench.docs.tables.grid_tables import render_markdown_table

HEADS = (
    "dataset", "boards", "entries", "mean change in points", "mean absolute change", "largest", "other place",
    "boards with another leader",
)  # fmt: skip


def render_challenge_table(standings: Iterable[Standing]) -> str:
    """Return a table of the boards that challenge seeds rank: by how much entries moved, by dataset.

    Places are counted by mean score among the entries without public labels, and among those with them.
    """
    by_data: dict[str, list[Standing]] = {}
    for standing in standings:
        if standing.scored == "challenge seeds":
            by_data.setdefault(DATASET_TITLES[standing.board.dataset.name], []).append(standing)
    rows = [_make_row(name, found) for name, found in sorted(by_data.items())]
    rows.append(_make_row("**all**", [standing for found in by_data.values() for standing in found]))
    return render_markdown_table(HEADS, rows)


def _make_row(name: str, standings: Sequence[Standing]) -> list[str]:
    groups = [group for standing in standings for group in _group_by_labels(standing)]
    changes = [100 * (new.score.mean - new.submitter.mean) for group in groups for new in group]
    moved = sum(before is not after for group in groups for before, after in zip(*_order_by_either(group), strict=True))
    without_labels = [_group_by_labels(standing)[0] for standing in standings]
    others = sum(before[0] is not after[0] for before, after in map(_order_by_either, filter(None, without_labels)))
    absolute = [abs(change) for change in changes]
    figures = (f"{fmean(changes):+.2f}", f"{fmean(absolute):.2f}", f"{max(absolute):.1f}")
    return [name, f"{len(standings)}", f"{len(changes):,}", *figures, f"{moved:,}", f"{others}"]


def _group_by_labels(standing: Standing) -> list[list[ChallengeSummary]]:
    """Return the challenge seeds of ranked entries without public labels, and of those with them."""
    ranked: list[Entry] = [entry for entry in standing.entries if entry.role == "entry"]
    return [
        [entry.challenge for entry in ranked if entry.challenge is not None and entry.reads_labels == labels]
        for labels in (False, True)
    ]


def _order_by_either(group: Sequence[ChallengeSummary]) -> tuple[list[ChallengeSummary], list[ChallengeSummary]]:
    """Return the entries sorted by the submitters' seeds and by challenge seeds, best first."""
    return (
        sorted(group, key=lambda entry: -entry.submitter.mean),
        sorted(group, key=lambda entry: -entry.score.mean),
    )
