"""One self-contained page of a folder of results: no board, no server, no network; it may be sent as it is."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from markupsafe import Markup

from dpbench.analysis.formats import heading, percent_at_most
from dpbench.analysis.reader import StoredResult
from dpbench.analysis.risk import membership_risk
from dpbench.analysis.tables import Named, Row, Table, TableCell, arrange, label
from dpbench.errors import SpecError
from dpbench.records.metrics import METRICS, Metric
from dpbench.records.result import Interval, Result
from dpbench.site import text, view
from dpbench.site.citations import own_entry
from dpbench.site.group_tables import GroupTable, tabulate_groups
from dpbench.site.lines import Lines, lines_chart
from dpbench.site.looks import looks
from dpbench.site.picture import Chart
from dpbench.site.render import ALONE, Renderer, renderer, stylesheet
from dpbench.site.settings import Settings, installed_repository, installed_version
from dpbench.support.charts import can_draw
from dpbench.support.messages import bytes_in_words

CLASSES = 60  # of more, the ones with the lowest accuracy are shown
REMARKS = 40


@dataclass(frozen=True)
class Section:
    """What the page says of the results of one protocol."""

    key: str
    table: Table
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
    facts: tuple[tuple[str, str], ...]
    guarantee: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]
    sentence: str


def render_report(filed: Sequence[StoredResult], metric: Metric, named: Named, title: str) -> bytes:
    """Return the page of some results, with charts where matplotlib is installed.

    Raises:
        SpecError: no result has the metric.
    """
    tables = arrange(filed, metric, named)
    if not tables:
        raise SpecError(f"Expected results with {metric}: none of the {len(filed)} found has it.")
    results = [one.result for one in filed]
    dates = sorted(str(date) for one in results if (date := one.provenance.get("date")))
    style = stylesheet().decode()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    values = {
        "title": title,
        "sections": [_section(f"part-{place}", one, named, results) for place, one in enumerate(tables, 1)],
        "count": len(filed), "first": dates[0] if dates else "", "last": dates[-1] if dates else "",
        "versions": sorted({str(one.provenance.get("dpbench")) for one in results}),
        "policy": ALONE.format(digest=digest), "style": Markup(style),
        "own": own_entry(installed_version(), installed_repository()),
    }  # fmt: skip
    return _renderer().page("report", "report.html", "", values)


def _renderer() -> Renderer:
    return renderer(Settings("", "", "", installed_version()))


def _section(key: str, table: Table, named: Named, all_results: Sequence[Result]) -> Section:
    cells = [cell for row in table.rows for cell in row.cells if cell]
    results = list({one.filed.result.digest: one.filed.result for one in cells}.values())
    private = [one for one in results if one.privacy.plan and math.isfinite(one.spec.epsilon)]
    place, epsilon = _column(table)
    shown = [(row, cell) for row in table.rows if (cell := row.cells[place])]
    metrics = tuple(name for name in METRICS if any(name in cell.filed.result.metrics for _, cell in shown))
    classes = list(_classes(shown))
    worst = sorted(classes, key=lambda one: one[0])[:CLASSES]
    scores = [
        (row.label, tuple(text.spread(cell.filed.result.metrics.get(one)) for one in metrics)) for row, cell in shown
    ]
    remarks = dict.fromkeys(said for one in results for said in one.remarks)
    return Section(
        key, table, heading(table), _chart(key, table), tuple(_price(table)), epsilon,
        tuple(scores), metrics, tuple(row.label for row, _ in shown),
        tuple((name, values) for low, name, values in classes if (low, name, values) in worst),
        max(0, len(classes) - CLASSES),
        tuple(tabulate_groups([(row.label, cell.filed.result) for row, cell in shown], all_results)),
        tuple(_costs(shown)), tuple(_facts(results, named)), tuple(_guarantee(private)),
        tuple(remarks)[:REMARKS], _sentence(results, private, table, named),
    )  # fmt: skip


def _column(table: Table) -> tuple[int, float]:
    """Return the place and the epsilon of the column with most results, of several that nearest to 1."""
    found = {}
    for place in range(len(table.columns)):
        own = [row.cells[place] for row in table.rows if row.cells[place] and not row.reference]
        some = next((cell for cell in own if cell), None) or next(row.cells[place] for row in table.rows)
        found[place] = (len(own), some.filed.result.spec.epsilon if some else math.inf)
    place = max(found, key=lambda one: (found[one][0], -abs(math.log(min(found[one][1], 1e9)))))
    return place, found[place][1]


def _chart(key: str, table: Table) -> Chart | None:
    def points(row: Row) -> dict[float, Interval]:
        return {epsilon: cell.score for epsilon, cell in zip(table.epsilons, row.cells, strict=True) if cell}

    series = {row.label: points(row) for row in table.rows if not row.reference}
    references = {row.label: points(row) for row in table.rows if row.reference}
    finite = {
        name: {x: one for x, one in line.items() if math.isfinite(x)}
        for name, line in (*series.items(), *references.items())
    }
    series = {name: finite[name] for name in series if finite[name]}
    if len({x for line in series.values() for x in line}) < 2 or not can_draw():
        return None
    name = view.metric_name(table.metric)
    shown = Lines(
        series, {one: finite[one] for one in references if finite[one]}, "ε (log scale)", f"{name.lower()} (%)"
    )
    return lines_chart(shown, looks(series, references), key, f"{name} against ε", "Bars: 95% intervals over seeds.")


def _price(table: Table) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield for each learner how many points it is below the best row without privacy, at each epsilon."""
    free = [row for row in table.rows if row.reference and any(_without(cell) for cell in row.cells)]
    if not free:
        return
    for row in table.rows:
        if not row.reference:
            yield (
                row.label,
                tuple(_lost(cell, [one.cells[place] for one in free]) for place, cell in enumerate(row.cells)),
            )


