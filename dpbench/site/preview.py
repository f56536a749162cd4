"""The picture that stands for a page where its address is shared: PNG, as nothing else is shown everywhere."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from dpbench.board.index import Standing
from dpbench.board.rows import EntryRow, name_entry
from dpbench.site import text, view
from dpbench.site.home_page import BoardColumn, HeatMap, heat
from dpbench.site.looks import LIGHT, Look
from dpbench.site.picture import INK, LINE, PAPER, QUIET, use_site_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "Which private learner is best on this data, at this ε?"
ROWS, COLUMNS = 8, 10
HEAT, SHADES = "#124e78", (1.0, 0.5, 0.41, 0.33, 0.26, 0.19, 0.13, 0.08, 0.04)  # those of the style sheet
INCHES, DOTS = (12.0, 6.3), 100


def board_preview(standing: Standing, looks: Mapping[str, Look]) -> bytes:
    """Return a board's first entries with their intervals."""
    return _png(lambda: _board(standing, looks))


def map_preview(shown: HeatMap | None) -> bytes:
    """Return the map of the home page, with what the site is; that alone without a map."""
    return _png(lambda: _map(shown))


def _png(draw: Callable[[], Figure]) -> bytes:
    with use_site_style():
        out = io.BytesIO()
        draw().savefig(out, format="png", dpi=DOTS, facecolor=PAPER, metadata={"Software": None})
    return out.getvalue()


def _titled(title: str) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=INCHES)
    figure.text(0.04, 0.94, "dpbench", fontsize=22, weight="bold", color=QUIET, va="center")
    figure.text(0.04, 0.85, title, fontsize=27, va="center", color=INK)
    return figure


def _map(shown: HeatMap | None) -> Figure:
    figure = _titled(QUESTION)
    if shown is None:
        return figure
    lines = shown.lines[:ROWS]
    figure.text(
        0.04, 0.05,
        f"Scores in percent at ε {shown.epsilon:g}. Dark: rank 1, alone or tied. Empty: no entry.",
        fontsize=15, va="center", color=QUIET,
    )  # fmt: skip
    columns = shown.columns[:COLUMNS]
    axes = figure.add_axes((0.15, 0.12, 0.69, 0.46))
    axes.set(xlim=(0, len(columns)), ylim=(len(lines), 0))
    axes.grid(visible=False)
    for row, line in enumerate(lines):
        for place, cell in enumerate(line.rows[:COLUMNS]):
            if cell:
                _cell(axes, place, row, cell)
    axes.set_yticks([row + 0.5 for row in range(len(lines))], [text.shorten_string(line.label, 16) for line in lines])
    places = [place + 0.5 for place in range(len(columns))]
    axes.set_xticks(places, _heads(columns), rotation=24, ha="left")
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=15)
    axes.spines[:].set_visible(False)
    return figure


def _heads(columns: Sequence[BoardColumn]) -> list[str]:
    """Return what stands above each column: its data, and what tells boards of the same data apart."""
    often, units = Counter(one.data for one in columns), {one.data for one in columns if one.standing.board.unit}

    def head(one: BoardColumn) -> str:
        if one.data in units:
            return f"{text.shorten_string(one.data.partition(' (')[0], 13)}, {view.whose(one.standing)}"
        return f"{one.data}, {one.features}" if often[one.data] > 1 else one.data

    return [text.shorten_string(head(one), 22) for one in columns]


def _cell(axes: Axes, place: int, row: int, cell: EntryRow) -> None:
    """Fill a cell as the style sheet does: a heat of 0 in full, every further one paler."""
    from matplotlib.patches import Rectangle

    shade, score = heat(cell), cell.score
    assert score is not None  # ranked entries have one
    axes.add_patch(Rectangle((place, row), 1, 1, facecolor=HEAT, alpha=SHADES[shade], edgecolor=PAPER, linewidth=2))
    axes.text(
        place + 0.5, row + 0.5, f"{100 * score.mean:.1f}", ha="center", va="center", fontsize=15,
        color=PAPER if shade == 0 else INK, weight="bold" if shade == 0 else "normal",
    )  # fmt: skip


def _board(standing: Standing, looks: Mapping[str, Look]) -> Figure:
    figure = _titled(text.shorten_string(standing.board.title, 62))
    axes = figure.add_axes((0.28, 0.14, 0.66, 0.6))
    metric = standing.board.metric
    rows = view.some(standing, ROWS)
    for place, entry in enumerate(rows):
        score, look = entry.metrics[metric], looks[entry.learner]
        colour = LIGHT[look.colour or 0]
        low, high = (score.mean if end is None else end for end in (score.low, score.high))
        axes.plot([100 * low, 100 * high], [place, place], color=colour, linewidth=3, alpha=0.5)
        axes.plot([100 * score.mean], [place], marker=look.shape.marker, color=colour, markersize=12)
    for line, style in ((view.control(standing), ":"), (view.ceiling(standing), "--")):
        if line:
            axes.axvline(100 * line.metrics[metric].mean, color=QUIET, linestyle=style, linewidth=1.5)
    names = [text.shorten_string(name_entry(entry), 24) for entry in rows]
    axes.set_yticks(range(len(rows)), labels=names, fontsize=17)
    axes.set_ylim(max(len(rows), 2) - 0.4, -0.6)
    axes.tick_params(axis="x", labelsize=15)
    axes.grid(visible=True, axis="x", color=LINE)
    axes.set_xlabel(
        f"{view.metric_name(metric).lower()} (%); dotted: public labels only, dashed: no privacy", fontsize=14
    )
    return figure
