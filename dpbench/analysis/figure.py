"""Results as a figure: means with their intervals, and published results with hollow markers and dashed lines."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpbench.analysis.axis import XAxis, make_x_axis
from dpbench.analysis.draw import (
    Line,
    check_matplotlib,
    convert_to_chart_units,
    draw_lines,
    label_powers_of_ten,
    new_figure,
    score_without_interval,
    write_chart,
)
from dpbench.analysis.figure_data import FigureData, PublishedPoint, PublishedSeries
from dpbench.analysis.formula import is_formula
from dpbench.analysis.palette import INK, PAPER, QUIET
from dpbench.analysis.plots import X, format_axis_value
from dpbench.records.metrics import METRIC_FACTS
from dpbench.records.result import Interval
from dpbench.records.spec import COMPONENTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

UNNAMED_LINE = "measured"  # a line that has no name
PUBLISHED_MARKERS = ("*", "p", "h", "d")  # marks that no learner has
REFERENCE_STROKES = ("--", ":")
AXIS_WORDS = {
    "epsilon": "ε",
    "learner.k": "k (dimensions kept)",
    "public_fraction": "share of the training split that is public",
    "train_fraction": "share of the private split that is kept",
    "imbalance": "first class to last, in shares kept",
    "public_dataset": "public data",
}
MAX_ACROSS = 3  # panels in a row
WIDE, NARROW = (5.2, 4.2), (3.4, 3.1)  # inches: a panel on its own, or beside others
LETTER_WIDTH = 0.08  # inches, of the title
TITLE_WIDTH, LEGEND_WIDTH = 42, 30  # characters per line


def write_figure(collected: FigureData, file: Path) -> None:
    """Draw a figure into `file`; see `write_chart`."""
    write_chart(file, lambda: draw_figure(collected))


def draw_figure(collected: FigureData, *, titled: bool = True) -> Figure:
    """Return the figure: one panel for each combination of panel values, and a legend beside the panels."""
    check_matplotlib()
    panels = list(dict.fromkeys(at.panel for at in collected.positions))
    across = 2 if len(panels) == 4 else min(len(panels), MAX_ACROSS)
    down = -(-len(panels) // across)
    width, height = WIDE if len(panels) == 1 else NARROW
    dots = 110 if down == 1 else 85
    figure = new_figure(width * across + 2.3, height * down + 0.2, dpi=dots, layout="constrained")
    if titled:
        figure.suptitle(
            textwrap.fill(_make_title(collected), round(figure.get_figwidth() / LETTER_WIDTH)), parse_math=False
        )
    axis = make_x_axis(_collect_x_values(collected, panels), collected.plot.scale == "log")
    handles: dict[str, Line2D] = {}
    for index, panel in enumerate(panels):
        axes = figure.add_subplot(down, across, index + 1)
        handles |= {str(d.get_label()): d for d in draw_panel(axes, collected, panel, axis)}
        crowded = axis.has_touching_labels(collected.plot, width - 0.7)  # inches, less the labels of the y axis
        turned = 90 if crowded and not is_formula(collected.plot.x) else 0
        axes.tick_params(axis="x", labelsize=8, rotation=turned)
        axes.set_ylabel(_format_y_axis_label(collected) if index % across == 0 else "")
    _draw_legend(figure, collected, handles)
    return figure


def _draw_legend(figure: Figure, collected: FigureData, handles: Mapping[str, Line2D]) -> None:
    plot, further = collected.plot, _make_published_handles(collected)
    shown = [line for line in collected.styles if (line or UNNAMED_LINE) in handles]
    names = [label_axis_value(plot.lines, line) if plot.lines else UNNAMED_LINE for line in shown]
    names += [str(d.get_label()) for d in further]
    figure.legend([*(handles[line or UNNAMED_LINE] for line in shown), *further], names, loc="outside right center")


def draw_panel(axes: Axes, collected: FigureData, panel: tuple[str, ...], axis: XAxis | None = None) -> list[Line2D]:
    """Draw a panel; return the legend handles of its lines."""
    axis = axis or make_x_axis(_collect_x_values(collected, [panel]), collected.plot.scale == "log")
    shown = _draw_measured(axes, collected, panel, axis)
    _draw_published(axes, collected, panel, axis)
    _draw_bounds(axes, collected, panel, axis)
    _format_axes(axes, collected, panel, axis)
    return shown


def _make_title(collected: FigureData) -> str:
    title = collected.plot.title or collected.name
    total = len(collected.positions)
    return f"{title} ({len(collected.measured)} of {total} cells)" if collected.missing else title


def _format_axis_name(axis: str) -> str:
    return AXIS_WORDS.get(axis, axis.replace("dataset.", "").replace("learner.", "").replace("_", " "))


def _format_y_axis_label(collected: FigureData) -> str:
    least, most = min(collected.seeds), max(collected.seeds)
    seeds = f"{least} to {most}" if least < most else str(most)
    intervals = ", 95% interval" if most > 1 else ""
    intervals += ", 0 at the bottom" if collected.plot.height == "log" else ""
    return f"{format_metric_axis_label(collected.plot.metric)}\nmean of {seeds} seed{'s' * (most > 1)}{intervals}"


def format_metric_axis_label(metric: str) -> str:
    """Return the axis label of a metric; "error" is 1 - accuracy."""
    return METRIC_FACTS[metric].axis if metric in METRIC_FACTS else f"{metric} (%)"


def _collect_x_values(collected: FigureData, panels: Sequence[tuple[str, ...]]) -> list[X]:
    """Return the x values of all cells, then those of the published points in these panels."""
    shown = [
        point
        for line in collected.series
        for panel in panels
        for point in _select_points_in_panel(line, collected, panel)
    ]
    theirs = [point.at.get(collected.plot.x) for point in shown]
    return [*(at.x for at in collected.positions), *(x for x in theirs if x != "best")]


def _select_points_in_panel(
    series: PublishedSeries, collected: FigureData, panel: tuple[str, ...]
) -> list[PublishedPoint]:
    """Return the points of a published series that belong in a panel."""
    wanted = dict(zip(collected.plot.panels, panel, strict=True))
    return [
        point
        for point in series.points
        if all(axis not in point.at or _do_axis_values_match(value, point.at[axis]) for axis, value in wanted.items())
    ]


def _do_axis_values_match(ours: str, theirs: float | str) -> bool:
    return format_axis_value(theirs) in {ours, ours.partition(":")[0]}  # papers give no options


def _draw_measured(axes: Axes, collected: FigureData, panel: tuple[str, ...], axis: XAxis) -> list[Line2D]:
    """Draw the measured scores. Dotted lines lead from numeric x values to words such as ∞; references are dashed."""
    drawn, onward = [], []
    for line, style in collected.styles.items():
        measured = {at.x: value for at, value in collected.measured.items() if (at.panel, at.line) == (panel, line)}
        points = {axis.coordinates[x]: _scale_score(collected, measured[x]) for x in axis.coordinates if x in measured}
        if not points:
            continue
        reference = sorted(collected.references).index(line) if line in collected.references else None
        stroke = "-" if reference is None else REFERENCE_STROKES[reference % len(REFERENCE_STROKES)]
        joined = stroke if axis.numbers and not set(measured) & set(axis.words) else ""
        drawn.append(Line(line or UNNAMED_LINE, points, style, joined))
        if not joined and axis.numbers:
            numbers = {
                axis.coordinates[x]: score_without_interval(points[axis.coordinates[x]].mean)
                for x in axis.numbers
                if x in measured
            }
            onward += [Line("", numbers, style, stroke, marked=False)] if numbers else []
            onward.append(
                Line(
                    "", {x: score_without_interval(value.mean) for x, value in points.items()}, style, ":", marked=False
                )
            )
    draw_lines(axes, onward)
    return draw_lines(axes, drawn)


def _scale_score(collected: FigureData, score: Interval) -> Interval:
    """Return a score in the figure's units. On a logarithmic scale, 0 is drawn below all measured scores."""
    shown = convert_to_chart_units(collected.plot.metric, score)
    if collected.plot.height == "linear":
        return shown
    means = [interval.mean for interval in collected.measured.values() if interval.mean > 0]
    least = convert_to_chart_units(collected.plot.metric, score_without_interval(min(means, default=1.0) / 2)).mean
    low, high = (None if end is None else max(end, least) for end in (shown.low, shown.high))
    return Interval(mean=max(shown.mean, least), low=low, high=high)


