"""The table of all learners: idea, public data read, cost, boards at rank 1, and origin of the constants."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from dpbench.board.index import Entry, Index, Standing
from dpbench.docs.tables.grid_tables import render_markdown_table
from dpbench.registry import Registry
from dpbench.registry.components import read_docstring_summary
from dpbench.support.messages import format_seconds

HEADS = "learner", "idea", "reads", "seconds a fit, median (most)", "boards at rank 1", "constants chosen on"
READS = {"none": "nothing", "unlabelled": "features", "labelled": "labels"}
IMAGES = "training images of "  # what the page says of constants, unless they are from elsewhere


def render_learner_overview(index: Index, registry: Registry) -> str:
    """Return a Markdown table with a row for each learner; learners without results have no cost and no rank."""
    rows = []
    for name, item in sorted(registry.components["learner"].items()):
        entries = [
            (standing, entry) for standing in index.standings for entry in standing.entries if entry.learner == name
        ]
        facts = (read_docstring_summary(item.cls), READS[item.cls.public], *_describe_entries(entries))
        rows.append([f"`{name}`", *facts, item.cls.rule_origin.removeprefix(IMAGES)])
    return render_markdown_table(HEADS, rows)


def _describe_entries(entries: Sequence[tuple[Standing, Entry]]) -> tuple[str, str]:
    """Return the cells for a learner's seconds and for the boards on which it has rank 1; empty without entries.

    The second cell has the number of boards with rank 1, the number of boards with entries, and the datasets of the
    boards with rank 1.
    """
    boards = {standing.board.name: standing.board.dataset.name for standing, _ in entries}
    first = {standing.board.name for standing, entry in entries if entry.rank == 1}
    leads, on = f"{len(first)} of {len(boards)}" if boards else "", {boards[name] for name in first}
    names = "all data" if on == {*boards.values()} else ", ".join(sorted(on))
    seconds = [entry.compute for _, entry in entries if entry.compute]
    cost = f"{format_seconds(statistics.median(seconds))} ({format_seconds(max(seconds))})" if seconds else ""
    return cost, f"{leads}: {names}" if on else leads
