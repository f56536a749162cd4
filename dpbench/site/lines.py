"""Scores against a number, a line a learner: over the boards of one protocol by epsilon, or over k on one board."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dpbench.analysis.formats import write_score
from dpbench.analysis.grid import Grid, Series, grid_by_number
from dpbench.analysis.rows import ResultRow, merit
from dpbench.board.rows import EntryRow, find_reference_row
from dpbench.records.metrics import FACTS
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
    if len({x for line in grid.series if not line.reference for x in line.points}) < 2:
        return None
    key, word = ("default", "default settings") if len(rules) == 1 else ("tuned", "tuned settings")
    note = "Each learner on each board of this protocol; bars: 95% intervals. Grey lines are references, not entries."
    if len(rules) > 1:
        note += " Settings tuned on public labels where there are any; otherwise default settings."
    return lines_chart(grid, every, f"epsilon-{key}", note, f", {word}")


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
    metric = next((row.protocol.metric for rows in measured for row in rows), None)
    return grid_by_number("", metric, "ε", lines, references)


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
    return lines_chart(grid_by_number("", rows[0].protocol.metric, "k", lines), every, "k", note)


def lines_chart(grid: Grid[ResultRow], every: Mapping[str, Look], key: str, note: str, settings: str = "") -> Chart:
    """Return the chart of a grid by one metric, with its numbers as a table; `settings` ends its title."""
    metric = grid.metric
    assert metric is not None
    facts = FACTS[metric]
    title, y = f"{facts.title} against {grid.axis}{settings}", facts.title.lower() + " (%)" * facts.share
    series = [line for line in grid.series if not line.reference]
    best = sorted(series, key=lambda line: -max(merit(metric, score) for score in line.points.values()))[:SERIES]
    kept = [*best, *(line for line in grid.series if line.reference)]
    rows = [(line.label, f"{x:g}", write_score(metric, line.points[x])) for line in kept for x in sorted(line.points)]
    if len(best) < len(series):
        note += f" Shown: the best {len(best)} of {len(series)} learners."
    drawn = picture(
        lambda: _draw(kept, (f"{grid.axis} (log scale)", y), every, 100 if facts.share else 1), key,
        f"{title}. The table below the chart lists the numbers.",
    )  # fmt: skip
    return Chart(key, title, note, drawn, ("Learner", grid.axis, y), tuple(rows))


def _draw(series: Sequence[Series], axes_labels: tuple[str, str], every: Mapping[str, Look], scale: int) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, 4.3))
    axes = figure.add_axes((0.09, 0.115, 0.655, 0.865))
    axes.set_xscale("log")
    xs = sorted({x for line in series for x in line.points})
    axes.set_xticks(xs, labels=[f"{x:g}" for x in xs])
    axes.minorticks_off()
    axes.set_xlim(xs[0] / (xs[-1] / xs[0]) ** 0.04, xs[-1] * (xs[-1] / xs[0]) ** 0.04)
    axes.set(xlabel=axes_labels[0], ylabel=axes_labels[1])
    for line in sorted(series, key=lambda line: not line.reference):  # entries above references
        if line.reference:
            style = "--" if line.label == view.LINES["ceiling"] else ":"
            _line(axes, line.points, scale, QUIET, style, "")
        else:
            look = every[line.label]
            style = "-." if look.turn else "-"
            _line(axes, line.points, scale, LIGHT[look.colour or 0], style, look.shape.marker)
    _labels(axes, series, every, scale)
    return figure


def _line(axes: Axes, points: Mapping[float, Interval], scale: int, colour: str, style: str, marker: str) -> None:
    xs = sorted(points)
    means = [scale * points[x].mean for x in xs]
    axes.plot(xs, means, linestyle=style, marker=marker, color=colour, linewidth=1.4, markersize=6)
    for x in xs:
        low, high = points[x].low, points[x].high
        if marker and low is not None and high is not None and high > low:
            axes.plot([x, x], [scale * low, scale * high], color=colour, linewidth=1, alpha=0.6)


def _labels(axes: Axes, series: Sequence[Series], every: Mapping[str, Look], scale: int) -> None:
    """Write each name beside the end of its line, apart from the others, with the mark of its learner."""
    named = [(line.label, line.points, looks.REFERENCE if line.reference else every[line.label]) for line in series]
    low, high = axes.get_ylim()
    gap = (high - low) / 20
    wanted = [scale * points[max(points)].mean for _, points, _ in named]
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
