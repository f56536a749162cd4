"""The picture that stands for a page where its address is shared: PNG, as nothing else is shown everywhere."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dpbench.board.index import Standing
from dpbench.site import text, view
from dpbench.site.looks import LIGHT, Look
from dpbench.site.picture import INK, LINE, PAPER, QUIET, use_site_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = 8
INCHES, DOTS = (12.0, 6.3), 100


def preview(standing: Standing | None, looks: Mapping[str, Look]) -> bytes:
    """Return a board's first entries with their intervals, or for None what the site is."""
    with use_site_style():
        out = io.BytesIO()
        figure = _figure(standing, looks)
        figure.savefig(out, format="png", dpi=DOTS, facecolor=PAPER, metadata={"Software": None})
    return out.getvalue()


def _figure(standing: Standing | None, looks: Mapping[str, Look]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=INCHES)
    title = standing.board.title if standing else "Which private learner is best on this data, at this ε?"
    figure.text(0.06, 0.9, "dpbench", fontsize=24, weight="bold", color=QUIET, va="center")
    if standing is None:
        said = (
            "Differentially private image classification under one protocol: every ε derived again by two accountants."
        )
        figure.text(0.06, 0.55, textwrap.fill(title, 34), fontsize=40, va="center", color=INK)
        figure.text(0.06, 0.17, textwrap.fill(said, 70), fontsize=20, va="center", color=QUIET)
        return figure
    figure.text(0.06, 0.79, text.shorten_string(title, 62), fontsize=26, va="center", color=INK)
    axes = figure.add_axes((0.28, 0.14, 0.66, 0.56))
    metric = standing.board.metric
    rows = [entry for entry in standing.entries if entry.role == "entry"][:ROWS]
    for place, entry in enumerate(rows):
        score, look = entry.metrics[metric], looks[entry.learner]
        colour = LIGHT[look.colour or 0]
        low, high = (score.mean if end is None else end for end in (score.low, score.high))
        axes.plot([100 * low, 100 * high], [place, place], color=colour, linewidth=3, alpha=0.5)
        axes.plot([100 * score.mean], [place], marker=look.shape.marker, color=colour, markersize=12)
    for line, style in ((view.control(standing), ":"), (view.ceiling(standing), "--")):
        if line:
            axes.axvline(100 * line.metrics[metric].mean, color=QUIET, linestyle=style, linewidth=1.5)
    axes.set_yticks(range(len(rows)), labels=[text.shorten_string(view.name(entry), 24) for entry in rows], fontsize=17)
    axes.set_ylim(max(len(rows), 2) - 0.4, -0.6)
    axes.tick_params(axis="x", labelsize=15)
    axes.grid(visible=True, axis="x", color=LINE)
    axes.set_xlabel(
        f"{view.metric_name(metric).lower()} (%); dotted: public labels alone, dashed: no privacy", fontsize=14
    )
    return figure
