"""A self-contained HTML report on results. Readers need no board, server or network."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from markupsafe import Markup

from dpbench.analysis.columns import NO_VALUE
from dpbench.analysis.describe import ResultDescription, count_public_images, describe_shared_facts
from dpbench.analysis.draw import has_matplotlib
from dpbench.analysis.grid import LearnerLine, ResultGrid
from dpbench.analysis.palette import LearnerStyle, assign_row_styles
from dpbench.analysis.reader import StoredResult
from dpbench.analysis.rows import ResultRow, compute_distance_behind, find_best_score
from dpbench.analysis.tables import ComponentNamer, make_grids, make_result_label
from dpbench.analysis.text_tables import format_grid_heading
from dpbench.errors import SpecError
from dpbench.records.metrics import METRIC_FACTS, METRICS, Metric
from dpbench.records.result import Result
from dpbench.site import text
from dpbench.site.citations import make_dpbench_entry
from dpbench.site.group_tables import GroupTable, tabulate_groups
from dpbench.site.lines import make_line_chart
from dpbench.site.picture import Chart
from dpbench.site.render import STANDALONE_POLICY, PageRenderer, make_renderer, make_site_stylesheet
from dpbench.site.settings import SiteSettings, read_installed_version, read_repository_address
from dpbench.support.messages import format_bytes, format_seconds

MAX_CLASS_ROWS = 60  # of more, the ones with the lowest accuracy are shown
MAX_REMARKS = 40


@dataclass(frozen=True)
class ReportSection:
    """A section of the report: the results of one protocol."""

    key: str
    grid: ResultGrid[ResultRow]
    styles: Mapping[str, LearnerStyle]  # of its lines
    title: str
    chart: Chart | None  # with results at two epsilons or more
    price: tuple[tuple[str, tuple[str, ...]], ...]  # points below the same data without privacy, a learner a row
    epsilon: float  # of the column that scores and classes below are of
    scores: tuple[tuple[str, tuple[str, ...]], ...]
    metrics: tuple[Metric, ...]
    learners: tuple[str, ...]  # those of the classes' columns
    classes: tuple[tuple[str, tuple[str, ...]], ...]
    more_classes: int
    groups: tuple[GroupTable, ...]  # accuracy by group, where the test split has groups
    costs: tuple[tuple[str, str, str, str], ...]
    together: ResultDescription  # what all results say alike
    private: bool  # whether any result has a guarantee
    remarks: tuple[str, ...]
    sentence: str


def render_report(stored_results: Sequence[StoredResult], metric: Metric, namer: ComponentNamer, title: str) -> bytes:
    """Return the report on these results, with charts if matplotlib is installed.

    Raises:
        SpecError: no result has the metric.
    """
    tables = make_grids(stored_results, metric, namer)
    if not tables:
        raise SpecError(f"Expected results with {metric}: none of the {len(stored_results)} found has it.")
    results = [stored.result for stored in stored_results]
    dates = sorted(str(date) for result in results if (date := result.provenance.get("date")))
    style = make_site_stylesheet().decode()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    values = {
        "title": title,
        "sections": [_make_section(f"part-{place}", table, namer, results) for place, table in enumerate(tables, 1)],
        "count": len(stored_results), "first": dates[0] if dates else "", "last": dates[-1] if dates else "",
        "versions": sorted({str(result.provenance.get("dpbench")) for result in results}),
        "policy": STANDALONE_POLICY.format(digest=digest), "style": Markup(style),
        "own": make_dpbench_entry(read_installed_version(), read_repository_address()),
    }  # fmt: skip
    return _make_renderer().page("report", "report.html", "", values)


def _make_renderer() -> PageRenderer:
    return make_renderer(SiteSettings("", "", "", read_installed_version()))


def _make_section(
    key: str, grid: ResultGrid[ResultRow], namer: ComponentNamer, all_results: Sequence[Result]
) -> ReportSection:
    results = list({row.result.digest: row.result for line in grid.lines for row in line.present_rows}.values())
    private = [result for result in results if result.privacy.plan and math.isfinite(result.spec.epsilon)]
    styles = assign_row_styles(
        [line.label for line in grid.lines], {line.label for line in grid.lines if line.reference}
    )
    place, epsilon = _find_fullest_column(grid)
    shown = list(grid.column(place))
    metrics = tuple(name for name in METRICS if any(name in row.facts.metrics for _, row in shown))
    classes = list(_list_class_accuracies(shown))
    worst = sorted(classes, key=lambda pair: pair[0])[:MAX_CLASS_ROWS]
    scores = [(line.label, tuple(_format_scores(row, metrics))) for line, row in shown]
    remarks = dict.fromkeys(said for result in results for said in result.remarks)
    return ReportSection(
        key, grid, styles, format_grid_heading(grid), _make_chart(key, grid, styles), tuple(_price_rows(grid)), epsilon,
        tuple(scores), metrics, tuple(line.label for line, _ in shown),
        tuple((name, values) for low, name, values in classes if (low, name, values) in worst),
        max(0, len(classes) - MAX_CLASS_ROWS),
        tuple(tabulate_groups([(line.label, row.result) for line, row in shown], all_results)),
        tuple(_list_cost_rows(shown)), describe_shared_facts(results, namer), bool(private),
        tuple(remarks)[:MAX_REMARKS], _make_methods_text(results, private, grid, namer),
    )  # fmt: skip


def _format_scores(row: ResultRow, metrics: Sequence[Metric]) -> Iterator[str]:
    return (text.format_plain_score(row.facts.metrics.get(name), name) for name in metrics)


def _find_fullest_column(grid: ResultGrid[ResultRow]) -> tuple[int, float]:
    """Return the index and epsilon of the column with most entries; of equal columns, the one nearest to epsilon 1."""
    found = {}
    for place in range(len(grid.columns)):
        own = [row for line, row in grid.column(place) if not line.reference]
        some = own[0] if own else grid.lines[0].rows[place]
        found[place] = (len(own), some.protocol.epsilon if some else math.inf)
    place = max(found, key=lambda name: (found[name][0], -abs(math.log(min(found[name][1], 1e9)))))
    return place, found[place][1]


def _make_chart(key: str, grid: ResultGrid[ResultRow], styles: Mapping[str, LearnerStyle]) -> Chart | None:
    if len({x for line in grid.series if not line.reference for x in line.points}) < 2 or not has_matplotlib():
        return None
    return make_line_chart(grid, styles, key, "Bars: 95% intervals over seeds.")


def _price_rows(grid: ResultGrid[ResultRow]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield for each learner its distance from the best non-private result at each epsilon, in points.

    Yield nothing if there is no non-private result.
    """
    free = [line for line in grid.lines if line.reference and any(map(_is_non_private, line.present_rows))]
    if not free:
        return
    ceilings = [[line.rows[place] for line in free] for place in range(len(grid.columns))]
    for line in grid.lines:
        if not line.reference:
            yield line.label, tuple(_format_points_lost(grid, *pair) for pair in zip(line.rows, ceilings, strict=True))


