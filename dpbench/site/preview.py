"""Preview images for links to the site. They are PNG, because not every program shows other formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from dpbench.analysis.draw import (
    Bar,
    HeatCell,
    convert_to_chart_units,
    draw_bars,
    draw_heat_map,
    new_figure,
    render_figure,
)
from dpbench.analysis.palette import INK, QUIET, LearnerStyle
from dpbench.board.index import Standing
from dpbench.board.rows import format_entry_label
from dpbench.records.metrics import METRIC_FACTS
from dpbench.records.result import Interval
from dpbench.site import text, view
from dpbench.site.home_page import BoardColumn, HeatMap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUESTION = "Which private learner is best on this data, at this ε?"
MAX_ROWS, MAX_COLUMNS = 8, 10
FIGURE_INCHES, DOTS_PER_INCH = (12.0, 6.3), 100


def render_board_preview(standing: Standing, styles: Mapping[str, LearnerStyle]) -> bytes:
    """Return the preview image of a board: its best entries with their intervals."""
    return _render_png(lambda: _draw_board(standing, styles))


def render_map_preview(heat_map: HeatMap | None) -> bytes:
    """Return the preview image of the home page: the site's question and, if there is a map, the map below it."""
    return _render_png(lambda: _draw_map(heat_map))


def _render_png(draw: Callable[[], Figure]) -> bytes:
    return render_figure(draw, "png", figure_dpi=DOTS_PER_INCH, savefig_dpi=DOTS_PER_INCH, font_size=10)


def _make_titled_figure(title: str) -> Figure:
    figure = new_figure(*FIGURE_INCHES)
    figure.text(0.04, 0.94, "dpbench", fontsize=22, weight="bold", color=QUIET, va="center")
    figure.text(0.04, 0.85, title, fontsize=27, va="center", color=INK)
    return figure


def _draw_map(heat_map: HeatMap | None) -> Figure:
    figure = _make_titled_figure(QUESTION)
    if heat_map is None:
        return figure
    lines = heat_map.lines[:MAX_ROWS]
    figure.text(
        0.04, 0.05,
        f"Scores in percent at ε {heat_map.epsilon:g}. Dark: rank 1, alone or tied. Empty: no entry.",
        fontsize=15, va="center", color=QUIET,
    )  # fmt: skip
    columns = heat_map.columns[:MAX_COLUMNS]
    axes = figure.add_axes((0.15, 0.12, 0.69, 0.46))
    cells = [
        HeatCell(place, row, view.compute_cell_shade(cell), f"{100 * cell.score.mean:.1f}")
        for row, line in enumerate(lines)
        for place, cell in enumerate(line.rows[:MAX_COLUMNS])
        if cell and cell.score
    ]
    draw_heat_map(axes, cells, len(columns), len(lines), text_size=15)
    axes.set_yticks([row + 0.5 for row in range(len(lines))], [text.shorten_string(line.label, 16) for line in lines])
    places = [place + 0.5 for place in range(len(columns))]
    axes.set_xticks(places, _make_column_heads(columns), rotation=24, ha="left")
    axes.xaxis.tick_top()
    axes.tick_params(labelsize=15)
    return figure


def _make_column_heads(columns: Sequence[BoardColumn]) -> list[str]:
    """Return the head of each column: the data and, where boards share the data, the privacy unit or the features."""
    often, units = (
        Counter(column.data for column in columns),
        {column.data for column in columns if column.standing.board.unit},
    )

    def format_head(column: BoardColumn) -> str:
        if column.data in units:
            return f"{text.shorten_string(column.data.partition(' (')[0], 13)}, {view.privacy_unit(column.standing)}"
        return f"{column.data}, {column.features}" if often[column.data] > 1 else column.data

    return [text.shorten_string(format_head(column), 22) for column in columns]


def _draw_board(standing: Standing, styles: Mapping[str, LearnerStyle]) -> Figure:
    figure = _make_titled_figure(text.shorten_string(standing.board.title, 62))
    axes = figure.add_axes((0.28, 0.14, 0.66, 0.6))
    metric = standing.board.metric
    rows = view.list_top_entries(standing, MAX_ROWS)
    draw_bars(axes, (_interval_bar(place, convert_to_chart_units(metric, entry.metrics[metric]), styles[entry.learner])
                for place, entry in enumerate(rows)))  # fmt: skip
    for line, style in ((view.find_public_only_result(standing), ":"), (view.find_non_private_result(standing), "--")):
        if line:
            axes.axvline(100 * line.metrics[metric].mean, color=QUIET, linestyle=style, linewidth=1.5)
    axes.set_yticks(
        range(len(rows)), labels=[text.shorten_string(format_entry_label(entry), 24) for entry in rows], fontsize=17
    )
    axes.set_ylim(max(len(rows), 2) - 0.4, -0.6)
    axes.tick_params(axis="x", labelsize=15)
    axes.set_xlabel(f"{METRIC_FACTS[metric].axis}; dotted: public labels only, dashed: no privacy", fontsize=14)
    return figure


def _interval_bar(row: int, score: Interval, style: LearnerStyle) -> Bar:
    low, high = (score.mean if end is None else end for end in (score.low, score.high))
    return Bar(row, low, high, style.hex, height=0.08, at=score.mean, style=style)
