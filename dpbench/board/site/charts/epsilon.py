"""Accuracy against epsilon: the boards of one protocol that differ in epsilon alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dpbench.board.index import Entry, Standing
from dpbench.board.site import text
from dpbench.board.site.charts.parts import (
    Chart,
    Scale,
    Values,
    ceiling_of,
    finished,
    lines,
    looks,
    papers_note,
    papers_of,
    point,
    rules,
    series,
    tooltip,
)


def epsilon_chart(standing: Standing, family: Sequence[Standing], learners: Sequence[str]) -> Chart | None:
    """Return the chart of the best entry of each learner on each board; None for fewer than two boards with entries."""
    metric = standing.board.metric
    measured = [one for one in family if any(entry.role == "entry" for entry in one.entries)]
    found = [(one.board.epsilon, entry) for one in measured for entry in _best_of_learners(one.entries, metric)]
    if len({epsilon for epsilon, _ in found}) < 2:
        return None
    rows = [{**point(entry, metric), "x": epsilon} for epsilon, entry in found]
    names = series(rows)
    rows = [row for row in rows if row["learner"] in names]
    papers = [row for one in measured for row in papers_of(one)]
    scale = Scale.of(standing, rows, papers, ceiling_of(measured))
    note = "The best ranked entry of each learner on each board of this protocol; bars: 95% intervals."
    note += papers_note(papers) + scale.note
    body = [(text.budget(row["x"]), row["learner"], row["value"]) for row in rows]
    body += [(text.budget(row["x"]), f"published: {row['learner']}", row["value"]) for row in papers]
    head = ("ε", "Learner", scale.title)
    return Chart("chart-epsilon", "Accuracy against ε", note, _spec(rows, papers, scale, learners), head, tuple(body))


def _spec(rows: Values, papers: Values, scale: Scale, learners: Sequence[str]) -> dict[str, Any]:
    import altair as alt

    names = series([*rows, *papers])
    every = [*learners, *names]
    colour, shape = looks(names, every)
    rows, dash = lines(rows, every)
    ticks = alt.Axis(values=sorted({row["x"] for row in rows}), format="~g", grid=False)
    x = alt.X("x:Q", scale=alt.Scale(type="log", nice=False, padding=28), title="ε (log scale)", axis=ticks)
    base = alt.Chart(alt.NamedData("entries")).encode(x=x, color=colour)
    hollow = alt.Chart(alt.NamedData("published")).mark_point(size=80, filled=False, strokeWidth=1.5)
    y, tips = scale.channel("mean", "y"), tooltip("learner", "value=score", "epsilon=ε", "selection")
    told = tooltip("learner=published", "value=reported", "source", "differs")
    layers = alt.layer(
        *rules(scale, "y"),
        base.mark_line(strokeWidth=1.25).encode(y=y, strokeDash=dash),
        base.mark_rule(strokeWidth=1.5).encode(y=scale.channel("low", "y"), y2="high:Q"),
        base.mark_point(filled=True, size=70, opacity=1).encode(y=y, shape=shape, tooltip=tips),
        hollow.encode(x=x, y=y, color=colour, shape=shape, tooltip=told),
    )
    return finished(layers, {"entries": rows, "published": papers, "rules": scale.rules}, 340)


def _best_of_learners(entries: Iterable[Entry], metric: str) -> list[Entry]:
    found: dict[str, Entry] = {}
    for entry in entries:
        if entry.role == "entry" and metric in entry.metrics:
            known = found.setdefault(entry.learner, entry)
            if entry.metrics[metric].mean > known.metrics[metric].mean:
                found[entry.learner] = entry
    return list(found.values())
