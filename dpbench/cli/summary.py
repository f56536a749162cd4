"""Print a sweep's outcome in the terminal: a table of its results and the counts of its cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer
from rich.console import Console

if TYPE_CHECKING:
    from dpbench.analysis.reader import StoredResult
    from dpbench.sweep.conduct import SweepSummary


def print_summary(summary: SweepSummary, console: Console, advice: str) -> None:
    """Print a table of a sweep's results and the counts of its cells, with `advice` on failed cells.

    Raises:
        typer.Exit: a cell failed; the exit code is 1.
    """
    from dpbench.analysis.tables import make_grids
    from dpbench.cli.results import print_result_tables
    from dpbench.records.result import TWO_SEEDS_REMARK
    from dpbench.registry import load
    from dpbench.registry.components import make_component_shortener

    for cell, error in summary.failed:
        console.print(f"Failed: {cell}: {error}", soft_wrap=True, markup=False, highlight=False)
    filed = list(_read_stored_results(summary))
    if filed:
        print_result_tables(make_grids(filed, namer=make_component_shortener(load())), console)
        if any(TWO_SEEDS_REMARK in stored.result.remarks for stored in filed):
            console.print(f"Warning: {TWO_SEEDS_REMARK}", soft_wrap=True)
    console.print(
        f"{summary.grid.name}: {summary.ran} cells run, {summary.skipped} done before, {len(summary.failed)} failed"
        + (f"; {advice}" if summary.failed else ""),
        soft_wrap=True,
    )
    if summary.renewed:
        console.print(
            f"{len(summary.renewed)} finished cells were re-run because the data on this machine has changed",
            soft_wrap=True,
        )
    if summary.changed:
        console.print(
            f"{len(summary.changed)} of the finished cells were run by another version of the code; --refresh re-runs "
            "them",
            soft_wrap=True,
        )
    console.print(f"Results in {summary.folder.path}", soft_wrap=True, markup=False)
    if summary.failed:
        raise typer.Exit(1)


def _read_stored_results(summary: SweepSummary) -> Iterator[StoredResult]:
    from dpbench.analysis.reader import StoredResult

    for cell in summary.grid.cells:
        result = summary.folder.result(cell)
        if result is not None:
            yield StoredResult(summary.folder.path / cell.file_name, result)
