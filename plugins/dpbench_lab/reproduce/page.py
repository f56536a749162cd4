"""Pages of the papers' figures and theorems, each beside a chart of our results, with a verdict."""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dpbench.analysis.figure import draw_figure
from dpbench.analysis.figure_data import FigureData
from dpbench.analysis.formats import format_percent_score
from dpbench.analysis.formula import collect_numeric_values
from dpbench.analysis.plots import Plot, PlotPosition, format_axis_value, locate_cell
from dpbench.records.packed import list_records
from dpbench.records.protocol import Component
from dpbench.records.result import Result
from dpbench.site.context import SiteContext
from dpbench.site.extras import ExtraSection
from dpbench.site.layout import PageSection
from dpbench.site.picture import Chart, render_inline_svg
from dpbench.site.render import PageRenderer
from dpbench.sweep import ready_made_sweeps
from dpbench_lab.figures import literature
from dpbench_lab.figures.collect import PlotCell, assemble_figure_data
from dpbench_lab.reproduce.document import (
    compare_studies,
    describe_compared_count,
    format_comparison_rows,
    list_comparison_remarks,
    locate_study_folder,
)
from dpbench_lab.reproduce.measurements import Measurement, read_axis_values
from dpbench_lab.reproduce.verdict import StudyComparison, compare_with_paper


@dataclass(frozen=True)
class FigureView:
    """A table, figure or theorem of a paper: its comparison with our results, and a chart if results are stored."""

    comparison: StudyComparison
    chart: Chart | None
    cells: list[tuple[str, str, str, str]]  # where, theirs or the theorem's rate, ours, the difference
    remarks: list[str]
    compared: str


def _render_figure_pages(site: SiteContext, renderer: PageRenderer) -> Iterator[tuple[str, bytes]]:
    """Yield the list of all figures, and a page for each that has a chart."""
    found = [_make_figure_view(site, comparison) for comparison in compare_studies(site.root, site.plugins)]
    verdicts = Counter(figure.comparison.verdict for figure in found)
    yield "figures.html", renderer.page("figures", "figures.html", "evidence", {"figures": found, "verdicts": verdicts})
    for figure in found:
        if figure.chart:
            path = f"figures/{figure.comparison.study.name}.html"
            yield path, renderer.page("figure", path, "evidence", {"figure": figure})


def _make_figure_view(site: SiteContext, comparison: StudyComparison) -> FigureView:
    study = comparison.study
    folder = locate_study_folder(site.root, study)
    chart = None
    if study.sweep in ready_made_sweeps.list_sweep_names() and folder.is_dir():
        results = [Result.read(file) for file in list_records(folder)]
        figure = make_figure_from_results(study.sweep, results)
        chart = _make_figure_chart(figure) if figure.measured else None
        if not comparison.compared_count:  # of other defaults than those of today, or by the code before
            found = [
                replace(Measurement.from_result(result, read_axis_values(result.spec)), today=False)
                for result in results
            ]
            comparison = compare_with_paper(study, found)
    rows = [row for row in format_comparison_rows(comparison) if row[2]]
    return FigureView(comparison, chart, rows, list_comparison_remarks(comparison), describe_compared_count(comparison))


def make_figure_from_results(name: str, results: Sequence[Result]) -> FigureData:
    """Return a ready-made figure of results; each is placed by its own spec, whatever today's defaults are."""
    plot = Plot.model_validate(tomllib.loads("\n".join(ready_made_sweeps.read_sweep_lines(name)))["plot"])
    axes = (*plot.axes, *plot.through)
    kept = [result for result in results if plot.metric in {"error", *result.metrics}]
    places = [
        PlotCell(
            {axis: _read_result_axis_value(result, axis) for axis in axes},
            collect_numeric_values(result.spec.model_dump()),
            result,
        )
        for result in kept
    ]
    places.sort(key=lambda place: _position_sort_key(locate_cell(plot, place.values, place.numbers)))
    return assemble_figure_data(name, plot, places, literature.find_published_series(plot, name))


def _position_sort_key(position: PlotPosition) -> tuple[object, ...]:
    return (
        [*map(_parse_number_or_infinity, position.panel)],
        position.panel,
        _parse_number_or_infinity(position.line),
        position.line,
        isinstance(position.x, str),
        _parse_number_or_infinity(position.x),
    )


def _read_result_axis_value(result: Result, axis: str) -> object:
    """Return a result's value on an axis: a field of its spec, or an option of a component; None if not set."""
    field, _, option = axis.partition(".")
    value = getattr(result.spec, field)
    if isinstance(value, Component):
        return value.options.get(option) if option else value.names
    return value


def _parse_number_or_infinity(value: object) -> float:
    try:
        return float(str(value).replace("∞", "inf"))
    except ValueError:
        return math.inf


def _make_figure_chart(data: FigureData) -> Chart:
    title = data.plot.title or data.name
    head = (*data.plot.panels, *([data.plot.lines] if data.plot.lines else []), data.plot.x, f"{data.plot.metric} (%)")
    rows = tuple(
        (*at.panel, *([at.line] if data.plot.lines else []),
         data.plot.without or "" if at.x is None else format_axis_value(at.x),
         format_percent_score(score))
        for at, score in data.measured.items()
    )  # fmt: skip
    seeds = f"{min(data.seeds)} to {max(data.seeds)}" if min(data.seeds) < max(data.seeds) else str(data.seeds[0])
    note = f"{len(data.measured)} results: mean over {seeds} seeds with its 95% interval."
    if data.bound:
        note += f" Dotted: {data.plot.rate}, times one constant that is fitted at the ringed point."
    if data.series:
        note += " Hollow and dashed: published numbers."
    drawn = render_inline_svg(
        lambda: draw_figure(data, titled=False), data.name, f"{title}. The table lists the numbers."
    )
    return Chart(data.name, title, note, drawn, head, rows)


PAGE = ExtraSection(
    PageSection(
        "evidence", "Papers, measured again", "figures.html", "Published tables, figures and theorems, re-run."
    ),
    _render_figure_pages,
    "dpbench_lab.reproduce",
    "figures",
)
