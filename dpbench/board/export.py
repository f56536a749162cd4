"""Export the leaderboard as a table with one row per entry, at full precision: as CSV or as Parquet with typed columns.

The two formats have the same columns. `settings` is JSON text; a missing value is an empty cell in the CSV and null in
Parquet.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

from dpbench.analysis.columns import ENTRY_COLUMNS
from dpbench.analysis.spreadsheet import render_csv
from dpbench.board.index import Index
from dpbench.board.rows import EntryRow, make_board_rows


def render_leaderboard_csv(index: Index) -> str:
    """Return the index as CSV; see `spreadsheet.render_csv`."""
    return render_csv(_list_rows(index), ENTRY_COLUMNS)


def render_leaderboard_parquet(index: Index) -> bytes:
    """Return the index as a Parquet file. The same index and the same pyarrow give the same bytes."""
    import pyarrow
    import pyarrow.parquet

    rows = list(_list_rows(index))
    types = [pyarrow.field(column.name, pyarrow.type_for_alias(column.dtype)) for column in ENTRY_COLUMNS]
    values = {column.name: [column.value(row) for row in rows] for column in ENTRY_COLUMNS}
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(values, schema=pyarrow.schema(types)), file, compression="zstd")
    return file.getvalue()


def _list_rows(index: Index) -> Iterator[EntryRow]:
    return (row for standing in index.standings for row in make_board_rows(standing))
