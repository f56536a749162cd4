"""`dpbench plot`: results as a figure: a folder's against ε, or a sweep's beside those that papers report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpbench.cli.results import read_intact
from dpbench.errors import SpecError
from dpbench.sweep import ready_made_sweeps

if TYPE_CHECKING:
    from dpbench.registry import Registry
    from dpbench_lab.figures.collect import FigureData


def plot(
    sweep: Annotated[
        Path,
        typer.Argument(
            help="Folder of results, to plot accuracy against ε; sweep file with a \\[plot] table; or a ready-made "
            f"sweep: {', '.join(ready_made_sweeps.names())}."
        ),
    ],
    results: Annotated[Path | None, typer.Option(help="Results folder. \\[default: dpbench-results/NAME]")] = None,
    out: Annotated[
        list[Path] | None, typer.Option(help="PNG, SVG or PDF file to write; repeat for several. \\[default: NAME.png]")
    ] = None,
) -> None:
    """Plot a folder of results against ε, or a sweep's results so far next to the numbers that papers report."""
    from dpbench.support.charts import check_file
    from dpbench.support.files import check_writable
    from dpbench_lab.figures.draw import write_figure

    for file in out or ():
        check_file(file, "--out")
        check_writable(file.parent)

    from dpbench.registry import load

    plugins = load()
    plugins.report_broken()
    folder = sweep.is_dir() and str(sweep) not in ready_made_sweeps.names()
    collected = _folder(sweep, results, plugins) if folder else _sweep(sweep, results, plugins)
    for file in out or [Path(f"{collected.name}.png")]:
        write_figure(collected, file)
        print(f"Wrote {file}")
    if not folder:
        print(_drawn(collected, sweep, results))


def _folder(folder: Path, results: Path | None, plugins: Registry) -> FigureData:
    from dpbench.analysis.tables import arrange
    from dpbench.registry.components import shorten_component
    from dpbench_lab.figures.collect import collect_tables

    if results:
        raise SpecError(f"--results goes with a sweep, but {folder} is itself a folder of results. Drop --results.")
    return collect_tables(folder.resolve().name, arrange(read_intact([folder]), named=shorten_component(plugins)))


def _sweep(sweep: Path, results: Path | None, plugins: Registry) -> FigureData:
    from dpbench_lab.figures.collect import collect

    return collect(sweep, results, plugins)


def _drawn(collected: FigureData, sweep: Path, results: Path | None) -> str:
    total = len(collected.positions)
    if not collected.missing:
        return f"All {total} cells have a result."
    command = f"dpbench sweep {sweep}" + (f" --out {results}" if results else "")
    return f"{len(collected.measured)} of {total} cells have a result; the rest are not drawn. To run them: {command}"
