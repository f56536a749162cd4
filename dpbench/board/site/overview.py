"""The first page: every board in a row, and every entry of all boards as data that the page's script filters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dpbench.board.index import Entry, Index, Standing
from dpbench.board.site import output, text, view
from dpbench.board.site.render import Renderer

FIRST = 25  # entries that stand in the page itself, before any script has run
CHOICES = 200  # of one filter; the search field finds the rest
NAME = 120  # characters of a learner's name in the data
COLUMNS = (  # their order is the script's too
    {"title": "Learner", "kind": ""},
    {"title": "Score", "kind": "number"},
    {"title": "Rank", "kind": "number"},
    {"title": "ε", "kind": "number"},
    {"title": "Board", "kind": "name"},
    {"title": "Dataset", "kind": "name"},
    {"title": "Extractor", "kind": "name"},
    {"title": "Selection", "kind": "name"},
    {"title": "Compute of a fit (s)", "kind": "number"},
)


@dataclass(frozen=True)
class Filled:
    """A board that has results."""

    standing: Standing
    best: Entry | None
    best_page: str
    ceiling: Entry | None

    @property
    def entries(self) -> int:
        """Return how many results are entries."""
        return sum(entry.role == "entry" for entry in self.standing.entries)


def overview(index: Index, renderer: Renderer) -> bytes:
    """Return the first page."""
    pairs = [(standing, entry) for standing in index.standings for entry in standing.entries if entry.role != "ceiling"]
    values = {
        "filled": [_filled(standing) for standing in index.standings if standing.entries],
        "open": [standing for standing in index.standings if not standing.entries],
        "filters": _filters(pairs),
        "columns": COLUMNS,
        "rows": {"rows": len(pairs), "first": [_cells(*pair) for pair in pairs[:FIRST]], "data": _data(index)},
        "ranking": index.ranking,
    }
    return renderer.page("index", 0, values)


def _filled(standing: Standing) -> Filled:
    best = view.best(standing)
    return Filled(standing, best, output.page(standing, best) if best else "", view.ceiling(standing))


def _filters(pairs: list[tuple[Standing, Entry]]) -> list[dict[str, Any]]:
    """Return the filters; `column` is the place in a row of the script's."""
    boards = list({standing.board.name: standing for standing, _ in pairs}.values())
    budgets = {text.budget(standing.board.epsilon): standing.board.epsilon for standing in boards}
    return [
        _choices("Dataset", 5, (standing.board.dataset.name for standing in boards)),
        _choices("Extractor", 6, (standing.board.extractor.names for standing in boards)),
        {"label": "ε", "column": 3, "values": sorted(budgets, key=lambda said: budgets[said])[:CHOICES]},
        _choices("Board", 4, (standing.board.name for standing in boards)),
        _choices("Learner", 0, (text.shown(entry.learner, NAME) for _, entry in pairs)),
        _choices("Selection", 7, (entry.selection for _, entry in pairs)),
    ]


def _choices(label: str, column: int, values: Iterable[str]) -> dict[str, Any]:
    return {"label": label, "column": column, "values": sorted(set(values))[:CHOICES]}


def _cells(standing: Standing, entry: Entry) -> dict[str, Any]:
    """Return a row as the page has it before a script runs: what the script makes of the same entry."""
    board = standing.board
    cells = (
        text.shown(entry.learner, NAME), text.spread(entry.metrics.get(board.metric)),
        text.NONE if entry.rank is None else entry.rank, text.budget(board.epsilon), board.name, board.dataset.name,
        board.extractor.names, entry.selection, f"{entry.compute:.2f}",
    )  # fmt: skip
    return {"cells": cells, "page": output.page(standing, entry)}


def _data(index: Index) -> dict[str, Any]:
    """Return boards once, and a short row an entry: ten thousand of them fit into a megabyte or so."""
    boards = [
        (one.board.name, one.board.dataset.name, one.board.extractor.names, text.budget(one.board.epsilon))
        for one in index.standings
    ]
    rows = []
    for number, standing in enumerate(index.standings):
        for entry in standing.entries:
            if entry.role != "ceiling":
                rows.append((number, text.shown(entry.learner, NAME), *_score(standing, entry), entry.rank,
                             entry.selection, round(entry.compute, 2), entry.id))  # fmt: skip
    return {"boards": boards, "rows": rows}


def _score(standing: Standing, entry: Entry) -> tuple[float | None, float | None]:
    interval = entry.metrics.get(standing.board.metric)
    if interval is None:
        return None, None
    half = text.half_width(interval)
    return round(100 * interval.mean, 3), None if half is None else round(100 * half, 3)
