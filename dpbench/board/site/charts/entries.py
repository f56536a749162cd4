"""Every entry of a board as a dot with its interval; below them what papers report."""

from __future__ import annotations

from typing import Any

from dpbench.board.index import Standing
from dpbench.board.site import text, view
from dpbench.board.site.charts.parts import (
    LABEL,
    Chart,
    Scale,
    Values,
    ceiling_of,
    finished,
    papers_note,
    papers_of,
    point,
    rules,
    tooltip,
)

MOST = 30  # entries


def entries_chart(standing: Standing, table: view.Table) -> Chart | None:
    """Return the chart; None for a board without ranked entries."""
    metric = standing.board.metric
    shown = [row for row in table.ranked if metric in row.entry.metrics][:MOST]
    if not shown:
        return None
    rows = [{**point(row.entry, metric), **_words(place, row)} for place, row in enumerate(shown, start=1)]
    papers = [
        {**row, "label": f"published: {row['learner'][:28]} [{place}]"}
        for place, row in enumerate(papers_of(standing), start=1)
    ]
    scale = Scale.of(standing, rows, papers, ceiling_of([standing]))
    note = "Dot: mean over seeds; bar: 95% interval; vermilion: the first rank." + papers_note(papers) + scale.note
    if len(table.ranked) + table.left_out > len(shown):
        note += f" The best {len(shown)} entries."
    body = [(row["label"], row["value"], row["epsilon"]) for row in rows]
    body += [(row["label"], row["value"], "–") for row in papers]
    head = ("Entry", scale.title, "ε")
    return Chart("chart-entries", "Entries and published figures", note, _spec(rows, papers, scale), head, tuple(body))


def _spec(rows: Values, papers: Values, scale: Scale) -> dict[str, Any]:
    import altair as alt

    names = [row["label"] for row in [*rows, *papers]]
    bare = alt.Axis(labelLimit=200, grid=False, ticks=False)
    y = alt.Y("label:N", title=None, scale=alt.Scale(domain=names), axis=bare)
    groups = alt.Scale(domain=["first", "other"], range=["#D55E00", "#0072B2"])
    base = alt.Chart(alt.NamedData("entries")).encode(y=y, color=alt.Color("group:N", legend=None, scale=groups))
    hollow = alt.Chart(alt.NamedData("published")).mark_point(shape="diamond", size=60, filled=False)
    tips = tooltip("label=entry", "value=score", "epsilon=ε", "selection")
    told = tooltip("learner", "value=reported", "source", "differs")
    layers = alt.layer(
        *rules(scale, "x"),
        base.mark_rule(strokeWidth=2).encode(x=scale.channel("low", "x"), x2="high:Q"),
        base.mark_point(filled=True, size=70, opacity=1).encode(x=scale.channel("mean", "x"), tooltip=tips),
        hollow.encode(y=y, x=scale.channel("mean", "x"), tooltip=told),
    )
    datasets = {"entries": rows, "published": papers, "rules": scale.rules}
    return finished(layers, datasets, 22 * len(names) + 16)


def _words(place: int, row: view.Row) -> dict[str, str]:
    """Return the label of a row, its own however alike the beginnings of long names are, and its group."""
    label = text.shown(row.name, LABEL)
    return {
        "label": label if len(row.name) <= LABEL else f"{label} [{place}]",
        "group": "first" if row.leads else "other",
    }
