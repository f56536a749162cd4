"""The cost of entries: processor seconds and peak memory as table cells, and a chart of scores against both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpbench.analysis.columns import format_percent_cell
from dpbench.analysis.draw import (
    Line,
    convert_to_chart_units,
    draw_lines,
    draw_name_list,
    new_figure,
    score_without_interval,
)
from dpbench.analysis.palette import LearnerStyle
from dpbench.board.index import Entry, Standing
from dpbench.board.rows import format_entry_label
from dpbench.records.metrics import METRIC_FACTS, Metric
from dpbench.site import text, view
from dpbench.site.picture import Chart, render_inline_svg
from dpbench.support.messages import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_LEARNERS = 16  # of one chart: beyond, the best
MAX_LABEL_LENGTH = 24  # characters
GIGABYTE = 1e9
UNRECORDED = "the result does not record it"


@dataclass(frozen=True)
class CostCells:
    """The cost of an entry as the text of two table cells. Both cells are empty if the cost is unknown."""

    seconds: str
    memory: str
    why: str  # nothing is there to say, where nothing is


def make_cost_cells(entry: Entry) -> CostCells:
    """Return the cells for an entry's time and memory.

    If the cost is unknown, both cells are empty and the field `why` gives the reason.
    """
    if entry.unmeasured or entry.cpu_seconds is None or not entry.peak_bytes:
        return CostCells("", "", entry.unmeasured or UNRECORDED)
    return CostCells(format_seconds(entry.cpu_seconds), format_bytes(entry.peak_bytes), "")


def make_cost_chart(standing: Standing, styles: Mapping[str, LearnerStyle]) -> Chart | None:
    """Return a chart of ranked entries' scores against cost, or None if fewer than two of them record a cost."""
    entries = [entry for entry in standing.entries if entry.role == "entry" and not make_cost_cells(entry).why]
    entries = [entry for entry in entries if entry.cpu_seconds]  # a logarithm has no zero
    best = list(dict.fromkeys(entry.learner for entry in entries))[:MAX_LEARNERS]
    shown = [entry for entry in entries if entry.learner in best]
    if len(shown) < 2:
        return None
    metric = standing.board.metric
    word = view.metric_title(metric)
    title = f"{word} against cost"
    note = (
        "Each mark is a ranked entry. Processor time is that of one fit, without feature extraction and search; peak "
        "memory is that of the whole run. Filled marks: default settings. Hollow marks: other settings."
    )
    if len(shown) < view.count_ranked_entries(standing):
        note += f" Shown: {len(shown)} of {view.count_ranked_entries(standing)} entries."
    rows = tuple(
        (
            format_entry_label(entry),
            format_percent_cell(entry.metrics[metric]),
            make_cost_cells(entry).seconds,
            make_cost_cells(entry).memory,
        )
        for entry in shown
    )
    drawn = render_inline_svg(
        lambda: _draw_chart(shown, standing, styles), "cost", f"{title}. The table below the chart lists the numbers."
    )
    head = ("Entry", METRIC_FACTS[metric].axis, "processor s", "peak memory")
    return Chart("cost", title, note, drawn, head, rows)


def _draw_chart(entries: Sequence[Entry], standing: Standing, styles: Mapping[str, LearnerStyle]) -> Figure:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    figure = new_figure(6.6, 3.6)
    left, right = figure.add_axes((0.09, 0.14, 0.32, 0.84)), figure.add_axes((0.45, 0.14, 0.32, 0.84))
    metric = standing.board.metric
    draw_lines(left, [_make_entry_point(entry, entry.cpu_seconds or 0.0, metric, styles) for entry in entries])
    draw_lines(right, [_make_entry_point(entry, entry.peak_bytes / GIGABYTE, metric, styles) for entry in entries])
    left.set_xscale("log")
    spent = [entry.cpu_seconds or 0.0 for entry in entries]
    left.set_xlim(min(spent) / 1.5, max(spent) * 1.5)
    subs = (1.0, 2.0, 5.0) if max(spent) < 20 * min(spent) else (1.0,)
    left.xaxis.set_major_locator(LogLocator(subs=subs))
    left.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    left.xaxis.set_minor_locator(NullLocator())
    left.set(xlabel="processor seconds of one fit", ylabel=METRIC_FACTS[metric].axis)
    right.set_xlim(0, 1.08 * max(entry.peak_bytes for entry in entries) / GIGABYTE)
    right.set(xlabel="peak memory (GB)")
    right.sharey(left)
    right.tick_params(labelleft=False)
    best = dict.fromkeys(entry.learner for entry in entries)
    names = [Line(name, {}, styles[name]) for name in best]
    draw_name_list(right, names, MAX_LEARNERS, lambda name: text.shorten_string(name, MAX_LABEL_LENGTH))
    return figure


def _make_entry_point(entry: Entry, x: float, metric: Metric, styles: Mapping[str, LearnerStyle]) -> Line:
    style = replace(styles[entry.learner], hollow=entry.selection != "default")
    score = score_without_interval(convert_to_chart_units(metric, entry.metrics[metric]).mean)
    return Line(entry.learner, {x: score}, style, stroke="", size=6.5)
