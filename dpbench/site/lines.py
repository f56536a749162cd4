"""Scores against a number, a line a learner: over the boards of one protocol by epsilon, or over k on one board."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench.analysis.draw import Line, exact, in_units, label_ends, lines, new_figure
from dpbench.analysis.palette import REFERENCE, LearnerStyle
from dpbench.board.index import Standing
from dpbench.records.metrics import FACTS, Metric
from dpbench.records.result import Interval
from dpbench.site import text, view
from dpbench.site.picture import Chart, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SERIES = 16  # of one chart: beyond, the best
LABEL = 24  # characters
Points = Mapping[float, Interval]


@dataclass(frozen=True)
class Lines:
    """What a chart of lines shows."""

    series: Mapping[str, Points]  # by learner
    references: Mapping[str, Points]  # by what they are called
    x: str
    metric: Metric


def epsilon_charts(family: Sequence[Standing], every: Mapping[str, LearnerStyle]) -> list[Chart]:
    """Return accuracy against epsilon over the boards of a protocol: with default settings, then tuned where possible.

    The second chart draws a learner that nobody tuned with its default settings, and is there only if it differs. A
    chart needs entries at two budgets.
    """
    found = [_epsilon_chart(family, rules, every) for rules in (("default",), ("default", "public-validation"))]
    charts = [one for one in found if one is not None]
    return charts[:1] if len({one.rows for one in charts}) == 1 else charts


def _epsilon_chart(family: Sequence[Standing], rules: Sequence[str], every: Mapping[str, LearnerStyle]) -> Chart | None:
    """Return the chart of entries chosen by one of some rules: a later one goes before."""
    metric = family[0].board.metric
    measured = [one for one in family if view.count(one)]
    series: dict[str, dict[float, Interval]] = defaultdict(dict)
    for standing in measured:
        for rule in rules:
            for entry in reversed(standing.entries):  # the best last
                if entry.role == "entry" and entry.selection == rule and metric in entry.metrics:
                    series[entry.learner][standing.board.epsilon] = entry.metrics[metric]
    if len({epsilon for points in series.values() for epsilon in points}) < 2:
        return None
    references: dict[str, dict[float, Interval]] = defaultdict(dict)
    for standing in measured:
        for line in filter(None, (view.control(standing), view.ceiling(standing))):
            references[view.LINES[line.role]][standing.board.epsilon] = line.metrics[metric]
    key, word = ("default", "default settings") if len(rules) == 1 else ("tuned", "tuned settings")
    title = f"{view.metric_name(metric)} against ε, {word}"
    note = "Each learner on each board of this protocol; bars: 95% intervals. Grey lines are references, not entries."
    if len(rules) > 1:
        note += " Settings tuned on public labels where there are any; otherwise default settings."
    return lines_chart(Lines(series, references, "ε (log scale)", metric), every,
                       f"epsilon-{key}", title, note)  # fmt: skip


def k_chart(standing: Standing, every: Mapping[str, LearnerStyle]) -> Chart | None:
    """Return accuracy against the dimensions kept, for learners with entries that differ in k alone; else None."""
    metric = standing.board.metric
    groups: dict[tuple[object, ...], dict[float, Interval]] = defaultdict(dict)
    for entry in standing.entries:
        k = _positive(entry.settings.get("k", ""))
        if entry.role == "entry" and k is not None and metric in entry.metrics:
            rest = tuple(pair for pair in entry.settings.items() if pair[0] != "k")
            groups[entry.learner, entry.selection, rest][k] = entry.metrics[metric]
    series: dict[str, Points] = {}
    for (learner, *_), points in groups.items():
        if len(points) > len(series.get(str(learner), {0: None})):
            series[str(learner)] = points
    if not series:
        return None
    note = "Entries of one learner that differ only in k, the number of dimensions kept; bars: 95% intervals."
    shown = Lines(series, {}, "k (log scale)", metric)
    return lines_chart(shown, every, "k", f"{view.metric_name(metric)} against k", note)


def lines_chart(shown: Lines, every: Mapping[str, LearnerStyle], key: str, title: str, note: str) -> Chart:
    """Return the chart, with its numbers as a table."""
    best = sorted(shown.series, key=lambda name: -max(one.mean for one in shown.series[name].values()))[:SERIES]
    kept = Lines({name: shown.series[name] for name in best}, shown.references, shown.x, shown.metric)
    rows = [
        (name, f"{x:g}", text.spread(points[x], kept.metric))
        for name, points in (*kept.series.items(), *kept.references.items())
        for x in sorted(points)
    ]
    if len(best) < len(shown.series):
        note += f" Shown: the best {len(best)} of {len(shown.series)} learners."
    drawn = picture(lambda: _draw(kept, every), key, f"{title}. The table below the chart lists the numbers.")
    return Chart(key, title, note, drawn, ("Learner", shown.x.partition(" ")[0], FACTS[shown.metric].axis), tuple(rows))


def _draw(shown: Lines, every: Mapping[str, LearnerStyle]) -> Figure:
    figure = new_figure(6.6, 4.3)
    axes = figure.add_axes((0.09, 0.115, 0.655, 0.865))
    axes.set_xscale("log")
    xs = sorted({x for points in (*shown.series.values(), *shown.references.values()) for x in points})
    axes.set_xticks(xs, labels=[f"{x:g}" for x in xs])
    axes.minorticks_off()
    axes.set_xlim(xs[0] / (xs[-1] / xs[0]) ** 0.04, xs[-1] * (xs[-1] / xs[0]) ** 0.04)
    axes.set(xlabel=shown.x, ylabel=FACTS[shown.metric].axis)
    drawn = [Line(name, _in_units(shown, points), every[name]) for name, points in shown.series.items()]
    for name, points in shown.references.items():
        stroke = "--" if name == view.LINES["ceiling"] else ":"
        means = {x: exact(score.mean) for x, score in _in_units(shown, points).items()}
        drawn.append(Line(name, means, REFERENCE, stroke, marked=False))
    lines(axes, drawn)
    label_ends(axes, drawn, lambda name: text.shorten_string(name, LABEL))
    return figure


def _in_units(shown: Lines, points: Points) -> Points:
    return {x: in_units(shown.metric, score) for x, score in points.items()}


def _positive(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if 0 < value < 1e9 else None
