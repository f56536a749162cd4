"""`dpbench plot`, and ready-made sweeps by name: what is printed, written and refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dpbench.analysis import figure_data
from dpbench.analysis.figure import draw_figure
from dpbench.analysis.figure_data import collect_figure_data
from dpbench.analysis.plots import PlotPosition
from dpbench.analysis.reader import read_results
from dpbench.analysis.tables import make_grids
from dpbench.records.packed import list_records
from dpbench.records.result import Result
from dpbench.sweep import ready_made_sweeps
from tests.helpers import readme
from tests.helpers.commands import Output, Refusal, call

RESULTS = ("--results", str(readme.FIGURE))
current = pytest.mark.skipif(
    not any(Result.read(file).privacy.uses_current_mechanism for file in list_records(readme.FIGURE)),
    reason="the committed results are by the code before, whose defaults were others",
)


@current
def test_a_ready_figure_is_drawn_into_the_working_folder(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("plot", "pillar-figure-4", *RESULTS) == 0
    assert capsys.readouterr().out == "Wrote pillar-figure-4.png\nAll 27 cells have a result.\n"
    assert (tmp_path / "pillar-figure-4.png").read_bytes().startswith(b"\x89PNG")


@current
def test_cells_without_a_result_are_counted_and_every_file_is_written(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "more.toml"
    file.write_text(ready_made_sweeps.find_sweep_file(Path("pillar-figure-4")).read_text().replace("[10,", "[5, 10,"))
    outs = [tmp_path / "drawn" / name for name in ("a.png", "a.svg")]
    assert call("plot", str(file), *RESULTS, "--out", str(outs[0]), "--out", str(outs[1])) == 0
    assert capsys.readouterr().out == (
        f"Wrote {outs[0]}\nWrote {outs[1]}\n27 of 30 cells have a result; the rest are not drawn. "
        f"To run them: dpbench sweep {file} --out {readme.FIGURE}\n"
    )
    assert all(out.is_file() for out in outs)


def test_results_are_looked_for_where_the_sweep_writes_them(
    tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = refusal.command("plot", "pillar-figure-4")
    assert "has a result in dpbench-results/pillar-figure-4. Run them first: dpbench sweep pillar-figure-4\n" in said
    assert not list(tmp_path.iterdir())


def test_a_file_of_another_kind_is_refused_before_anything_is_read(refusal: Refusal) -> None:
    assert "Expected --out a.gif to end in .png, .svg or .pdf." in refusal.command("plot", "nothing", "--out", "a.gif")


@pytest.mark.parametrize("command", ["plot", "sweep"])
def test_a_name_that_is_neither_file_nor_ready_is_refused_with_those_that_are(command: str, refusal: Refusal) -> None:
    said = refusal.command(command, "pillar-figure-60")
    assert "No file pillar-figure-60. Unknown ready-made sweep 'pillar-figure-60'. Did you mean" in said
    assert ", ".join(ready_made_sweeps.list_sweep_names()) in said


@pytest.mark.slow
@current
def test_a_ready_sweep_is_run_by_its_name(capsys: Output) -> None:
    assert call("sweep", "pillar-figure-4", "--dry-run", "--out", str(readme.FIGURE)) == 0
    said = capsys.readouterr().out  # done, or done by a plugin whose files have changed since
    counts = re.search(r"27 cells: (\d+) done,(?: (\d+) other code,)? 0 failed, 0 to do\n", said)
    assert counts and sum(int(count or 0) for count in counts.groups()) == 27


def test_help_lists_the_ready_sweeps(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert call("plot", "--help") == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert all(name in said for name in ready_made_sweeps.list_sweep_names())


def test_a_folder_of_results_is_drawn_against_epsilon(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    boards = [readme.LEADERBOARD / "results" / f"digits-eps{epsilon}" for epsilon in ("1", "8")]
    tables = make_grids(read_results(boards)[0])
    drawn = collect_figure_data("digits", tables)
    axes = draw_figure(drawn).axes
    assert [(axis.get_xscale(), [tick.get_text() for tick in axis.get_xticklabels()]) for axis in axes] == [
        ("log", ["1", "8"])
    ]
    assert drawn.measured[PlotPosition((), "thrift", 8.0)] == next(
        tables[0].score(row) for line, row in tables[0].column(1) if line.label == "thrift"
    )
    assert call("plot", str(boards[0])) == 0
    assert capsys.readouterr().out == "Wrote digits-eps1.png\n"
    assert (tmp_path / "digits-eps1.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_drawn_of_a_folder_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Refusal
) -> None:
    board = str(readme.LEADERBOARD / "results" / "digits-eps1")
    said = refusal.command("plot", board, "--results", board)
    assert f"--results goes with a sweep, but {board} is itself a folder" in said
    assert f"Expected results in {tmp_path}, found none." in refusal.command("plot", str(tmp_path))
    monkeypatch.setattr(figure_data, "MAX_PANELS", 0)
    assert "Expected results of up to 0 protocols in digits-eps1, got 1." in refusal.command("plot", board)
