"""Line charts of scores, one line per learner: against epsilon for a protocol, or against k for a board."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dpbench.analysis.draw import (
    Line,
    convert_to_chart_units,
    draw_lines,
    label_line_ends,
    new_figure,
    score_without_interval,
)
from dpbench.analysis.formats import format_metric_score
from dpbench.analysis.grid import GridSeries, ResultGrid, make_numeric_grid
from dpbench.analysis.palette import REFERENCE, LearnerStyle
from dpbench.analysis.rows import ResultRow, sign_adjusted_mean
from dpbench.board.rows import EntryRow, find_reference_row
from dpbench.records.metrics import METRIC_FACTS, Metric
from dpbench.site import text, view
from dpbench.site.picture import Chart, render_inline_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_SERIES = 16  # of one chart: beyond, the best
MAX_LABEL_LENGTH = 24  # characters


def make_epsilon_charts(family: Sequence[Sequence[EntryRow]], styles: Mapping[str, LearnerStyle]) -> list[Chart]:
    """Return the charts of a protocol's scores against epsilon: with default settings, then with tuned settings.

    In the second chart, learners that nobody tuned keep their default settings. If both charts have the same numbers,
    the second is left out. A chart without entries at two values of epsilon is left out too. `family` has the rows of
    each board, in the order of epsilon.
    """
    found = [_make_epsilon_chart(family, rules, styles) for rules in (("default",), ("default", "public-validation"))]
    charts = [chart for chart in found if chart is not None]
    return charts[:1] if len({chart.rows for chart in charts}) == 1 else charts


def _make_epsilon_chart(
    family: Sequence[Sequence[EntryRow]], rules: Sequence[str], styles: Mapping[str, LearnerStyle]
) -> Chart | None:
    """Return a chart of entries' scores against epsilon, for entries with these selection rules.

    If a learner has entries with several of `rules` at one epsilon, the chart shows the one with the last of these
    rules. Return None if fewer than two values of epsilon have entries.
    """
    grid = make_epsilon_grid(family, rules)
    if len({x for line in grid.series if not line.reference for x in line.points}) < 2:
        return None
    key, word = ("default", "default settings") if len(rules) == 1 else ("tuned", "tuned settings")
    note = "Each learner on each board of this protocol; bars: 95% intervals. Grey lines are references, not entries."
    if len(rules) > 1:
        note += " Settings tuned on public labels where there are any; otherwise default settings."
    return make_line_chart(grid, styles, f"epsilon-{key}", note, f", {word}")


def make_epsilon_grid(family: Sequence[Sequence[EntryRow]], rules: Sequence[str]) -> ResultGrid[EntryRow]:
    """Return the grid of learners and references by epsilon, from the boards of a protocol that have entries.

    Each cell has the best entry of a learner with one of the selection rules in `rules`. If a learner has entries with
    several of them, the last of these rules decides.
    """
    lines: dict[str, dict[float, EntryRow]] = defaultdict(dict)
    references: dict[str, dict[float, EntryRow]] = defaultdict(dict)
    measured = [rows for rows in family if any(row.entry.role == "entry" for row in rows)]
    for rows in measured:
        scored = [row for row in rows if row.score]
        for rule in rules:
            for row in reversed(scored):  # the best last
                if row.entry.role == "entry" and row.entry.selection == rule:
                    lines[row.entry.learner][row.protocol.epsilon] = row
        for role, label in view.REFERENCE_LABELS.items():
            if found := find_reference_row(scored, role):
                references[label][found.protocol.epsilon] = found
    metric = next((row.protocol.metric for rows in measured for row in rows), None)
    return make_numeric_grid("", metric, "ε", lines, references)


def make_k_chart(rows: Sequence[EntryRow], styles: Mapping[str, LearnerStyle]) -> Chart | None:
    """Return a chart of accuracy against k (dimensions kept); None unless entries of a learner differ in k alone."""
    groups: dict[tuple[object, ...], dict[float, EntryRow]] = defaultdict(dict)
    for row in rows:
        k = _parse_positive_number(row.entry.settings.get("k", ""))
        if row.entry.role == "entry" and k is not None and row.score:
            rest = tuple(pair for pair in row.entry.settings.items() if pair[0] != "k")
            groups[row.entry.learner, row.entry.selection, rest][k] = row
    lines: dict[str, dict[float, EntryRow]] = {}
    for (learner, *_), by_k in groups.items():
        if len(by_k) > max(1, len(lines.get(str(learner), ()))):
            lines[str(learner)] = by_k
    if not lines:
        return None
    note = "Entries of one learner that differ only in k, the number of dimensions kept; bars: 95% intervals."
    return make_line_chart(make_numeric_grid("", rows[0].protocol.metric, "k", lines), styles, "k", note)


def make_line_chart(
    grid: ResultGrid[ResultRow], styles: Mapping[str, LearnerStyle], key: str, note: str, settings: str = ""
) -> Chart:
    """Return the line chart of a grid, with a table of its numbers; `settings` is appended to the title."""
    metric = grid.metric
    assert metric is not None
    title = f"{METRIC_FACTS[metric].title} against {grid.axis}{settings}"
    series = [line for line in grid.series if not line.reference]
    best = sorted(series, key=lambda line: -max(sign_adjusted_mean(metric, score) for score in line.points.values()))[
        :MAX_SERIES
    ]
    kept = [*best, *(line for line in grid.series if line.reference)]
    rows = [
        (line.label, f"{x:g}", format_metric_score(metric, line.points[x]))
        for line in kept
        for x in sorted(line.points)
    ]
    if len(best) < len(series):
        note += f" Shown: the best {len(best)} of {len(series)} learners."
    drawn = render_inline_svg(
        lambda: _draw_chart(kept, f"{grid.axis} (log scale)", metric, styles), key,
        f"{title}. The table below the chart lists the numbers.",
    )  # fmt: skip
    return Chart(key, title, note, drawn, ("Learner", grid.axis, METRIC_FACTS[metric].axis), tuple(rows))


def _draw_chart(series: Sequence[GridSeries], x: str, metric: Metric, styles: Mapping[str, LearnerStyle]) -> Figure:
    figure = new_figure(6.6, 4.3)
    axes = figure.add_axes((0.09, 0.115, 0.655, 0.865))
    axes.set_xscale("log")
    xs = sorted({x for line in series for x in line.points})
    axes.set_xticks(xs, labels=[f"{x:g}" for x in xs])
    axes.minorticks_off()
    axes.set_xlim(xs[0] / (xs[-1] / xs[0]) ** 0.04, xs[-1] * (xs[-1] / xs[0]) ** 0.04)
    axes.set(xlabel=x, ylabel=METRIC_FACTS[metric].axis)
    drawn = [_make_line(line, metric, styles) for line in series]
    draw_lines(axes, drawn)
    label_line_ends(axes, drawn, lambda name: text.shorten_string(name, MAX_LABEL_LENGTH))
    return figure


def _make_line(series: GridSeries, metric: Metric, styles: Mapping[str, LearnerStyle]) -> Line:
    points = {x: convert_to_chart_units(metric, score) for x, score in series.points.items()}
    if not series.reference:
        return Line(series.label, points, styles[series.label])
    means = {x: score_without_interval(score.mean) for x, score in points.items()}
    return Line(
        series.label, means, REFERENCE, "--" if view.REFERENCE_LABELS["ceiling"] in series.label else ":", marked=False
    )


def _parse_positive_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < 1e9 else None
