"""Accuracy against a number that entries of one board differ in: dimensions kept, or the seconds of a fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from dpbench.board.index import Standing
from dpbench.board.site import view
from dpbench.board.site.charts.parts import POINTS, Chart, Scale, Values, finished, looks, point, series, tooltip
from dpbench.support.messages import duration

LEAST = 1e-3  # seconds: a logarithm has no zero


def k_chart(standing: Standing, table: view.Table, learners: Sequence[str]) -> Chart | None:
    """Return accuracy over the dimensions kept; None where no learner has entries with several."""
    several: dict[str, set[float]] = defaultdict(set)
    rows = []
    for row in _measured(standing, table):
        k = _positive(row.entry.settings.get("k", ""))
        if k is not None:
            found = {**point(row.entry, standing.board.metric), "x": k, "x_said": f"{k:g}", "label": row.name}
            rows.append(found)
            several[found["learner"]].add(k)
    rows = [row for row in rows if len(several[row["learner"]]) > 1]
    if not rows:
        return None
    note = "Learners that stand here with several k, the dimensions kept; bars: 95% intervals."
    spec, body = _drawn(standing, rows, "k (log scale)", learners)
    return Chart("chart-k", "Accuracy against k", note, spec, ("Entry", "k", "score (%)"), body)


def seconds_chart(standing: Standing, table: view.Table, learners: Sequence[str]) -> Chart | None:
    """Return accuracy over the seconds of a fit, with the front: entries that none beats in both."""
    shown = _measured(standing, table)
    if not shown:
        return None
    rows = []
    for row in shown:
        seconds = row.entry.compute
        more = {"x": max(seconds, LEAST), "x_said": duration(seconds), "label": row.name}
        rows.append({**point(row.entry, standing.board.metric), **more})
    highest = -1.0
    for one in sorted(rows, key=lambda row: (row["x"], -row["mean"])):
        one["front"] = one["mean"] > highest
        highest = max(highest, one["mean"])
    note = "One fit, on the machine that ran it: processor time, or time on the clock of a GPU. "
    note += "Grey line: entries that no other is both faster and better than."
    if len(table.ranked) + table.left_out > len(shown):
        note += f" The best {len(shown)} entries."
    spec, body = _drawn(standing, rows, "seconds of compute for one fit (log scale)", learners)
    return Chart("chart-seconds", "Accuracy against compute", note, spec, ("Entry", "one fit", "score (%)"), body)


def _measured(standing: Standing, table: view.Table) -> list[view.Row]:
    return [row for row in table.ranked if standing.board.metric in row.entry.metrics][:POINTS]


def _drawn(
    standing: Standing, rows: Values, title: str, learners: Sequence[str]
) -> tuple[dict[str, Any], tuple[tuple[str, ...], ...]]:
    """Return the specification and the rows of its table."""
    import altair as alt

    names = series(rows)
    rows = [row for row in rows if row["learner"] in names]
    scale = Scale.of(standing, rows, [], None)
    colour, shape = looks(names, learners)
    ticks = alt.Axis(format="~g", grid=False)
    x = alt.X("x:Q", scale=alt.Scale(type="log", nice=False, padding=20), title=title, axis=ticks)
    y = scale.channel("mean", "y")
    base = alt.Chart(alt.NamedData("entries")).encode(x=x, color=colour)
    steps = alt.Chart(alt.NamedData("front")).mark_line(interpolate="step-after", strokeWidth=1.5)
    tips = tooltip("label=entry", f"x_said={title.partition(' (')[0]}", "value=score", "selection")
    layers = alt.layer(
        steps.encode(x=x, y=y) if "front" in rows[0] else base.mark_line(strokeWidth=1.5, opacity=0.5).encode(y=y),
        base.mark_rule(strokeWidth=1.5, opacity=0.6).encode(y=scale.channel("low", "y"), y2="high:Q"),
        base.mark_point(filled=True, size=70, opacity=1).encode(y=y, shape=shape, tooltip=tips),
    )
    datasets = {"entries": rows, "front": [row for row in rows if row.get("front")]}
    return finished(layers, datasets, 320), tuple((row["label"], row["x_said"], row["value"]) for row in rows)


def _positive(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 < number < 1e12 else None
