"""The table of all entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dpbench.analysis.describe import CHOSEN
from dpbench.board.index import Entry, Standing
from dpbench.site import layout, text, view
from dpbench.site.context import Site
from dpbench.site.cost import Cost, cost
from dpbench.site.home_page import HeatMap, filled_boards
from dpbench.site.render import Renderer
from dpbench.site.words import name_trust

CHOICES = 200  # of one filter; the search field finds the rest
NAME = 120  # characters of a learner's name
FILTERS = {"Dataset": 5, "Extractor": 6, "ε": 4, "Learner": 1, "Settings": 7, "Public data": 8, "Trust": 9}
"""What the table is filtered by, and its column."""


@dataclass(frozen=True)
class EntryRow:
    """One row: what its cells say, from the second on, and what they sort by where that is another thing."""

    page: str
    rank: int | None
    uncorrected: int | None  # the rank without correction, where it differs
    learner: str
    score: str
    mean: float
    epsilon: str
    board: str
    cells: tuple[str, ...]  # dataset, extractor, settings, public data, trust
    cost: Cost
    cpu_seconds: float
    peak_bytes: int


def entries_page(site: Site, found: Sequence[HeatMap], renderer: Renderer) -> bytes:
    """Return the page of all results: the boards of the home page's map first, then epsilon by epsilon; best first."""
    order = {one.epsilon: place for place, one in enumerate(found)}
    boards = sorted(filled_boards(site), key=lambda one: order.get(one.board.epsilon, len(order)))
    rows = [_row(standing, entry) for standing in boards for entry in standing.entries]
    budgets = {text.budget(one.board.epsilon): one.board.epsilon for one in boards}
    choices = {
        "Dataset": _sorted(one.board.dataset.name for one in boards),
        "Extractor": _sorted(one.board.extractor.names for one in boards),
        "ε": sorted(budgets, key=lambda said: budgets[said])[:CHOICES],
        "Learner": _sorted(row.learner for row in rows),
        "Settings": _sorted(CHOSEN[entry.selection] for _, entry in site.entries),
        "Public data": _sorted(entry.reads for _, entry in site.entries),
        "Trust": _sorted(name_trust(entry) for _, entry in site.entries),
    }
    ranked = sum(row.rank is not None for row in rows)
    values = {
        "rows": rows, "filters": FILTERS, "choices": choices, "ranked": ranked, "boards": len(boards),
        "first": found[0].epsilon if found else None,
    }  # fmt: skip
    return renderer.page("entries", "entries.html", "entries", values)


def _sorted(values: Iterable[str]) -> list[str]:
    return sorted(set(values))[:CHOICES]


def _row(standing: Standing, entry: Entry) -> EntryRow:
    board, score = standing.board, entry.metrics.get(standing.board.metric)
    cells = (board.dataset.name, board.extractor.names, CHOSEN[entry.selection], entry.reads, name_trust(entry))
    return EntryRow(
        layout.page(standing, entry), entry.rank, view.uncorrected(entry), text.show_string(entry.learner, NAME),
        text.spread(score), round(score.mean, 6) if score else -1.0, text.budget(board.epsilon), board.name, cells,
        cost(entry), entry.cpu_seconds or 0.0, entry.peak_bytes,
    )  # fmt: skip
