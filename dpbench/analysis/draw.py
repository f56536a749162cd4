"""Results as a figure: means with their intervals, and published results beside them, hollow and dashed."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpbench.analysis.axis import XAxis, x_axis
from dpbench.analysis.figure_data import FigureData, Point, Series
from dpbench.analysis.formula import is_formula
from dpbench.analysis.plots import X, axis_text
from dpbench.records.result import Interval
from dpbench.records.spec import COMPONENTS
from dpbench.support.charts import BLUE, GREY, VERMILLION, check_drawing, write_chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# Okabe and Ito's colours without yellow, which is invisible on white; the markers differ in greyscale too.
COLOURS = (BLUE, VERMILLION, "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000", GREY)
MARKERS = ("o", "s", "^", "v", "P", "X", "<", ">", "*")
HOLLOW = ("D", "h", "p", "8")
WORDS = {
    "epsilon": "ε",
    "learner.k": "k (dimensions kept)",
    "public_fraction": "share of the training split that is public",
    "train_fraction": "share of the private split that is kept",
    "imbalance": "first class to last, in shares kept",
    "public_dataset": "public data",
}
ACROSS = 3  # panels in a row
WIDE, NARROW = (5.2, 4.2), (3.4, 3.1)  # inches: a panel on its own, or beside others
LETTER = 0.08  # inches, of the title
TITLE, LEGEND = 42, 30  # characters per line


def write_figure(collected: FigureData, file: Path) -> None:
    """Draw into `file`; see `charts.write_chart`."""
    write_chart(file, lambda: draw(collected))


def draw(collected: FigureData, *, titled: bool = True) -> Figure:
    """Return the figure: one panel per combination of the panels' axes, and one legend beside them."""
    check_drawing()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys(at.panel for at in collected.positions))
    across = 2 if len(panels) == 4 else min(len(panels), ACROSS)
    down = -(-len(panels) // across)
    width, height = WIDE if len(panels) == 1 else NARROW
    figure = Figure(figsize=(width * across + 2.3, height * down + 0.2), dpi=110 if down == 1 else 85)
    figure.set_layout_engine("constrained")
    FigureCanvasAgg(figure)
    if titled:
        figure.suptitle(textwrap.fill(_title(collected), round(figure.get_figwidth() / LETTER)), parse_math=False)
    axis = x_axis(_all_x(collected, panels), collected.plot.scale == "log")
    for index, panel in enumerate(panels):
        axes = figure.add_subplot(down, across, index + 1)
        _ours(axes, collected, panel, axis)
        _theirs(axes, collected, panel, axis)
        _bounds(axes, collected, panel, axis)
        _dress(axes, collected, panel, axis)
        crowded = axis.is_crowded(collected.plot, width - 0.7)  # inches, less the labels of the y axis
        turned = 90 if crowded and not is_formula(collected.plot.x) else 0
        axes.tick_params(axis="x", labelsize=8, rotation=turned)
        axes.set_ylabel(_measured(collected) if index % across == 0 else "")
    figure.legend(handles=_handles(collected), loc="outside right center", fontsize=8)
    return figure


def _title(collected: FigureData) -> str:
    title = collected.plot.title or collected.name
    total = len(collected.positions)
    return f"{title} ({len(collected.measured)} of {total} cells)" if collected.missing else title


def _words(axis: str) -> str:
    return WORDS.get(axis, axis.replace("dataset.", "").replace("learner.", "").replace("_", " "))


def _measured(collected: FigureData) -> str:
    least, most = min(collected.seeds), max(collected.seeds)
    seeds = f"{least} to {most}" if least < most else str(most)
    bars = ", 95% interval" if most > 1 else ""
    bars += ", 0 at the bottom" if collected.plot.height == "log" else ""
    return f"{collected.plot.metric.replace('_', ' ')} (%)\nmean of {seeds} seed{'s' * (most > 1)}{bars}"


def _all_x(collected: FigureData, panels: Sequence[tuple[str, ...]]) -> list[X]:
    """Return every x that is drawn, measured ones first."""
    shown = [point for one in collected.series for panel in panels for point in _shown(one, collected, panel)]
    theirs = [point.at.get(collected.plot.x) for point in shown]
    return [*(at.x for at in collected.positions), *(x for x in theirs if x != "best")]


def _shown(series: Series, collected: FigureData, panel: tuple[str, ...]) -> list[Point]:
    """Return the points of a published series that belong in a panel."""
    wanted = dict(zip(collected.plot.panels, panel, strict=True))
    return [
        point
        for point in series.points
        if all(axis not in point.at or _same(value, point.at[axis]) for axis, value in wanted.items())
    ]


def _same(ours: str, theirs: float | str) -> bool:
    return axis_text(theirs) in {ours, ours.partition(":")[0]}  # papers give no options


def _lines(collected: FigureData) -> list[str]:
    return list(dict.fromkeys(at.line for at in collected.positions))


def _look(index: int) -> dict[str, Any]:
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)], "markersize": 4.5}


def _ours(axes: Axes, collected: FigureData, panel: tuple[str, ...], axis: XAxis) -> None:
    for index, line in enumerate(_lines(collected)):
        measured = {at.x: one for at, one in collected.measured.items() if (at.panel, at.line) == (panel, line)}
        ordered = [x for x in axis.at if x in measured]
        if not ordered:
            continue
        look = _look(index)
        # Solid between numbers; dotted on to the words beside them.
        for style, among in (("-", [x for x in ordered if x in axis.numbers]), (":", ordered)):
            if axis.numbers:
                heights = [_height(collected, measured[x].mean) for x in among]
                axes.plot([axis.at[x] for x in among], heights, style, color=look["color"], linewidth=1)
        heights = [_height(collected, measured[x].mean) for x in ordered]
        ends = [_ends(collected, measured[x]) for x in ordered]
        axes.errorbar(
            [axis.at[x] for x in ordered], heights,
            yerr=[[at - low for at, (low, _) in zip(heights, ends, strict=True)],
                  [high - at for at, (_, high) in zip(heights, ends, strict=True)]],
            fmt="none", ecolor=look["color"], capsize=2.5, elinewidth=1,
        )  # fmt: skip
        axes.plot([axis.at[x] for x in ordered], heights, linestyle="none", label=line or "measured", **look)


