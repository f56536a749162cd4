"""A sweep's results, each at its position in the plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpbench import registry
from dpbench.errors import DataError, DataMissing, SpecError
from dpbench.records.result import Interval, Result
from dpbench.registry import Registry
from dpbench.sweep import Cell, overview
from dpbench.sweep.figures import published, ready
from dpbench.sweep.figures.published import Series
from dpbench.sweep.plot import Plot, Position, position


@dataclass(frozen=True)
class Collected:
    """Everything that is drawn."""

    name: str
    plot: Plot
    positions: tuple[Position, ...]  # of all cells, in the grid's order
    measured: Mapping[Position, Interval]  # of the cells that have a result, in the grid's order
    seeds: tuple[int, ...]  # how many each result has
    series: Sequence[Series]

    @property
    def missing(self) -> int:
        """How many cells have no result."""
        return len(self.positions) - len(self.measured)


def collect(named: Path, results: Path | None = None, plugins: Registry | None = None) -> Collected:
    """Return the results of a sweep with their positions; files of other sweeps in the folder are ignored.

    Args:
        named: a sweep file, or the name of a ready-made one.
        results: the results folder; by default the one that the sweep writes to.
        plugins: the registry, if it is already loaded.

    Raises:
        SpecError: the sweep file is invalid, or has no `[plot]`.
        DataMissing: no cell has a result; names the command that runs them.
        DataError: a result lacks the metric.
    """
    file = ready.find(named)
    found = overview(file, results, plugins or registry.load())
    grid, plot = found.grid, found.grid.plot
    if plot is None:
        raise SpecError(f'Expected a table [plot] in {file}: how results are drawn, like x = "epsilon".')
    series = published.chosen(plot, str(file))
    kept = {cell.digest: result for cell in found.cells("done", "other code") if (result := found.folder.result(cell))}
    if not kept:
        out = f" --out {results}" if results else ""
        raise DataMissing(
            f"None of the {len(grid.cells)} cells of {grid.name} has a result in {found.folder.path}. "
            f"Run them first: dpbench sweep {named}{out}"
        )
    placed = [(position(plot, cell.values), cell) for cell in grid.cells]
    measured = {at: _metric(kept[cell.digest], plot.metric, cell) for at, cell in placed if cell.digest in kept}
    seeds = tuple(len(result.seeds) for result in kept.values())
    return Collected(grid.name, plot, tuple(at for at, _ in placed), measured, seeds, series)


def _metric(result: Result, metric: str, cell: Cell) -> Interval:
    if metric not in result.metrics:
        raise DataError(
            f"Expected {metric} in every result, got none in {cell.file_name}. Available: {', '.join(result.metrics)}."
        )
    return result.metrics[metric]
