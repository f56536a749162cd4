"""A sweep's results so far, drawn beside the numbers that papers report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpbench.analysis.figure import write_figure
from dpbench.registry import Registry
from dpbench_lab.figures.collect import collect_sweep_figure


def write_sweep_chart(sweep: Path, results: Path | None, files: Sequence[Path], plugins: Registry) -> str:
    """Draw a sweep into every file; return a sentence that states how many cells are drawn.

    Raises:
        SpecError: the sweep file is invalid, or has no `[plot]`.
        DataMissing: no cell has a result; the message names the command that runs the cells.
        DataError: a result lacks the metric.
    """
    collected = collect_sweep_figure(sweep, results, plugins)
    for file in files:
        write_figure(collected, file)
        print(f"Wrote {file}")
    total = len(collected.positions)
    if not collected.missing:
        return f"All {total} cells have a result."
    command = f"dpbench sweep {sweep}" + (f" --out {results}" if results else "")
    return f"{len(collected.measured)} of {total} cells have a result; the rest are not drawn. To run them: {command}"