def _without(cell: TableCell | None) -> bool:
    return cell is not None and bool(cell.filed.result.privacy.plan) and math.isinf(cell.filed.result.spec.epsilon)


def _lost(cell: TableCell | None, free: Sequence[TableCell | None]) -> str:
    ceilings = [one.score.mean for one in free if one]
    return f"{100 * (max(ceilings) - cell.score.mean):.2f}" if cell and ceilings else text.NONE


def _classes(shown: Sequence[tuple[Row, TableCell]]) -> Iterator[tuple[float, str, tuple[str, ...]]]:
    """Yield each class with test images: the lowest mean accuracy of any learner, its name, and all learners' means."""
    accuracies = [cell.filed.result.class_accuracies for _, cell in shown]
    for name, *columns in zip(shown[0][1].filed.result.task.classes, *accuracies, strict=False):
        means = [fmean(values) if values else None for values in columns]
        known = [one for one in means if one is not None]
        if known:
            yield min(known), text.show_string(name, 60), tuple(text.percent(one) for one in means)


def _costs(shown: Sequence[tuple[Row, TableCell]]) -> Iterator[tuple[str, str, str, str]]:
    for row, cell in shown:
        result = cell.filed.result
        fit, peak = result.cpu_seconds.get("fit"), max(result.peak_bytes.values(), default=0)
        seconds = text.seconds(fit / len(result.seeds)) if fit else text.NONE
        machine = f"{result.provenance.get('device', 'unknown device')}, {result.provenance.get('processor', '')}"
        yield row.label, seconds, bytes_in_words(peak) if peak else text.NONE, machine.rstrip(", ")


def _facts(results: Sequence[Result], named: Named) -> Iterator[tuple[str, str]]:
    first = results[0]
    task, spec = first.task, first.spec
    of = f" {spec.unit}s ({task.units.images:,} images)" if spec.unit and task.units else " images"
    yield (
        "Images",
        f"{task.private:,} private{of}, {_public(results):,} public, {task.test:,} test, of {len(task.classes)} "
        "classes",
    )
    yield "Features", named("extractor", spec.extractor)
    yield from (("Copy of the data", edition) for edition in task.named_editions)
    yield "Licence", task.licence
    labels = {one.task.public_labels_seen for one in results}
    yield "Public labels", "read by some learners" if len(labels) > 1 else "read" if True in labels else "not read"
    for pair, counted in task.overlap.items():
        yield pair, str(counted)


