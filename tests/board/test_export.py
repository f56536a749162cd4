"""The table of entries as Parquet: typed, whole, and read by pandas and by datasets."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from dpbench.analysis.columns import ENTRY_COLUMNS
from dpbench.board.export import render_leaderboard_csv, render_leaderboard_parquet
from dpbench.board.index import Index
from dpbench.records.board import find_board
from tests.helpers.boards import synthetic
from tests.site.test_site import standing_of

PANDAS_TYPES = {"string": "string", "int64": "Int64", "double": "Float64", "bool": "boolean"}


@pytest.fixture(scope="module")
def index() -> Index:
    """A board with entries and a reference without noise, whose target epsilon is infinite, and an open board."""
    board = find_board("digits-eps1")
    standings = standing_of(board, synthetic(board, 4, seed=0)), standing_of(find_board("pcam-resnet50-eps0.1"), [])
    return Index(ranking="By the mean.", standings=standings)


def test_pandas_reads_the_entries_with_typed_columns_and_the_values_of_the_csv(index: Index, tmp_path: Path) -> None:
    import pandas

    (tmp_path / "entries.parquet").write_bytes(render_leaderboard_parquet(index))
    frame = pandas.read_parquet(tmp_path / "entries.parquet", dtype_backend="numpy_nullable")
    assert list(frame.columns) == [column.name for column in ENTRY_COLUMNS]
    assert [str(dtype) for dtype in frame.dtypes] == [PANDAS_TYPES[column.dtype] for column in ENTRY_COLUMNS]
    rows = list(csv.DictReader(io.StringIO(render_leaderboard_csv(index))))
    assert frame["file"].tolist() == [row["file"] for row in rows]
    assert frame["accuracy"].tolist() == [float(row["accuracy"]) for row in rows]
    assert [json.loads(text) for text in frame["settings"]] == [entry.settings for entry in index.standings[0].entries]


def test_datasets_loads_the_entries_from_a_copy_of_the_repository(index: Index, tmp_path: Path) -> None:
    import datasets

    from dpbench.site.readme import ENTRIES_FILE, make_dataset_card

    (tmp_path / "README.md").write_bytes(make_dataset_card(index))
    (tmp_path / ENTRIES_FILE).write_bytes(render_leaderboard_parquet(index))
    (tmp_path / "leaderboard.json").write_text(index.model_dump_json(), encoding="utf-8")
    found = datasets.load_dataset(str(tmp_path), split="entries", cache_dir=str(tmp_path / "cache"))
    assert found.column_names == [column.name for column in ENTRY_COLUMNS]
    assert list(found["rank"]) == [entry.rank for entry in index.standings[0].entries]


def test_a_column_keeps_its_type_on_a_leaderboard_without_entries() -> None:
    import pyarrow.parquet

    empty = render_leaderboard_parquet(Index(ranking="", standings=()))
    schema = pyarrow.parquet.read_schema(io.BytesIO(empty))
    assert [str(field.type) for field in schema] == [column.dtype for column in ENTRY_COLUMNS]
