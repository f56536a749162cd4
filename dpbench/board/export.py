"""Export the leaderboard as a CSV table with one row per entry, at full precision."""

from __future__ import annotations

from dpbench.analysis.columns import ENTRY_COLUMNS
from dpbench.analysis.spreadsheet import render_csv
from dpbench.board.index import Index
from dpbench.board.rows import make_board_rows


def render_leaderboard_csv(index: Index) -> str:
    """Return the index as CSV; see `spreadsheet.render_csv`."""
    return render_csv((row for standing in index.standings for row in make_board_rows(standing)), ENTRY_COLUMNS)