def _public(results: Sequence[Result]) -> int:
    """Return how many public images the protocol has, although a learner that reads none counts none."""
    split = [one.task.overlap[pair].among for one in results if (pair := "public in private") in one.task.overlap]
    return max([*split, *(one.task.public for one in results)])


def _guarantee(private: Sequence[Result]) -> Iterator[tuple[str, str]]:
    if not private:
        return
    whose = sorted({one.spec.unit or "image" for one in private})
    epsilons = sorted({one.spec.epsilon for one in private})
    yield "ε", f"{', '.join(f'{one:g}' for one in epsilons)}, for one {' or '.join(whose)}"
    yield "δ", ", ".join(sorted({f"{one.privacy.delta:g}" for one in private}))
    yield "Neighbours", ", ".join(sorted({one.privacy.adjacency for one in private}))
    names = (
        sorted({one.privacy.accountant for one in private}),
        sorted({one.privacy.independent.accountant for one in private}),
    )
    yield "Accountants", f"{', '.join(names[0])}; checked by {', '.join(names[1])}"
    yield "Noise", ", ".join(sorted({one.privacy.rng for one in private})) + " randomness"
    risk = _largest_risk(private)
    if risk:
        odds = " and ".join(f"{percent_at_most(most)} at {rate:.1%} false positives" for rate, most in risk.items())
        yield f"Membership tests, at ε {epsilons[-1]:g}", f"true positives at most {odds}, for every run"
    chosen = sorted({one.selection for one in private})
    yield "How settings were chosen", ", ".join(chosen)
    yield "Not covered", "; ".join(dict.fromkeys(said for one in private for said in one.not_covered))


def _largest_risk(private: Sequence[Result]) -> dict[float, float]:
    """Return what a membership test can reach, at each rate of false positives, against the run that gives away most.

    Plans with the same epsilon differ: noise of other shapes leaves other tests.
    """
    largest = max(one.spec.epsilon for one in private)
    found: dict[float, float] = {}
    for one in private:
        for rate, most in membership_risk(one.privacy).items() if one.spec.epsilon == largest else ():
            found[rate] = max(most, found.get(rate, 0.0))
    return found


def _sentence(results: Sequence[Result], private: Sequence[Result], table: Table, named: Named) -> str:
    """Return what a paper would say of these results."""
    first = results[0]
    task, spec, many = first.task, first.spec, sorted({len(one.seeds) for one in results})
    whose = spec.unit or "image"
    seeds = f"{many[0]}" if len(many) == 1 else f"{many[0]} to {many[-1]}"
    data, features = named("dataset", spec.dataset), named("extractor", spec.extractor)
    ran = (
        f"We report {table.metric.replace('_', ' ')} on {data} with {features} features "
        f"({task.private:,} private {whose}s, {_public(results):,} public and {task.test:,} test images), as the mean "
        f"over {seeds} seed{'s' * (many[-1] > 1)}{' with its 95% interval' * (many[0] > 1)}. "
    )
    if not private:
        return f"{ran}None of these results is private."
    epsilons = ", ".join(f"{one:g}" for one in sorted({one.spec.epsilon for one in private}))
    delta = max(one.privacy.delta for one in private)  # 0 for a learner whose guarantee is pure
    neighbours = " or ".join(sorted({one.privacy.adjacency.replace("-", " ") for one in private}))
    accountants = " and ".join(sorted({one.privacy.accountant.upper() for one in private}))
    versions = " and ".join(sorted({str(one.provenance.get("dpbench", "of unknown version")) for one in private}))
    unaccounted = sorted({label(one) for one in private if one.selection == "private-unaccounted"})
    outside = f" ε does not cover the search for settings of {', '.join(unaccounted)}." * bool(unaccounted)
    return (
        f"{ran}All private runs are (ε, δ)-differentially private for one {whose}, with ε {epsilons} and "
        f"δ {delta:g}, for neighbouring datasets that {neighbours}, as computed by the {accountants} accountant of "
        f"dpbench {versions}, which samples, clips and adds the noise.{outside}"
    )


def default_file(places: Sequence[Path]) -> Path:
    """Return where the report of some places goes unless somebody says.

    >>> default_file([Path("dpbench-results")]).name
    'report.html'
    """
    first = places[0]
    return (first if first.is_dir() else first.parent) / "report.html"