def _is_non_private(row: ResultRow) -> bool:
    return bool(row.result.privacy.plan) and math.isinf(row.protocol.epsilon)


def _format_points_lost(
    grid: ResultGrid[ResultRow], row: ResultRow | None, non_private_rows: Sequence[ResultRow | None]
) -> str:
    ceilings = [grid.score(row) for row in non_private_rows if row]
    if not row or not ceilings:
        return NO_VALUE
    metric = grid.row_metric(row)
    lost = compute_distance_behind(metric, grid.score(row), find_best_score(metric, ceilings))
    return f"{METRIC_FACTS[metric].scale * lost:.{METRIC_FACTS[metric].digits}f}"


ColumnRows = Sequence[tuple[LearnerLine[ResultRow], ResultRow]]


def _list_class_accuracies(shown: ColumnRows) -> Iterator[tuple[float, str, tuple[str, ...]]]:
    """Yield each class with test images: its lowest mean accuracy over learners, its name, and all learners' means."""
    accuracies = [row.result.class_accuracies for _, row in shown]
    for name, *columns in zip(shown[0][1].result.task.classes, *accuracies, strict=False):
        means = [fmean(values) if values else None for values in columns]
        known = [mean for mean in means if mean is not None]
        if known:
            yield min(known), text.sanitise_string(name, 60), tuple(text.format_percent(mean) for mean in means)


def _list_cost_rows(shown: ColumnRows) -> Iterator[tuple[str, str, str, str]]:
    for line, row in shown:
        result = row.result
        fit, peak = result.cpu_seconds.get("fit"), row.facts.peak_bytes
        seconds = format_seconds(fit / row.facts.seeds) if fit else NO_VALUE
        machine = f"{result.provenance.get('device', 'unknown device')}, {result.provenance.get('processor', '')}"
        yield line.label, seconds, format_bytes(peak) if peak else NO_VALUE, machine.rstrip(", ")


def _make_methods_text(
    results: Sequence[Result], private: Sequence[Result], grid: ResultGrid[ResultRow], namer: ComponentNamer
) -> str:
    """Return a description of these results for the methods section of a paper."""
    first = results[0]
    task, spec, many = first.task, first.spec, sorted({len(result.seeds) for result in results})
    whose = spec.unit or "image"
    seeds = f"{many[0]}" if len(many) == 1 else f"{many[0]} to {many[-1]}"
    data, features = namer("dataset", spec.dataset), namer("extractor", spec.extractor)
    ran = (
        f"We report {(grid.metric or spec.metric).replace('_', ' ')} on {data} with {features} features "
        f"({task.private:,} private {whose}s, {max(map(count_public_images, results)):,} public and {task.test:,} test "
        f"images), as the mean over {seeds} seed{'s' * (many[-1] > 1)}{' with its 95% interval' * (many[0] > 1)}. "
    )
    if not private:
        return f"{ran}None of these results is private."
    epsilons = ", ".join(f"{epsilon:g}" for epsilon in sorted({result.spec.epsilon for result in private}))
    delta = max(result.privacy.delta for result in private)  # 0 for a learner whose guarantee is pure
    neighbours = " or ".join(sorted({result.privacy.adjacency.replace("-", " ") for result in private}))
    accountants = " and ".join(sorted({result.privacy.accountant.upper() for result in private}))
    versions = " and ".join(sorted({str(result.provenance.get("dpbench", "of unknown version")) for result in private}))
    unaccounted = sorted({make_result_label(result) for result in private if result.selection == "private-unaccounted"})
    outside = f" ε does not cover the search for settings of {', '.join(unaccounted)}." * bool(unaccounted)
    return (
        f"{ran}All private runs are (ε, δ)-differentially private for one {whose}, with ε {epsilons} and "
        f"δ {delta:g}, for neighbouring datasets that {neighbours}, as computed by the {accountants} accountant of "
        f"dpbench {versions}, which samples, clips and adds the noise.{outside}"
    )


def default_report_path(paths: Sequence[Path]) -> Path:
    """Return the default path of the report on some files or folders.

    >>> default_report_path([Path("dpbench-results")]).name
    'report.html'
    """
    first = paths[0]
    return (first if first.is_dir() else first.parent) / "report.html"
