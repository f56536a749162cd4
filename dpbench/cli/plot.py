"""`dpbench plot`: the results of a sweep as a figure, beside those that papers report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpbench.studies.figures import ready_made_sweeps

if TYPE_CHECKING:
    from dpbench.studies.figures.collect import FigureData


def plot(
    sweep: Annotated[
        Path,
        typer.Argument(
            help=f"Sweep file with a \\[plot] table, or a ready-made sweep: {', '.join(ready_made_sweeps.names())}."
        ),
    ],
    results: Annotated[Path | None, typer.Option(help="Results folder. \\[default: dpbench-results/NAME]")] = None,
    out: Annotated[
        list[Path] | None, typer.Option(help="PNG, SVG or PDF file to write; repeat for several. \\[default: NAME.png]")
    ] = None,
) -> None:
    """Plot the results that a sweep has so far, next to those that papers report."""
    from dpbench.studies.figures.draw import write_figure
    from dpbench.support.charts import check_file
    from dpbench.support.files import check_writable

    for file in out or ():
        check_file(file, "--out")
        check_writable(file.parent)

    from dpbench.registry import load
    from dpbench.studies.figures.collect import collect

    plugins = load()
    plugins.report_broken()
    collected = collect(sweep, results, plugins)
    for file in out or [Path(f"{collected.name}.png")]:
        write_figure(collected, file)
        print(f"Wrote {file}")
    print(_drawn(collected, sweep, results))


def _drawn(collected: FigureData, sweep: Path, results: Path | None) -> str:
    total = len(collected.positions)
    if not collected.missing:
        return f"All {total} cells have a result."
    command = f"dpbench sweep {sweep}" + (f" --out {results}" if results else "")
    return f"{len(collected.measured)} of {total} cells have a result; the rest are not drawn. To run them: {command}"
