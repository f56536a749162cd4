"""Collect a sweep's results, each at its position in the plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpbench import registry
from dpbench.analysis.figure_data import FigureData, PublishedSeries
from dpbench.analysis.formula import evaluate_formula
from dpbench.analysis.plots import Plot, PlotPosition, is_fitted_cell, locate_cell
from dpbench.errors import DataError, DataMissing, SpecError
from dpbench.records.result import Interval, Result
from dpbench.registry import Registry
from dpbench.sweep import ready_made_sweeps
from dpbench.sweep.conduct import get_sweep_overview
from dpbench_lab.figures import literature


def collect_sweep_figure(named: Path, results: Path | None = None, plugins: Registry | None = None) -> FigureData:
    """Return the results of a sweep with their positions; files of other sweeps in the folder are ignored.

    Args:
        named: a sweep file, or the name of a ready-made one.
        results: the results folder; by default the one that the sweep writes to.
        plugins: the registry, if it is already loaded.

    Raises:
        SpecError: the sweep file is invalid, or has no `[plot]`.
        DataMissing: no cell has a result; the message names the command that runs the cells.
        DataError: a result lacks the metric.
    """
    file = ready_made_sweeps.find_sweep_file(named)
    found = get_sweep_overview(file, results, plugins or registry.load())
    grid, plot = found.grid, found.grid.plot
    if plot is None:
        raise SpecError(f'Expected a table [plot] in {file}: how results are drawn, like x = "epsilon".')
    series = literature.find_published_series(plot, str(file))
    kept = {cell.digest: result for cell in found.cells("done", "other code") if (result := found.folder.result(cell))}
    if not kept:
        out = f" --out {results}" if results else ""
        raise DataMissing(
            f"None of the {len(grid.cells)} cells of {grid.name} has a result in {found.folder.path}. "
            f"Run them first: dpbench sweep {named}{out}"
        )
    places = [PlotCell(cell.values, cell.numbers, kept.get(cell.digest)) for cell in grid.cells]
    return assemble_figure_data(grid.name, plot, places, series)


@dataclass(frozen=True)
class PlotCell:
    """A cell of a plot, from a sweep file or from a result's own spec."""

    values: Mapping[str, Any]  # axis -> value
    numbers: Mapping[str, float]  # of the spec, options as `dataset.n`
    result: Result | None


def assemble_figure_data(
    name: str, plot: Plot, cells: Sequence[PlotCell], series: Sequence[PublishedSeries]
) -> FigureData:
    """Return the data of a figure with these cells, in order, each at its position.

    Raises:
        DataError: a result lacks the metric.
    """
    placed = [(locate_cell(plot, place.values, place.numbers), place) for place in cells]
    measured = {at: read_metric_interval(place.result, plot.metric) for at, place in placed if place.result}
    seeds = tuple(len(place.result.seeds) for place in cells if place.result)
    bound, fitted = _fit_rate_constant(plot, placed, measured)
    return FigureData(name, plot, tuple(at for at, _ in placed), measured, seeds, bound, fitted, series)


def _fit_rate_constant(
    plot: Plot, positioned_cells: Sequence[tuple[PlotPosition, PlotCell]], measured: Mapping[PlotPosition, Interval]
) -> tuple[dict[PlotPosition, float], PlotPosition | None]:
    """Scale a theorem's rate to pass through one measured point; return the rate at each position, and that point.

    Return ({}, None) if the plot has no rate, or if that point was not measured or its rate is 0.
    """
    if plot.bound is None:
        return {}, None
    rates = {at: evaluate_formula(plot.bound, place.numbers, "the bound of [plot]") for at, place in positioned_cells}
    fitted = next((at for at, place in positioned_cells if is_fitted_cell(plot, place.values)), None)
    if fitted is None or fitted not in measured or not rates[fitted]:
        return {}, None
    constant = measured[fitted].mean / rates[fitted]
    return {at: constant * rate for at, rate in rates.items()}, fitted


def read_metric_interval(result: Result, name: str) -> Interval:
    """Return a metric of a result; "error" is 1 minus accuracy.

    Raises:
        DataError: the result lacks the metric.
    """
    if name == "error":
        right = result.metrics["accuracy"]
        low, high = (None if end is None else 1 - end for end in (right.high, right.low))
        return Interval(mean=1 - right.mean, low=low, high=high)
    if name not in result.metrics:
        raise DataError(
            f"Expected {name} in every result, got none in {result.file_name}. Available: {', '.join(result.metrics)}."
        )
    return result.metrics[name]
