"""The chart of an entry's accuracy by class. Altair makes its specification once; pages differ in rows alone."""

from __future__ import annotations

import json
import math
from typing import Any

from dpbench.board.site import text
from dpbench.board.site.charts.parts import Chart, Values, finished, tooltip
from dpbench.records.result import Result

CLASSES = 60  # of one chart: of more, the worst are shown


def class_chart(result: Result, specification: str) -> Chart | None:
    """Return accuracy by class, mean and range over seeds; None where no class has test images.

    `specification` is what `class_specification` returned, in this process or in another: Altair is slow to import.
    """
    rows = _rows(result)
    if not rows:
        return None
    shown = rows
    if len(rows) > CLASSES:
        worst = sorted(rows, key=lambda row: row["mean"])[:CLASSES]
        shown = [row for row in rows if row in worst]
    spec = json.loads(specification)
    spec["datasets"] = {"classes": shown}
    spec["height"] = 20 * len(shown) + 10
    note = "Test images of each class that were classified rightly: mean over seeds, and their range."
    if len(shown) < len(rows):
        note += f" The worst {CLASSES} of {len(rows)} classes."
    body = tuple((row["label"], row["value"], row["range"]) for row in shown)
    return Chart("chart-classes", "Accuracy by class", note, spec, ("Class", "mean (%)", "range over seeds"), body)


def _rows(result: Result) -> Values:
    rows: Values = []
    for number, name in enumerate(result.task.classes):
        found = [seed.class_accuracy[number] for seed in result.seeds if number < len(seed.class_accuracy)]
        values = [100 * one for one in found if one is not None]
        if values:
            mean, low, high = math.fsum(values) / len(values), min(values), max(values)
            rows.append({
                "place": number, "label": text.shown(name, 40), "mean": round(mean, 4), "low": round(low, 4),
                "high": round(high, 4), "value": f"{mean:.2f}", "range": f"{low:.2f} to {high:.2f}",
            })  # fmt: skip
    return rows


def class_specification() -> str:
    """Return the specification of all these charts, without data, as JSON."""
    import altair as alt

    y = alt.Y("place:O", sort=None, title=None, axis=alt.Axis(labelExpr=LABEL, labelLimit=180, grid=False, ticks=False))
    x: Any = alt.Scale(domain=[0, 100], nice=False)
    base = alt.Chart(alt.NamedData("classes")).encode(y=y)
    tips = tooltip("label=class", "value=mean", "range=seeds")
    layers = alt.layer(
        base.mark_bar(height=10, color="#56B4E9", opacity=0.35).encode(
            x=alt.X("mean:Q", scale=x, title="accuracy (%)"), tooltip=tips
        ),
        base.mark_rule(strokeWidth=1.5).encode(x=alt.X("low:Q", scale=x), x2="high:Q"),
        base.mark_point(filled=True, size=40, opacity=1).encode(x=alt.X("mean:Q", scale=x)),
    )
    return json.dumps(finished(layers, {}, 0))


# Classes may share a name, so that rows are told apart by their place and only labelled by name.
LABEL = "data('classes')[indexof(pluck(data('classes'), 'place'), datum.value)].label"
