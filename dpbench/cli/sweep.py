"""`dpbench sweep`: run a grid of cells from one file; an interrupted sweep resumes where it stopped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dpbench.cli.given import UserSettings
from dpbench.cli.output import exit_with_message_on_interrupt
from dpbench.cli.summary import print_summary
from dpbench.cli.takes import add_setting_flags
from dpbench.errors import SpecError
from dpbench.records.place import RunOptions
from dpbench.sweep import ready_made_sweeps

if TYPE_CHECKING:
    from dpbench.sweep.conduct import SweepOverview
    from dpbench.sweep.resources import ExecutorName


@add_setting_flags(RunOptions, only=("device",))
def sweep(
    file: Annotated[
        Path,
        typer.Argument(
            help="TOML file with fixed keys and a grid of axes, or a ready-made sweep (dpbench list figures)."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Results folder. \\[default: dpbench-results/NAME]")] = None,
    executor: Annotated[
        str, typer.Option(help="Where cells run: local (processes), dask (a --scheduler) or slurm (jobs).")
    ] = "local",
    scheduler: Annotated[
        str | None, typer.Option(help="Dask scheduler, like tcp://host:8786. \\[default: workers on this machine]")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Cells to run at a time. \\[default: cores / threads, or GPUs]")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads per worker. \\[default: cores / workers]")] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Re-run failed cells.")] = False,
    refresh: Annotated[
        bool,
        typer.Option("--refresh", help="Re-run cells whose results come from another version of dpbench or a plugin."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the cells and their state without running them.")
    ] = False,
    slurm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="A resource that each Slurm job requests, like queue=long; repeat for several."
        ),
    ] = None,
    *,
    given: UserSettings,
) -> None:
    """Run every unfinished cell of a grid and write a JSON result per cell. Run it again to resume."""
    from dpbench.registry import load
    from dpbench.sweep import conduct
    from dpbench.sweep.resources import SweepResources, parse_slurm_options

    if dry_run and (retry_failed or refresh):
        flag = "--retry-failed" if retry_failed else "--refresh"
        raise SpecError(f"Expected --dry-run without {flag}: it shows the state of every cell and runs none.")
    jobs = parse_slurm_options(slurm) if slurm else None
    definition = ready_made_sweeps.find_sweep_file(file)
    resources = SweepResources(cast("ExecutorName", executor), scheduler, workers, threads, given.place.device, jobs)
    plugins = load()
    plugins.report_broken_plugins()
    if dry_run:
        _print_overview(conduct.get_sweep_overview(definition, out, plugins, data=True), Console())
        return
    with exit_with_message_on_interrupt("Finished cells are kept; repeat the command to continue."):
        summary = conduct.sweep(
            definition, out, resources=resources, retry_failed=retry_failed, refresh=refresh, plugins=plugins
        )
    print_summary(summary, Console(), f"{'the same command' if retry_failed else '--retry-failed'} runs them again")


def _print_overview(overview: SweepOverview, console: Console) -> None:
    from dpbench.sweep.cell_files import STATES

    axes = overview.grid.axes
    table = Table(*axes, "state", box=None)
    for cell, state in zip(overview.grid.cells, overview.states, strict=True):
        table.add_row(*(Text(str(cell.values.get(axis, ""))) for axis in axes), state)
    console.print(table)
    shown = [state for state in STATES if not state.startswith("other") or state in overview.states]
    counts = ", ".join(f"{overview.states.count(state)} {state}" for state in shown)
    duplicates = f"; {overview.grid.duplicates} duplicates" if overview.grid.duplicates else ""
    console.print(f"{len(overview.grid.cells)} cells: {counts}{duplicates}", soft_wrap=True)
    console.print(_describe_time_estimate(overview), soft_wrap=True)


def _describe_time_estimate(overview: SweepOverview) -> str:
    from dpbench.support.messages import format_duration
    from dpbench.sweep.cell_files import TO_RUN

    if not overview.cells(*TO_RUN):
        return "Nothing to do."
    if overview.seconds is None:
        return "No estimate: these learners have no finished results here."
    return (
        f"About {format_duration(overview.seconds)} with one worker, judging by finished results of the same learners."
    )
