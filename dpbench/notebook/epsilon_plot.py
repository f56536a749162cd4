"""A table of results as a figure: scores against ε."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpbench.analysis.formats import unit_of
from dpbench.analysis.tables import Table
from dpbench.errors import SpecError
from dpbench.support.charts import check_drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_against_epsilon(tables: Sequence[Table], metric: str, ax: Axes | None) -> Axes:
    """Draw the table's rows, references dashed and level; return the axes.

    Raises:
        SpecError: there are results of several protocols, or of none with this metric; or matplotlib is missing.
    """
    if len(tables) != 1:
        said = "; ".join(table.title for table in tables) or f"none with {metric}"
        raise SpecError(f"Expected results of one protocol to draw, got {said}. Select some, like results[:3].")
    if ax is None:
        check_drawing()
        import matplotlib.pyplot as plt

        _, ax = plt.subplots()
    (table,), unit = tables, unit_of(metric)
    scale = 100 if unit else 1
    places = range(len(table.columns))
    for row in table.rows:
        there = [(place, cell.score) for place, cell in zip(places, row.cells, strict=True) if cell]
        heights = [scale * score.mean for _, score in there]
        style = "--" if row.reference else "-"
        bars = [scale * (score.high - score.mean) if score.high is not None else 0.0 for _, score in there]
        ax.errorbar([place for place, _ in there], heights, bars, None, style, marker="o", capsize=2, label=row.label)
    ax.set_xticks(list(places), [name.removeprefix("ε ") for name in table.columns])
    ax.set_xlabel("ε")
    ax.set_ylabel(metric.replace("_", " ") + (f" ({unit})" if unit else ""))
    ax.set_title(table.title, parse_math=False, fontsize="medium")
    ax.legend(fontsize="small")
    return ax
