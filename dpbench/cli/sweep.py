"""`dpbench sweep`: many runs from one file, stopped and resumed without loss."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console
from rich.table import Table

from dpbench.cli import flags
from dpbench.sweep.figures import ready

if TYPE_CHECKING:
    from dpbench.sweep import Summary, Survey
    from dpbench.sweep.using import ExecutorName


def sweep(
    file: Annotated[
        Path,
        typer.Argument(
            help="TOML file of fixed keys and a grid of axes, or the name of a ready-made sweep; "
            "dpbench plot --help lists them."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for results. \\[default: dpbench-results/NAME]")] = None,
    executor: Annotated[str, typer.Option(help="local: processes here; dask: a cluster; slurm: its jobs.")] = "local",
    scheduler: Annotated[
        str | None, typer.Option(help="Dask's scheduler, like tcp://host:8786. \\[default: workers of this machine]")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Cells at a time. \\[default: cores / threads, or GPUs]")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of each worker. \\[default: cores / workers]")] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed cells again.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the cells and their state; run nothing.")] = False,
    slurm: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="What each Slurm job asks for, such as queue=long; repeatable."),
    ] = None,
    device: flags.Device = "auto",
) -> None:
    """Run every cell of a grid that is not done yet; write one JSON result a cell."""
    from dpbench import sweep as sweeps
    from dpbench.registry import load

    asked = sweeps.slurm_settings(slurm) if slurm else None
    source = ready.find(file)
    using = sweeps.Using(cast("ExecutorName", executor), scheduler, workers, threads, device, asked)
    plugins = load()
    plugins.report_broken()
    if dry_run:
        _show_survey(sweeps.survey(source, out, plugins), Console())
        return
    try:
        summary = sweeps.sweep(source, out, using=using, retry_failed=retry_failed, plugins=plugins)
    except KeyboardInterrupt:
        print("dpbench: Interrupted. What is finished is kept; the same command goes on from there.", file=sys.stderr)
        raise typer.Exit(130) from None
    _show(summary, Console())
    if summary.failed:
        raise typer.Exit(1)


def _show_survey(survey: Survey, console: Console) -> None:
    axes = survey.grid.axes
    table = Table(*axes, "state", box=None)
    for cell, state in zip(survey.grid.cells, survey.states, strict=True):
        table.add_row(*(str(cell.values.get(axis, "")) for axis in axes), state)
    console.print(table)
    counts = ", ".join(f"{survey.states.count(state)} {state}" for state in ("done", "failed", "to do"))
    merged = f"; {survey.grid.merged} described again" if survey.grid.merged else ""
    console.print(f"{len(survey.grid.cells)} cells: {counts}{merged}", soft_wrap=True)
    console.print(_estimate(survey), soft_wrap=True)


def _estimate(survey: Survey) -> str:
    from dpbench.support.messages import duration

    if "to do" not in survey.states:
        return "Nothing to do."
    if survey.seconds is None:
        return "No estimate: none of these learners has a finished result here."
    return f"About {duration(survey.seconds)} with one worker, by the finished results of the same learners."


def _show(summary: Summary, console: Console) -> None:
    for cell, error in summary.failed:
        console.print(f"Failed: {cell}: {error}", soft_wrap=True, markup=False, highlight=False)
    console.print(
        f"{summary.grid.name}: {summary.ran} cells run, {summary.skipped} done before, {len(summary.failed)} failed"
        + ("; --retry-failed runs them again" if summary.failed else ""),
        soft_wrap=True,
    )
    console.print(f"Results in {summary.folder.path}", soft_wrap=True)
