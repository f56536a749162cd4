"""The README's heat map, as SVG: each learner's distance from the best entry of each board in the index."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench.analysis.draw import HeatCell, draw_heat_map, new_figure, render_figure
from dpbench.analysis.palette import INK, heat_map_colour
from dpbench.board.distance import list_best_default_rows
from dpbench.board.index import Standing
from dpbench.board.rows import EntryRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHADE_STEPS = (1, 2, 4, 8, 16)  # points behind the best: each a paler shade
SHADES = (0, 1, 2, 4, 6, 7)
GROUP_GAP = 0.9  # columns between groups
COLUMNS_PER_INCH = 5.6  # columns; rows are half as many again
LEFT, RIGHT, ABOVE, BELOW = 1.35, 0.15, 0.78, 0.55  # inches


@dataclass(frozen=True)
class HeatMapGroup:
    """Boards that differ only in epsilon, in order of epsilon, under a heading of two lines."""

    heading: tuple[str, str]
    standings: tuple[Standing, ...]


def render_heat_map(groups: Iterable[HeatMapGroup]) -> str:
    """Return the heat map as SVG: a row per learner, a column per board, and each group's heading above its boards."""
    kept = tuple(groups)
    return render_figure(lambda: _make_figure(kept), "svg").decode()


def _make_figure(groups: tuple[HeatMapGroup, ...]) -> Figure:
    learners = _sort_learners(standing for group in groups for standing in group.standings)
    columns = sum(len(group.standings) for group in groups) + GROUP_GAP * (len(groups) - 1)
    rows = len(learners)
    width, height = LEFT + columns / COLUMNS_PER_INCH + RIGHT, ABOVE + 0.2 * rows + BELOW
    figure = new_figure(width, height)
    axes = figure.add_axes((LEFT / width, BELOW / height, columns / COLUMNS_PER_INCH / width, 0.2 * rows / height))
    cells, left = list[HeatCell](), 0.0
    for group in groups:
        axes.text(left, -1.4, "\n".join(group.heading), va="bottom", fontsize=9)
        for column, standing in enumerate(group.standings):
            epsilon = f"{standing.board.epsilon:g}".lstrip("0")
            axes.text(left + column + 0.5, -0.25, epsilon, ha="center", va="bottom", fontsize=6)
            rows_worst_first = list_best_default_rows(standing)
            cells += [_make_cell(left + column, learners, row) for row in reversed(rows_worst_first)]
        left += len(group.standings) + GROUP_GAP
    draw_heat_map(axes, cells, columns, rows)
    axes.text(-0.6, -0.25, "ε", ha="right", va="bottom", fontsize=8)
    axes.set_yticks([place + 0.5 for place in range(rows)], learners)
    axes.set_xticks([])
    _draw_legend(axes, rows)
    return figure


def _make_cell(column: float, learners: list[str], row: EntryRow) -> HeatCell:
    gap = 100 * (row.distance_behind or 0.0)
    shade = SHADES[sum(gap > step for step in SHADE_STEPS)]
    return HeatCell(column, learners.index(row.facts.learner), shade, dot=row.standing.tied)


def _sort_learners(standings: Iterable[Standing]) -> list[str]:
    """Return the learners sorted by their mean distance from the best entry, closest first."""
    gaps: dict[str, list[float]] = {}
    for standing in standings:
        for row in list_best_default_rows(standing):
            gaps.setdefault(row.facts.learner, []).append(row.distance_behind or 0.0)
    # fsum: the last bit of the built-in sum depends on Python's version, and the order of near ties with it
    return sorted(gaps, key=lambda name: math.fsum(gaps[name]) / len(gaps[name]))


def _draw_legend(axes: Axes, rows: int) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    said = [*(f"up to {step}" for step in SHADE_STEPS), "more points behind"]
    handles: list[Patch | Line2D] = [
        Patch(facecolor=heat_map_colour(shade), label=label) for shade, label in zip(SHADES, said, strict=True)
    ]
    dot = Line2D([], [], linestyle="none", marker="o", markersize=3, color=INK, label="rank 1, alone or tied")
    axes.legend(handles=[*handles, dot], loc="upper left", bbox_to_anchor=(0, -0.1 / rows), ncols=len(said) + 1)
