"""What a sweep gave, as a terminal shows it: a table of results, and how many cells there were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer
from rich.console import Console

if TYPE_CHECKING:
    from dpbench.analysis.reader import StoredResult
    from dpbench.sweep import Summary


def show_summary(summary: Summary, console: Console, advice: str) -> None:
    """Print a table of a sweep's results, and how many cells there were; `advice` is for those that failed.

    Raises:
        typer.Exit: with code 1, where a cell failed.
    """
    from dpbench.analysis.tables import arrange
    from dpbench.cli.results import show_grids
    from dpbench.records.result import TWO_SEEDS
    from dpbench.registry import load
    from dpbench.registry.components import shorten_component

    for cell, error in summary.failed:
        console.print(f"Failed: {cell}: {error}", soft_wrap=True, markup=False, highlight=False)
    filed = list(_filed(summary))
    if filed:
        show_grids(arrange(filed, named=shorten_component(load())), console)
        if any(TWO_SEEDS in one.result.remarks for one in filed):
            console.print(f"Warning: {TWO_SEEDS}", soft_wrap=True)
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


def _filed(summary: Summary) -> Iterator[StoredResult]:
    from dpbench.analysis.reader import StoredResult

    for cell in summary.grid.cells:
        result = summary.folder.result(cell)
        if result is not None:
            yield StoredResult(summary.folder.path / cell.file_name, result)