def _height(collected: FigureData, share: float) -> float:
    """Return where a share is drawn, in percent; on a logarithmic scale 0 lies below all that is measured."""
    if collected.plot.height == "linear":
        return 100 * share
    least = min((one.mean for one in collected.measured.values() if one.mean > 0), default=1.0)
    return 100 * max(share, least / 2)


def _ends(collected: FigureData, interval: Interval) -> tuple[float, float]:
    low, high = interval.low, interval.high
    mean = interval.mean
    return _height(collected, mean if low is None else low), _height(collected, mean if high is None else high)


def _bounds(axes: Axes, collected: FigureData, panel: tuple[str, ...], axis: XAxis) -> None:
    """Draw a theorem's rate for each line, dotted, and ring the point through which its constant is fitted."""
    for index, line in enumerate(_lines(collected)):
        found = {at.x: share for at, share in collected.bound.items() if (at.panel, at.line) == (panel, line)}
        ordered = [x for x in axis.at if x in found]
        heights = [_height(collected, min(1.0, found[x])) for x in ordered]
        axes.plot([axis.at[x] for x in ordered], heights, ":", color=_look(index)["color"], linewidth=1.2, alpha=0.8)
    at = collected.fitted
    if at is not None and at.panel == panel:
        height = _height(collected, collected.measured[at].mean)
        axes.plot([axis.at[at.x]], [height], "o", markersize=10, fillstyle="none", color="black")


def _theirs(axes: Axes, collected: FigureData, panel: tuple[str, ...], axis: XAxis) -> None:
    plot, lines = collected.plot, _lines(collected)
    for index, series in enumerate(collected.series):
        grouped: dict[str, list[Point]] = {}
        for point in _shown(series, collected, panel):
            grouped.setdefault(axis_text(point.at.get(plot.lines or "")), []).append(point)
        for line, points in grouped.items():
            matched = [mine for mine, ours in enumerate(lines) if plot.lines and _same(ours, line)]
            look = _hollow(index, _look(matched[0])["color"] if matched else GREY)
            _published(axes, points, plot.x, axis, look)


def _hollow(index: int, colour: str) -> dict[str, Any]:
    marker = HOLLOW[index % len(HOLLOW)]
    return {"color": colour, "marker": marker, "markersize": 6, "markerfacecolor": "white", "linewidth": 1}


def _published(axes: Axes, points: Sequence[Point], x: str, axis: XAxis, look: Mapping[str, Any]) -> None:
    best = [point for point in points if point.at.get(x) == "best"]
    placed = sorted(((axis.at[point.at.get(x)], point) for point in points if point not in best), key=itemgetter(0))
    xs, heights = [left for left, _ in placed], [point.percent for _, point in placed]
    for above in (False, True):
        marks = [index for index, (_, point) in enumerate(placed) if point.above is above]
        marker = "^" if above else look["marker"]
        joined = "--" if axis.numbers and not above else "none"
        if marks:
            axes.plot(xs, heights, linestyle=joined, markevery=marks, **{**look, "marker": marker}, label="published")
    for point in best:
        axes.axhline(point.percent, color=look["color"], linestyle="--", linewidth=1, label="published")


def _dress(axes: Axes, collected: FigureData, panel: tuple[str, ...], axis: XAxis) -> None:
    plot = collected.plot
    title = textwrap.fill(", ".join(map(_named, plot.panels, panel)), TITLE)
    axes.set_title(title, fontsize=9, parse_math=False)
    axes.set_xscale("log" if axis.log else "linear")
    axes.set_xlim(*axis.limits)
    axes.set_yscale(plot.height)
    if not is_formula(plot.x):  # whose values nobody chose
        axes.set_xticks(list(axis.at.values()), labels=axis.labels(plot), parse_math=False)
    axes.minorticks_off()
    axes.set_xlabel(_words(plot.x))
    if axis.boundary is not None:
        axes.axvline(axis.boundary, color=GREY, linewidth=0.6, alpha=0.5)
    if not any(at.panel == panel for at in collected.measured):
        axes.text(0.5, 0.5, "no result yet", ha="center", va="center", transform=axes.transAxes)


def _named(axis: str, value: str) -> str:
    if axis in COMPONENTS:
        return value
    return f"{_words(axis)} = {value}" if value else f"no {_words(axis)}"


def _handles(collected: FigureData) -> list[Line2D]:
    from matplotlib.lines import Line2D

    plot, lines = collected.plot, _lines(collected)
    ours = [_named(plot.lines, line) if plot.lines else "measured" for line in lines]
    looks = [_look(index) for index in range(len(lines))]
    handles = [Line2D([], [], label=label, **look) for label, look in zip(ours, looks, strict=True)]
    if collected.bound:
        label = textwrap.fill(f"{plot.rate}, up to one constant, through the ringed point", LEGEND)
        handles.append(Line2D([], [], linestyle=":", color=GREY, label=label))
    for index, series in enumerate(collected.series):
        label = textwrap.fill(series.label, LEGEND)
        handles.append(Line2D([], [], linestyle="--", label=label, **_hollow(index, GREY)))
    return handles
