"""Columns of results: in the order of the CSV, addressed by name, with a value of every row that they are known of."""

from __future__ import annotations

import csv
import io
from functools import cache
from pathlib import Path

import pytest

from dpbench.analysis.columns import COLUMNS, ENTRY_COLUMNS, FILE_COLUMNS, Column, pick_columns
from dpbench.analysis.reader import read_results
from dpbench.analysis.rows import ResultRow, make_result_row
from dpbench.analysis.spreadsheet import render_csv
from dpbench.board.index import Index
from dpbench.board.rows import EntryRow, make_board_rows
from dpbench.errors import SpecError
from dpbench.notebook import load
from dpbench.site import entries_page
from tests.helpers.commands import call

ROOT = Path(__file__).parents[2] / "leaderboard"
BOARD = "cifar10-10000-lite0-eps3"  # ranked by the seeds of its files
FOLDER = ROOT / "results" / BOARD


@cache
def of_files() -> tuple[ResultRow, ...]:
    return tuple(make_result_row(filed) for filed in read_results([FOLDER])[0])


@cache
def of_entries() -> tuple[EntryRow, ...]:
    index = Index.read(ROOT / "leaderboard.json")
    (standing,) = (standing for standing in index.standings if standing.board.name == BOARD)
    return make_board_rows(standing)


def test_names_and_titles_are_distinct() -> None:
    for columns in (FILE_COLUMNS, ENTRY_COLUMNS):
        for texts in ([column.name for column in columns], [column.title for column in columns]):
            assert len(set(texts)) == len(texts)


def test_a_file_and_its_entry_say_the_same_of_everything_but_the_protocol() -> None:
    """A board writes its data, ε and status in its own way, and a result without noise has an ε of its own."""
    own = {"file", "dataset", "extractor", "target_epsilon", "status"}
    both = [column for column in FILE_COLUMNS if column in ENTRY_COLUMNS and column.name not in own]
    files = {Path(row.file).name: row for row in of_files()}
    for row in of_entries():
        mine = files[Path(row.file).name]
        assert [column.name for column in both if column.value(row) != column.value(mine)] == []


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: f"{column.name}-{column.known}")
def test_every_column_shows_a_text_of_every_row_that_it_is_known_of(column: Column) -> None:
    for rows, known in ((of_files()[:2], FILE_COLUMNS), (of_entries()[:2], ENTRY_COLUMNS)):
        for row in rows if column in known else ():
            assert isinstance(column.show(row), str)
            assert column.numeric_value(row) in (None, column.value(row))


def test_columns_are_picked_by_name_in_the_order_asked_for() -> None:
    assert [column.name for column in pick_columns(["sigma", "learner"], FILE_COLUMNS)] == ["sigma", "learner"]
    with pytest.raises(SpecError, match=r"^Unknown column 'rank'\. .*Available: accountant, accuracy, "):
        pick_columns(["learner", "rank"], FILE_COLUMNS)


def test_a_strangers_text_is_no_formula_of_a_spreadsheet() -> None:
    column = Column("learner", "Learner", lambda row: "=1+1", lambda row: "")
    assert render_csv(of_files()[:1], [column]) == "learner\n'=1+1\n"


def test_the_page_of_all_entries_and_the_notebook_have_columns_of_the_list() -> None:
    assert set(entries_page.COLUMNS) <= set(ENTRY_COLUMNS)
    frame = load(FOLDER)
    assert list(frame.columns) == [column.name for column in FILE_COLUMNS]
    assert frame["accuracy"].tolist() == [row.facts.metrics["accuracy"].mean for row in of_files()]


@pytest.mark.parametrize("form", ["--csv", "--markdown", "--latex", ""])
def test_the_command_prints_the_columns_that_it_is_asked_for(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("results", str(FOLDER), "--columns", "learner,sigma", *filter(None, [form])) == 0
    shown = capsys.readouterr().out
    if form == "--csv":
        rows = list(csv.reader(io.StringIO(shown)))
        assert rows[0] == ["learner", "sigma"]
        assert rows[1:] == [[row.facts.learner, str(row.facts.sigma)] for row in of_files()]
    else:
        assert all(row.facts.learner in shown and f"{row.facts.sigma:.4g}" in shown for row in of_files())
