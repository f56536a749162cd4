"""Comparisons as text: the table of a study, the list of all studies, and the page of the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dpbench.analysis.plots import format_axis_value
from dpbench.registry import Registry
from dpbench_lab.reproduce.catalogue import ReproductionStudy, read_studies
from dpbench_lab.reproduce.measurements import Measurement, read_measurements
from dpbench_lab.reproduce.protocol import describe_differences
from dpbench_lab.reproduce.rates import RateComparison
from dpbench_lab.reproduce.verdict import (
    APART,
    NEAR,
    NumberComparison,
    OrderComparison,
    StudyComparison,
    compare_with_paper,
)

FIGURES, INSPECTIONS = "figures", "inspections"  # folders of the leaderboard


def compare_studies(root: Path, plugins: Registry) -> tuple[StudyComparison, ...]:
    """Compare every study with the results in the leaderboard's folder `root`."""
    return tuple(
        compare_with_paper(study, read_measurements(study, locate_study_folder(root, study), plugins))
        for study in read_studies()
    )


def locate_study_folder(root: Path, study: ReproductionStudy) -> Path:
    """Return the folder with a study's results in the leaderboard `root`; studies of the same sweep share a folder."""
    return root / INSPECTIONS if study.inspection else root / FIGURES / (study.sweep or study.name)


def format_comparison_rows(comparison: StudyComparison) -> list[tuple[str, str, str, str]]:
    """Return the rows of a comparison as texts: position, the paper's number, ours, the difference."""
    return [
        *map(_format_number_row, comparison.rows),
        *map(_format_order_row, comparison.orders),
        *_format_rate_rows(comparison),
    ]


def describe_number_source(study: ReproductionStudy) -> str:
    """Return the origin of the numbers that ours are compared with."""
    return "theorem" if study.rate else "paper"


def list_comparison_remarks(comparison: StudyComparison) -> list[str]:
    """Return the remarks below a comparison's table."""
    study, verdict = comparison.study, comparison.verdict
    because = study.because if comparison.compared_count and verdict != "holds" else study.nothing
    because = study.finding if study.finding and comparison.compared_count else because
    said = [f"Verdict: {verdict}." + (f" {because}" if because else "")]
    if study.refutes and comparison.compared_count:
        said.append(f"What this figure can refute: {study.refutes}")
    if comparison.doubts:
        said.append(f"Not decided, because {'; '.join(comparison.doubts)}.")
    runs = [measurement.facts for measurement in comparison.measurements if measurement.facts]
    if differences := describe_differences(study.protocol, runs):
        said.append(differences)
    if study.differs and comparison.compared_count:
        said.append(f"Differences: {study.differs}")
    if study.outside and comparison.compared_count:
        outside = "; ".join(map(_format_position, study.outside))
        said.append(f"Not compared, because outside the theorem's conditions: {outside}.")
    if study.missing:
        said.append(f"Missing: {study.missing}")
    if not comparison.is_measured_with_current_code:
        said.append("Measured by an earlier version of dpbench. Run it again.")
    return said


INTRODUCTION = (
    "# Reproduction of the papers",
    "",
    "For readers of the papers: every table, figure and theorem, whether it holds here, and by which numbers. `dpbench "
    "reproduce NAME` runs one of them and compares it with the published one.",
    "",
    "A number or an order is *decided* if it was measured with the paper's learner and every accuracy in it is "
    "above chance (always guessing the largest class) by its 95% interval. The verdict on a table or figure is",
    "",
    f"- *holds* if every number of the paper is decided and within {NEAR:g} points, and every ordering that the paper "
    "states without numbers is found, with a difference larger than its 95% interval (if all seeds agree, the interval "
    "of drawing the test examples);",
    f"- *holds in order only* if the pairs that are more than {APART:g} point apart in the paper are ordered in the "
    "same way: none is reversed beyond both 95% intervals, and for at least half the difference exceeds both;",
    "- *holds on other data* if all orderings are found, but none of our data is the paper's;",
    "- *cannot tell* if nothing is decided, or nothing of the learner that the paper proposes;",
    "- *does not hold* otherwise. *In part* means that some of the paper's numbers or orderings were not decided.",
    "",
    "Our features differ from the papers' nearly everywhere, so orderings mean more than distances. A generated line "
    "below each table says what differs.",
    "",
    "For a theorem, the measured error is compared with the theorem's rate times one constant, which is fitted at "
    "one cell. The theorem *does not hold* if the error of a cell that meets its conditions is more than twice the "
    "rate, beyond the 95% interval. It *holds* if, in addition, no error is less than half of the rate, and the "
    "constant is within a factor of two of 1. Otherwise it *holds up to a constant*, that is, as an upper bound.",
    "",
    '*All studies with their verdicts. "Compared" counts the numbers and orderings that were measured.*',
    "",
    "| study | place | compared | verdict |",
    "|---|---|---|---|",
)