def _draw_bounds(axes: Axes, collected: FigureData, panel: tuple[str, ...], axis: XAxis) -> None:
    """Draw a theorem's rate as a dotted curve for each line, and circle the point at which its constant is fitted."""
    for line, style in collected.styles.items():
        found = {at.x: share for at, share in collected.bound.items() if (at.panel, at.line) == (panel, line)}
        points = {
            axis.coordinates[x]: _scale_score(collected, score_without_interval(min(1.0, found[x])))
            for x in axis.coordinates
            if x in found
        }
        if points:
            draw_lines(axes, [Line("", points, style, ":", marked=False)])
    at = collected.fitted
    if at is not None and at.panel == panel:
        height = _scale_score(collected, collected.measured[at]).mean
        axes.plot([axis.coordinates[at.x]], [height], "o", markersize=10, fillstyle="none", color=INK)


def _draw_published(axes: Axes, collected: FigureData, panel: tuple[str, ...], axis: XAxis) -> None:
    plot = collected.plot
    for index, series in enumerate(collected.series):
        grouped: dict[str, list[PublishedPoint]] = {}
        for point in _select_points_in_panel(series, collected, panel):
            grouped.setdefault(format_axis_value(point.at.get(plot.lines or "")), []).append(point)
        for line, points in grouped.items():
            matched = [
                style for ours, style in collected.styles.items() if plot.lines and _do_axis_values_match(ours, line)
            ]
            _draw_points(axes, points, plot.x, axis, _make_hollow_marker(index, matched[0].hex if matched else QUIET))


