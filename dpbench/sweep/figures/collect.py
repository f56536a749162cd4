"""A sweep's results, each at its place of the plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpbench import registry
from dpbench.errors import DataError, DataMissing, SpecError
from dpbench.records.result import Interval, Result
from dpbench.registry import Registry
from dpbench.sweep import Cell, survey
from dpbench.sweep.figures import published, ready
from dpbench.sweep.figures.published import Series
from dpbench.sweep.plot import Place, Plot, place


@dataclass(frozen=True)
class Collected:
    """What there is to draw."""

    name: str
    plot: Plot
    places: tuple[Place, ...]  # of all cells, in the grid's order
    found: Mapping[Place, Interval]  # of the cells that have a result, in the grid's order
    seeds: tuple[int, ...]  # how many, of each result
    series: Sequence[Series]

    @property
    def missing(self) -> int:
        """How many cells have no result."""
        return len(self.places) - len(self.found)


def collect(named: Path, results: Path | None = None, plugins: Registry | None = None) -> Collected:
    """Return the results of a sweep, placed; files of other sweeps in the folder do not matter.

    Args:
        named: a sweep file, or the name of a ready-made one.
        results: the folder of results; by default the one that the sweep writes to.
        plugins: what is installed, if it is loaded already.

    Raises:
        SpecError: the sweep does not fit, or has no `[plot]`.
        DataMissing: no cell has a result; says which command runs them.
        DataError: a result lacks the metric.
    """
    file = ready.find(named)
    whole = survey(file, results, plugins or registry.load())
    grid, plot = whole.grid, whole.grid.plot
    if plot is None:
        raise SpecError(f'Expected a table [plot] in {file}: what its results are drawn against, like x = "epsilon".')
    series = published.chosen(plot, str(file))
    kept = {cell.digest: result for cell in whole.having("done") if (result := whole.folder.result(cell))}
    if not kept:
        out = f" --out {results}" if results else ""
        raise DataMissing(
            f"None of the {len(grid.cells)} cells of {grid.name} has a result in {whole.folder.path}. "
            f"Run them first: dpbench sweep {named}{out}"
        )
    placed = [(place(plot, cell.values), cell) for cell in grid.cells]
    found = {at: _metric(kept[cell.digest], plot.metric, cell) for at, cell in placed if cell.digest in kept}
    seeds = tuple(len(result.seeds) for result in kept.values())
    return Collected(grid.name, plot, tuple(at for at, _ in placed), found, seeds, series)


def _metric(result: Result, metric: str, cell: Cell) -> Interval:
    if metric not in result.metrics:
        raise DataError(
            f"Expected {metric} in every result, {cell.file_name} has none: there is {', '.join(result.metrics)}."
        )
    return result.metrics[metric]