def render_markdown_page(comparisons: Iterable[StudyComparison]) -> str:
    """Return the page of the documentation, as Markdown: a section per measured study, and a list of the others."""
    kept = tuple(comparisons)
    measured = {comparison.study.name: lines for comparison in kept if (lines := _render_study_section(comparison))}
    lines = [*INTRODUCTION]
    for comparison in kept:
        name = comparison.study.name
        place = name.replace(".", "") if name in measured else "not-measured"
        lines.append(
            f"| [{name}](#{place}) | {comparison.study.paper}, {comparison.study.place} "
            f"| {describe_compared_count(comparison)} | {comparison.verdict} |"
        )
    for section in measured.values():
        lines += section
    others = [comparison for comparison in kept if comparison.study.name not in measured]
    lines += ["", "## Not measured", "", *map(_format_unmeasured_study, others)]
    return "\n".join(lines) + "\n"


def _render_study_section(comparison: StudyComparison) -> list[str]:
    """Return the section of one study; empty if nothing of it was measured."""
    shown = [row for row in format_comparison_rows(comparison) if row[2]]
    if not shown:
        return []
    study = comparison.study
    lines = ["", f"## {study.name}", "", f"{study.paper}, {study.place}. {study.shows}", ""]
    lines += [f"| cell | {describe_number_source(study)} | measured | difference |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in shown]
    return lines + [part for remark in list_comparison_remarks(comparison) for part in ("", remark)]


def _format_unmeasured_study(comparison: StudyComparison) -> str:
    study, remarks = comparison.study, " ".join(list_comparison_remarks(comparison))
    return f"- **{study.paper}, {study.place}** (`{study.name}`). {study.shows} {remarks}"


def describe_compared_count(comparison: StudyComparison) -> str:
    """Return the measured part of a study, like "3 of 8"; empty if the paper states nothing to compare with."""
    if comparison.rated:
        return f"{comparison.compared_count} cells"
    total = len(comparison.rows) + len(comparison.orders)
    return f"{comparison.compared_count} of {total}" if total else ""


def _format_number_row(row: NumberComparison) -> tuple[str, str, str, str]:
    theirs = f"{'above ' if row.point.above else ''}{row.point.percent:.2f}"
    difference = "" if row.difference is None else f"{row.difference:+.2f}"
    return _format_position(row.point.at), theirs, _format_percent_with_interval(row.ours), difference


def _format_order_row(found: OrderComparison) -> tuple[str, str, str, str]:
    if found.difference is None:
        return found.order.says, "stated", "", ""
    if found.starts:
        return found.order.says, "stated", f"{100 * found.difference:+.2f} points of loss", ""
    ends = [_format_percent_with_interval(end) if end.tested else f"{end.interval.mean:.3f}" for end in found.ends]
    if found.is_within_noise:
        return found.order.says, "stated", f"{ends[0]} and {ends[1]}: too close to tell", ""
    return found.order.says, "stated", f"{ends[0]} {'>' if found.holds else '<'} {ends[1]}", ""


def _format_rate_rows(comparison: StudyComparison) -> list[tuple[str, str, str, str]]:
    """Return rows for the cell where the constant was fitted, the highest and the lowest cell; empty without a rate."""
    rated = comparison.rated
    if rated is None:
        return []
    told = {"the highest": rated.highest, "the lowest": rated.lowest}
    ring = _format_rate_row("fitted", rated.fitted, f"constant {rated.constant:.2g}")
    return [ring, *(_format_rate_row(name, value, f"times {value.factor:.2g}") for name, value in told.items())]


def _format_rate_row(name: str, comparison: RateComparison, remark: str) -> tuple[str, str, str, str]:
    return (
        f"{name}: {_format_position(comparison.rate.at)}",
        f"{100 * comparison.curve:.2f}",
        _format_percent_with_interval(comparison.measured),
        remark,
    )


def _format_percent_with_interval(ours: Measurement | None) -> str:
    if ours is None:
        return ""
    interval = ours.interval
    spread = "" if interval.low is None or interval.high is None else f" ± {50 * (interval.high - interval.low):.2f}"
    return f"{100 * interval.mean:.2f}{spread}"


def _format_position(axis_values: Mapping[str, Any]) -> str:
    return ", ".join(f"{axis} {format_axis_value(value)}" for axis, value in axis_values.items())