def _make_hollow_marker(index: int, colour: str) -> dict[str, Any]:
    marker = PUBLISHED_MARKERS[index % len(PUBLISHED_MARKERS)]
    return {"color": colour, "marker": marker, "markersize": 7, "markerfacecolor": PAPER, "linewidth": 1}


def _draw_points(
    axes: Axes, points: Sequence[PublishedPoint], x: str, axis: XAxis, line_options: Mapping[str, Any]
) -> None:
    best = [point for point in points if point.at.get(x) == "best"]
    placed = sorted(
        ((axis.coordinates[point.at.get(x)], point) for point in points if point not in best), key=itemgetter(0)
    )
    xs, heights = [left for left, _ in placed], [point.percent for _, point in placed]
    for above in (False, True):
        marks = [index for index, (_, point) in enumerate(placed) if point.above is above]
        marker = "^" if above else line_options["marker"]
        joined = "--" if axis.numbers and not above else "none"
        if marks:
            axes.plot(
                xs, heights, linestyle=joined, markevery=marks, **{**line_options, "marker": marker}, label="published"
            )
    for point in best:
        axes.axhline(point.percent, color=line_options["color"], linestyle="--", linewidth=1, label="published")


def _format_axes(axes: Axes, collected: FigureData, panel: tuple[str, ...], axis: XAxis) -> None:
    plot = collected.plot
    axes.set_title(textwrap.fill(", ".join(map(label_axis_value, plot.panels, panel)), TITLE_WIDTH), parse_math=False)
    axes.set_xscale("log" if axis.log else "linear")
    axes.set_xlim(*axis.limits)
    axes.set_yscale(plot.height)
    if plot.height == "log":
        label_powers_of_ten(axes.yaxis)
    if not is_formula(plot.x):
        axes.set_xticks(list(axis.coordinates.values()), labels=axis.labels(plot), parse_math=False)
    elif axis.log:  # nobody chose these values
        label_powers_of_ten(axes.xaxis)
    axes.minorticks_off()
    axes.set_xlabel(_format_axis_name(plot.x))
    if axis.number_word_boundary is not None:
        axes.axvline(axis.number_word_boundary, color=QUIET, linewidth=0.6, alpha=0.5)
    if not any(at.panel == panel for at in collected.measured):
        axes.text(0.5, 0.5, "no result yet", ha="center", va="center", transform=axes.transAxes)


def label_axis_value(axis: str, value: str) -> str:
    """Return a label such as "k = 40"; "no k" for an empty value; the value alone for a component."""
    if axis in COMPONENTS:
        return value
    return f"{_format_axis_name(axis)} = {value}" if value else f"no {_format_axis_name(axis)}"


def _make_published_handles(collected: FigureData) -> list[Line2D]:
    """Return the legend handles of the theorem's rate and of the published series."""
    from matplotlib.lines import Line2D

    found = []
    if collected.bound:
        label = textwrap.fill(f"{collected.plot.rate}, up to one constant, through the ringed point", LEGEND_WIDTH)
        found.append(Line2D([], [], linestyle=":", color=QUIET, label=label))
    for index, series in enumerate(collected.series):
        label = textwrap.fill(series.label, LEGEND_WIDTH)
        found.append(Line2D([], [], linestyle="--", label=label, **_make_hollow_marker(index, QUIET)))
    return found
