"""A grid of results as a figure: scores against ε."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpbench.analysis.formats import unit_of
from dpbench.analysis.grid import Grid
from dpbench.analysis.rows import ResultRow
from dpbench.errors import SpecError
from dpbench.support.charts import check_drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_against_epsilon(tables: Sequence[Grid[ResultRow]], metric: str, ax: Axes | None) -> Axes:
    """Draw the grid's lines, references dashed and level; return the axes.

    Raises:
        SpecError: there are results of several protocols, or of none with this metric; or matplotlib is missing.
    """
    if len(tables) != 1:
        said = "; ".join(grid.title for grid in tables) or f"none with {metric}"
        raise SpecError(f"Expected results of one protocol to draw, got {said}. Select some, like results[:3].")
    if ax is None:
        check_drawing()
        import matplotlib.pyplot as plt

        _, ax = plt.subplots()
    (grid,), unit = tables, unit_of(metric)
    scale = 100 if unit else 1
    for line in grid.lines:
        there = [(place, grid.score(row)) for place, row in enumerate(line.rows) if row]
        heights = [scale * score.mean for _, score in there]
        style = "--" if line.reference else "-"
        bars = [scale * (score.high - score.mean) if score.high is not None else 0.0 for _, score in there]
        ax.errorbar([place for place, _ in there], heights, bars, None, style, marker="o", capsize=2, label=line.label)
    ax.set_xticks(range(len(grid.columns)), [name.removeprefix("ε ") for name in grid.columns])
    ax.set_xlabel("ε")
    ax.set_ylabel(metric.replace("_", " ") + (f" ({unit})" if unit else ""))
    ax.set_title(grid.title, parse_math=False, fontsize="medium")
    ax.legend(fontsize="small")
    return ax
