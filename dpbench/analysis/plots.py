"""The `[plot]` table of a sweep file: how to draw the sweep's results. The table does not change the cells.

::

    [plot]
    x = "learner.k"                            # an axis of the grid
    lines = "epsilon"                          # an axis: a line for each of its values
    panels = ["dataset"]                       # axes: a panel for each combination of their values
    metric = "accuracy"
    scale = "log"                              # of x
    without = "all dimensions"                 # label of cells that have no x: drawn at the right end
    published = ["pillar-section-4.1-cifar10"] # published results to draw too
    title = "Accuracy against k"

To draw a theorem's rate too::

    x = "dataset.n * epsilon / dataset.blocks" # a formula of numbers of a cell, in place of an axis
    metric = "error"                           # 1 - accuracy
    height = "log"                             # scale of the y axis
    bound = "max(1 / dataset.m, 1 / (dataset.n * epsilon))" # a theorem's rate, times one constant
    through = { "dataset.n" = 1000, "dataset.m" = 10 }      # the cell at which that constant is fitted
    rate = "theorem 3.1"                       # the rate's name in the legend
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from dpbench.analysis.formula import evaluate_formula, is_formula
from dpbench.errors import SpecError
from dpbench.records.metrics import Metric
from dpbench.records.protocol import Component
from dpbench.support.messages import format_unknown_name_message
from dpbench.support.validation import Record

X = float | str | None  # a number, a word, or None where a cell has no x


class Plot(Record):
    """The metric to draw, and the axes to draw it against."""

    x: str = Field(description="the axis that results are drawn against")
    lines: str | None = None
    panels: tuple[str, ...] = ()
    metric: Literal[Metric, "error"] = "accuracy"
    scale: Literal["linear", "log"] = "linear"
    height: Literal["linear", "log"] = "linear"
    bound: str | None = Field(default=None, min_length=1, description="a formula: a theorem's rate, up to a constant")
    through: dict[str, Any] = Field(
        default={}, description="axes and values of the cell at which that constant is fitted"
    )
    rate: str = Field(default="theorem", min_length=1)
    without: str | None = Field(default=None, min_length=1)
    published: tuple[str, ...] = ()
    title: str | None = None

    @property
    def axes(self) -> tuple[str, ...]:
        """All axes that decide a cell's position."""
        x = None if is_formula(self.x) else self.x
        return tuple(filter(None, (x, self.lines, *self.panels)))


@dataclass(frozen=True)
class PlotPosition:
    """The position of a cell in a figure."""

    panel: tuple[str, ...]  # one text per axis of `Plot.panels`; "" for an axis that the cell lacks
    line: str
    x: X


def locate_cell(plot: Plot, axis_values: Mapping[str, Any], spec_numbers: Mapping[str, float]) -> PlotPosition:
    """Return the position of a cell, given its axis values and the numbers of its spec."""
    x = evaluate_formula(plot.x, spec_numbers, "x of [plot]") if is_formula(plot.x) else axis_values.get(plot.x)
    number = isinstance(x, int | float) and not isinstance(x, bool)
    return PlotPosition(
        tuple(format_axis_value(axis_values.get(axis)) for axis in plot.panels),
        format_axis_value(axis_values.get(plot.lines)) if plot.lines else "",
        float(x) if number else None if x is None else format_axis_value(x),  # type: ignore[arg-type]
    )


def format_axis_value(value: object) -> str:
    """Return a value of an axis as text in a plot.

    >>> format_axis_value(0.10), format_axis_value(float("inf")), format_axis_value(True)
    ('0.1', '∞', 'true')
    >>> format_axis_value({"name": "pillar", "options": {"k": 40}})
    'pillar:k=40'
    >>> format_axis_value({"rule": "public-validation"})
    'rule=public-validation'
    """
    if isinstance(value, Mapping):
        named = "name" in value
        return str(Component(**value)) if named else ", ".join(f"{key}={part}" for key, part in value.items())
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}".replace("inf", "∞")
    return "" if value is None else str(value)


def check_plot(plot: Plot, cells: Sequence[tuple[Mapping[str, Any], Mapping[str, float]]], origin: str) -> None:
    """Check that a plot fits the cells, each given as its axis values and the numbers of its spec.

    Raises:
        SpecError: an axis that does not exist or is named twice, a cell without x and no label for it, an x that the
            scale cannot show, two cells at one position, or a bound that has no value or no cell to be fitted at.
    """
    where = f"[plot] of {origin}"
    known = dict.fromkeys(axis for values, _ in cells for axis in values)
    for axis in plot.axes:
        if axis not in known:
            raise SpecError(format_unknown_name_message("axis", axis, known, where))
        if plot.axes.count(axis) > 1:
            raise SpecError(f"Expected {axis!r} in only one of x, lines and panels of {where}, got it in two.")
    taken: dict[PlotPosition, str] = {}
    for values, numbers in cells:
        at, cell = locate_cell(plot, values, numbers), ", ".join(f"{axis}={value}" for axis, value in values.items())
        _check_x(plot, at.x, cell, where)
        if at in taken:
            raise SpecError(
                f"Expected one cell per position in {where}, got two: {taken[at]}, and {cell}. "
                "Add the axis in which they differ."
            )
        taken[at] = cell
    if plot.bound is not None:
        _check_bound(plot, plot.bound, cells, where)


def _check_bound(
    plot: Plot, bound: str, cells: Sequence[tuple[Mapping[str, Any], Mapping[str, float]]], where: str
) -> None:
    for _, numbers in cells:
        evaluate_formula(bound, numbers, f"the bound of {where}")
    fitted = [values for values, _ in cells if is_fitted_cell(plot, values)]
    if len(fitted) != 1:
        raise SpecError(
            f"Expected 'through' in {where} to name one cell, at which the bound's constant is fitted, got "
            f"{len(fitted)} for {plot.through}."
        )


def is_fitted_cell(plot: Plot, values: Mapping[str, Any]) -> bool:
    """Return whether `through` names the cell with these axis values."""
    return all(
        format_axis_value(values.get(axis)) == format_axis_value(wanted) for axis, wanted in plot.through.items()
    )


def _check_x(plot: Plot, x: X, cell: str, where: str) -> None:
    if x is None and plot.without is None:
        raise SpecError(f"Expected 'without' in {where}: a label for cell {cell}, which has no {plot.x}.")
    if plot.scale == "log" and isinstance(x, float) and not x > 0:
        raise SpecError(f"Expected {plot.x}={x:g} > 0 in cell {cell}, as {where} says scale = 'log'.")
