"""The table of all entries."""

from __future__ import annotations

from collections.abc import Sequence

from dpbench.analysis.columns import ENTRY_COLUMNS, Column, pick_columns
from dpbench.board.rows import EntryRow
from dpbench.site.context import SiteContext
from dpbench.site.home_page import HeatMap, list_nonempty_standings
from dpbench.site.render import PageRenderer

SHOWN_COLUMNS = (
    "rank", "learner", "score", "board", "target_epsilon", "dataset", "extractor", "selection", "reads", "trust",
    "cpu_seconds", "peak_bytes",
)  # fmt: skip
COLUMNS = pick_columns(SHOWN_COLUMNS, ENTRY_COLUMNS)
MAX_CHOICES = 200  # of one filter; the search field finds the rest
MAX_NAME_LENGTH = 120  # characters of a learner's name


def render_entries_page(site: SiteContext, heat_maps: Sequence[HeatMap], renderer: PageRenderer) -> bytes:
    """Return the page of all results by board, best first; the boards of the home page's heat map come first."""
    order = {heat_map.epsilon: place for place, heat_map in enumerate(heat_maps)}
    boards = sorted(list_nonempty_standings(site), key=lambda board: order.get(board.board.epsilon, len(order)))
    rows = [row for standing in boards for row in site.rows[standing.board.name]]
    values = {
        "rows": rows, "columns": COLUMNS, "longest": MAX_NAME_LENGTH, "boards": len(boards),
        "numeric": {column.name for column in COLUMNS if any(column.numeric_value(row) is not None for row in rows)},
        "filters": [(column, _list_filter_choices(column, rows)) for column in COLUMNS if column.filter],
        "ranked": sum(row.standing.rank is not None for row in rows),
        "first": heat_maps[0].epsilon if heat_maps else None,
    }  # fmt: skip
    return renderer.page("entries", "entries.html", "home", values)


def _list_filter_choices(column: Column, rows: Sequence[EntryRow]) -> list[str]:
    """Return the distinct values of a column, at most `MAX_CHOICES`, sorted as numbers or alphabetically."""
    found = {column.show(row): column.numeric_value(row) for row in rows}
    return sorted(found, key=lambda shown: (found[shown] or 0.0, shown))[:MAX_CHOICES]
