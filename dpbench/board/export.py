"""The leaderboard as a table: one row an entry, at full precision."""

from __future__ import annotations

from dpbench.analysis.columns import OF_ENTRIES
from dpbench.analysis.spreadsheet import render_csv
from dpbench.board.index import Index
from dpbench.board.rows import board_rows


def table(index: Index) -> str:
    """Return the index as CSV; see `spreadsheet.render_csv`."""
    return render_csv((row for standing in index.standings for row in board_rows(standing)), OF_ENTRIES)
