"""`dpbench plot`, and ready-made sweeps by name: what is printed, written and refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dpbench.records.packed import find_records
from dpbench.records.result import Result
from dpbench.studies.figures import ready_made_sweeps
from tests import readme
from tests.test_cli import Output, called, refusal

RESULTS = ("--results", str(readme.FIGURE))
current = pytest.mark.skipif(
    not any(Result.read(file).privacy.repeatable for file in find_records(readme.FIGURE)),
    reason="the committed results are by the code before, whose defaults were others",
)


@current
def test_a_ready_figure_is_drawn_into_the_working_folder(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert called("plot", "pillar-figure-4", *RESULTS) == 0
    assert capsys.readouterr().out == "Wrote pillar-figure-4.png\nAll 27 cells have a result.\n"
    assert (tmp_path / "pillar-figure-4.png").read_bytes().startswith(b"\x89PNG")


@current
def test_cells_without_a_result_are_counted_and_every_file_is_written(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "more.toml"
    file.write_text(ready_made_sweeps.find(Path("pillar-figure-4")).read_text().replace("[10,", "[5, 10,"))
    outs = [tmp_path / "drawn" / name for name in ("a.png", "a.svg")]
    assert called("plot", str(file), *RESULTS, "--out", str(outs[0]), "--out", str(outs[1])) == 0
    assert capsys.readouterr().out == (
        f"Wrote {outs[0]}\nWrote {outs[1]}\n27 of 30 cells have a result; the rest are not drawn. "
        f"To run them: dpbench sweep {file} --out {readme.FIGURE}\n"
    )
    assert all(out.is_file() for out in outs)


def test_results_are_looked_for_where_the_sweep_writes_them(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = refusal(capsys, "plot", "pillar-figure-4")
    assert "has a result in dpbench-results/pillar-figure-4. Run them first: dpbench sweep pillar-figure-4\n" in said
    assert not list(tmp_path.iterdir())


def test_a_file_of_another_kind_is_refused_before_anything_is_read(capsys: Output) -> None:
    assert "Expected --out a.gif to end in .png, .svg or .pdf." in refusal(capsys, "plot", "nothing", "--out", "a.gif")


@pytest.mark.parametrize("command", ["plot", "sweep"])
def test_a_name_that_is_neither_file_nor_ready_is_refused_with_those_that_are(command: str, capsys: Output) -> None:
    said = refusal(capsys, command, "pillar-figure-6")
    assert "No file pillar-figure-6. Unknown ready-made sweep 'pillar-figure-6'. Did you mean" in said
    assert ", ".join(ready_made_sweeps.names()) in said


@current
def test_a_ready_sweep_is_run_by_its_name(capsys: Output) -> None:
    assert called("sweep", "pillar-figure-4", "--dry-run", "--out", str(readme.FIGURE)) == 0
    said = capsys.readouterr().out  # done, or done by a plugin whose files have changed since
    counts = re.search(r"27 cells: (\d+) done,(?: (\d+) other code,)? 0 failed, 0 to do\n", said)
    assert counts and sum(int(count or 0) for count in counts.groups()) == 27


def test_help_lists_the_ready_sweeps(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert called("plot", "--help") == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert all(name in said for name in ready_made_sweeps.names())
