"""Scores against a number, a line a learner: over the boards of one protocol by epsilon, or over k on one board."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dpbench.analysis.columns import write_percent
from dpbench.analysis.grid import Grid, Series, grid_by_number
from dpbench.analysis.rows import ResultRow
from dpbench.board.rows import EntryRow, find_reference_row
from dpbench.records.result import Interval
from dpbench.site import looks, text, view
from dpbench.site.looks import LIGHT, Look
from dpbench.site.picture import INK, QUIET, Chart, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SERIES = 16  # of one chart: beyond, the best
LABEL = 24  # characters


def epsilon_charts(family: Sequence[Sequence[EntryRow]], every: Mapping[str, Look]) -> list[Chart]:
    """Return accuracy against epsilon over the boards of a protocol: with default settings, then tuned where possible.

    The second chart draws a learner that nobody tuned with its default settings, and is there only if it differs. A
    chart needs entries at two budgets. `family` has the rows of each board, by epsilon.
    """
    found = [_epsilon_chart(family, rules, every) for rules in (("default",), ("default", "public-validation"))]
    charts = [one for one in found if one is not None]
    return charts[:1] if len({one.rows for one in charts}) == 1 else charts


def _epsilon_chart(
    family: Sequence[Sequence[EntryRow]], rules: Sequence[str], every: Mapping[str, Look]
) -> Chart | None:
    """Return the chart of entries chosen by one of some rules: a later one goes before."""
    grid = grid_by_epsilon(family, rules)
    if len({x for one in grid.series if not one.reference for x in one.points}) < 2:
        return None
    name = view.metric_name(family[0][0].protocol.metric)
    key, word = ("default", "default settings") if len(rules) == 1 else ("tuned", "tuned settings")
    title = f"{name} against ε, {word}"
    note = "Each learner on each board of this protocol; bars: 95% intervals. Grey lines are references, not entries."
    if len(rules) > 1:
        note += " Settings tuned on public labels where there are any; otherwise default settings."
    return lines_chart(grid, every, f"epsilon-{key}", title, note)


def grid_by_epsilon(family: Sequence[Sequence[EntryRow]], rules: Sequence[str]) -> Grid[EntryRow]:
    """Return learners by epsilon over the boards of a protocol that have entries, beside the references."""
    lines: dict[str, dict[float, EntryRow]] = defaultdict(dict)
    references: dict[str, dict[float, EntryRow]] = defaultdict(dict)
    measured = [rows for rows in family if any(row.entry.role == "entry" for row in rows)]
    for rows in measured:
        scored = [row for row in rows if row.score]
        for rule in rules:
            for row in reversed(scored):  # the best last
                if row.entry.role == "entry" and row.entry.selection == rule:
                    lines[row.entry.learner][row.protocol.epsilon] = row
        for role, label in view.LINES.items():
            if found := find_reference_row(scored, role):
                references[label][found.protocol.epsilon] = found
    return grid_by_number("", None, "ε", lines, references)


def k_chart(rows: Sequence[EntryRow], every: Mapping[str, Look]) -> Chart | None:
    """Return accuracy against the dimensions kept, for learners with entries that differ in k alone; else None."""
    groups: dict[tuple[object, ...], dict[float, EntryRow]] = defaultdict(dict)
    for row in rows:
        k = _positive(row.entry.settings.get("k", ""))
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
    title = f"{view.metric_name(rows[0].protocol.metric)} against k"
    return lines_chart(grid_by_number("", rows[0].protocol.metric, "k", lines), every, "k", title, note)


def lines_chart(grid: Grid[ResultRow], every: Mapping[str, Look], key: str, title: str, note: str) -> Chart:
    """Return the chart of a grid, with its numbers as a table."""
    series = [one for one in grid.series if not one.reference]
    best = sorted(series, key=lambda one: -one.best)[:SERIES]
    kept = [*best, *(one for one in grid.series if one.reference)]
    rows = [(one.label, f"{x:g}", write_percent(one.points[x])) for one in kept for x in sorted(one.points)]
    if len(best) < len(series):
        note += f" Shown: the best {len(best)} of {len(series)} learners."
    y = f"{title.partition(' against ')[0].lower()} (%)"
    drawn = picture(
        lambda: _draw(kept, f"{grid.axis} (log scale)", y, every), key,
        f"{title}. The table below the chart lists the numbers.",
    )  # fmt: skip
    return Chart(key, title, note, drawn, ("Learner", grid.axis, y), tuple(rows))


def _draw(series: Sequence[Series], x: str, y: str, every: Mapping[str, Look]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, 4.3))
    axes = figure.add_axes((0.09, 0.115, 0.655, 0.865))
    axes.set_xscale("log")
    xs = sorted({x for one in series for x in one.points})
    axes.set_xticks(xs, labels=[f"{x:g}" for x in xs])
    axes.minorticks_off()
    axes.set_xlim(xs[0] / (xs[-1] / xs[0]) ** 0.04, xs[-1] * (xs[-1] / xs[0]) ** 0.04)
    axes.set(xlabel=x, ylabel=y)
    for one in sorted(series, key=lambda one: not one.reference):  # entries above references
        if one.reference:
            _line(axes, one.points, QUIET, "--" if one.label == view.LINES["ceiling"] else ":", "")
        else:
            look = every[one.label]
            _line(axes, one.points, LIGHT[look.colour or 0], "-." if look.turn else "-", look.shape.marker)
    _labels(axes, series, every)
    return figure


def _line(axes: Axes, points: Mapping[float, Interval], colour: str, style: str, marker: str) -> None:
    xs = sorted(points)
    means = [100 * points[x].mean for x in xs]
    axes.plot(xs, means, linestyle=style, marker=marker, color=colour, linewidth=1.4, markersize=6)
    for x in xs:
        low, high = points[x].low, points[x].high
        if marker and low is not None and high is not None and high > low:
            axes.plot([x, x], [100 * low, 100 * high], color=colour, linewidth=1, alpha=0.6)


def _labels(axes: Axes, series: Sequence[Series], every: Mapping[str, Look]) -> None:
    """Write each name beside the end of its line, apart from the others, with the mark of its learner."""
    named = [(one.label, one.points, looks.REFERENCE if one.reference else every[one.label]) for one in series]
    low, high = axes.get_ylim()
    gap = (high - low) / 20
    wanted = [100 * points[max(points)].mean for _, points, _ in named]
    places = looks.spread(wanted, gap, low + gap / 2, high - gap / 2)
    across = axes.get_yaxis_transform()
    for (name, _, look), end, place in zip(named, wanted, places, strict=True):
        colour = QUIET if look.colour is None else LIGHT[look.colour]
        axes.plot([1.005, 1.025], [end, place], color=colour, linewidth=0.8, transform=across, clip_on=False)
        if look.colour is not None:
            axes.plot(
                [1.045], [place], marker=look.shape.marker, color=colour, markersize=6, transform=across, clip_on=False
            )
        left = 1.035 if look.colour is None else 1.075
        word = text.shorten_string(name, LABEL)
        axes.text(
            left, place, word, va="center", transform=across, color=QUIET if look.colour is None else INK, fontsize=9
        )


def _positive(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if 0 < value < 1e9 else None
