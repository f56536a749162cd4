"""`dpbench plot`, to be removed in version 0.4: `results --chart` draws a folder, `reproduce --chart` a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpbench.cli.results import check_charts, read_valid_results, write_charts
from dpbench.errors import SpecError
from dpbench.sweep import ready_made_sweeps

if TYPE_CHECKING:
    from dpbench.registry import Registry


def plot(
    sweep: Annotated[
        Path,
        typer.Argument(
            help="Folder of results, to plot accuracy against ε; sweep file with a \\[plot] table; or a ready-made "
            f"sweep: {', '.join(ready_made_sweeps.list_sweep_names())}."
        ),
    ],
    results: Annotated[Path | None, typer.Option(help="Results folder. \\[default: dpbench-results/NAME]")] = None,
    out: Annotated[
        list[Path] | None, typer.Option(help="PNG, SVG or PDF file to write; repeat for several. \\[default: NAME.png]")
    ] = None,
) -> None:
    """Draw results. Goes in version 0.4: use dpbench results --chart for a folder, reproduce --chart for a sweep."""
    check_charts(out or (), "--out")

    from dpbench.registry import load
    from dpbench_lab.figures.sweep_chart import write_sweep_chart

    plugins = load()
    plugins.report_broken_plugins()
    folder = sweep.is_dir() and str(sweep) not in ready_made_sweeps.list_sweep_names()
    if folder and results:
        raise SpecError(f"--results goes with a sweep, but {sweep} is itself a folder of results. Drop --results.")
    files = out or [Path(f"{sweep.resolve().name if folder else sweep.stem}.png")]
    charts = " ".join(f"--chart {file}" for file in files)
    if folder:
        _write_folder_chart(sweep, files, plugins)
        print("\n".join(f"Wrote {file}" for file in files))
        instead = f"dpbench results {sweep} {charts}"
    else:
        print(write_sweep_chart(sweep, results, files, plugins))
        place = f" --out {results}" if results else ""
        instead = f"dpbench reproduce {sweep}{place} --compare-only {charts}"
    typer.echo(f"dpbench: dpbench plot will be removed in version 0.4. Use: {instead}", err=True)


def _write_folder_chart(folder: Path, files: list[Path], plugins: Registry) -> None:
    from dpbench.analysis.tables import make_grids
    from dpbench.registry.components import make_component_shortener

    write_charts(
        make_grids(read_valid_results([folder]), namer=make_component_shortener(plugins)), folder.resolve().name, files
    )
