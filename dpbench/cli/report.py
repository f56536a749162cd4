"""`dpbench report`: write a page about a folder of results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpbench.cli.results import ScoredBy, read_metric_flag, read_valid_results


def report(
    places: Annotated[
        list[Path] | None, typer.Argument(help="Folders and result files. \\[default: dpbench-results]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="HTML file to write. \\[default: report.html in the first folder]")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page. \\[default: the name of the folder]")] = None,
    metric: Annotated[ScoredBy, typer.Option(help="Metric of the first table.")] = ScoredBy.accuracy,  # type: ignore[attr-defined]
) -> None:
    """Write a self-contained HTML page about results: scores, charts, cost, data, and the guarantee in words."""
    from dpbench.analysis.draw import MISSING, has_matplotlib
    from dpbench.registry import load
    from dpbench.registry.components import make_component_shortener
    from dpbench.site.report import default_report_path, render_report
    from dpbench.support.files import write_atomically

    chosen = places or [Path("dpbench-results")]
    filed = read_valid_results(chosen)
    file = out or default_report_path(chosen)
    page = render_report(
        filed,
        read_metric_flag(metric),
        make_component_shortener(load()),
        title or f"Results in {chosen[0].resolve().name}",
    )
    if not has_matplotlib():
        typer.echo(f"dpbench: The report has no charts. {MISSING}", err=True)
    write_atomically(file, lambda stream: stream.write(page))
    print(f"Wrote {file}: {len(filed)} results, {len(page):,} bytes.")
