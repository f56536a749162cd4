"""One table of all learners: idea, public data, cost and leads on the boards."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from dpbench.board.index import Entry, Index, Standing
from dpbench.docs.tables.grid_tables import render_markdown_table
from dpbench.registry import Registry
from dpbench.registry.components import READS_WORDS, read_summary
from dpbench.support.messages import seconds_in_words

HEADS = ("learner", "idea", "public data read", "seconds for a fit, median (most)", "boards at rank 1")


def render_overview(index: Index, registry: Registry) -> str:
    """Return a Markdown table with a row for each built-in learner; those without results have no cost and no rank."""
    rows = []
    for name, item in sorted(registry.components["learner"].items()):
        entries = [
            (standing, entry) for standing in index.standings for entry in standing.entries if entry.learner == name
        ]
        rows.append([f"`{name}`", read_summary(item.cls), READS_WORDS[item.cls.public], *_describe_entries(entries)])
    return render_markdown_table(HEADS, rows)


def _describe_entries(entries: Sequence[tuple[Standing, Entry]]) -> tuple[str, str]:
    """Return the cost of a fit and the number of boards at rank 1."""
    boards = {standing.board.name for standing, _ in entries}
    first = {standing.board.name for standing, entry in entries if entry.rank == 1}
    seconds = [entry.compute for _, entry in entries if entry.compute]
    cost = f"{seconds_in_words(statistics.median(seconds))} ({seconds_in_words(max(seconds))})" if seconds else ""
    return cost, f"{len(first)} of {len(boards)}" if boards else ""
