"""The plot of an inspection: spectrum, separability, margins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpbench.analysis.draw import Line, draw_lines, label_powers_of_ten, new_figure, score_without_interval, write_chart
from dpbench.analysis.palette import INK, QUIET, make_style
from dpbench.records.result import Interval
from dpbench_lab.inspect.report import Inspection, Values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WARNING = make_style(3).hex  # the title of an analysis without privacy
POINTS = 400  # of the spectrum: thousands would look the same


def write_inspection_plot(inspection: Inspection, file: Path) -> None:
    """Draw an inspection into `file`; see `draw.write_chart`."""
    write_chart(file, lambda: _draw_inspection(inspection))


def _draw_inspection(inspection: Inspection) -> Figure:
    figure = new_figure(12, 4, dpi=110, layout="constrained")
    figure.suptitle(_format_inspection_title(inspection), color=WARNING if inspection.mark else INK, parse_math=False)
    left, middle, right = figure.subplots(1, 3)
    for axes, draw in ((left, _draw_spectrum), (middle, _draw_separability), (right, _draw_margins)):
        draw(axes, inspection)
    return figure


def _format_inspection_title(inspection: Inspection) -> str:
    asked = inspection.asked
    what = f"{asked.extractor} on {asked.dataset}: {inspection.examples:,} {asked.rows} examples"
    return f"{inspection.mark.upper()}: {what}" if inspection.mark else what


def _draw_spectrum(axes: Axes, inspection: Inspection) -> None:
    found = inspection.spectrum
    values = [value for value in found.eigenvalues if value > 1e-10 * found.eigenvalues[0]]
    ranks = sorted({round(len(values) ** (step / POINTS)) for step in range(POINTS + 1)})
    draw_lines(
        axes,
        [Line("", {rank: score_without_interval(values[rank - 1]) for rank in ranks}, make_style(0), marked=False)],
    )
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        label_powers_of_ten(axis)
    for rank, name, line in (
        (found.participation_ratio, "participation ratio", "--"),
        (found.entropy_rank, "entropy rank", ":"),
    ):
        axes.axvline(rank, color=QUIET, linestyle=line, label=f"{name} {rank:.1f}")
    axes.set(title="Spectrum", xlabel="component", ylabel="variance (unit-length rows)")
    axes.legend(loc="lower left")


def _draw_separability(axes: Axes, inspection: Inspection) -> None:
    axes.set(title="Low-rank separability", ylabel="ξₖ (0: within the first k components)")
    if not _prepare_panel(axes, inspection, inspection.separability is not None):
        return
    assert inspection.separability is not None
    found, k = inspection.separability, inspection.asked.k
    spans = ((found.own, "pair's own components"), (found.shared, "components of all classes"))
    draw_lines(axes, [
        Line(f"{name}, median", _points_by_k(k, span.median, span.smallest, span.largest), make_style(place), band=True)
        for place, (span, name) in enumerate(spans)
    ])  # fmt: skip
    axes.set_ylim(0, 1.4)
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.legend(loc="upper right", title=f"{len(found.pairs)} of {found.possible} class pairs; band: range")


def _draw_margins(axes: Axes, inspection: Inspection) -> None:
    axes.set(title="Margin, one class against the rest", ylabel="smallest margin (unit-length rows)")
    if not _prepare_panel(axes, inspection, inspection.margins is not None):
        return
    assert inspection.margins is not None
    found, k = inspection.margins, inspection.asked.k
    draw_lines(axes, [
        Line(f"that {share:.0%} of rows reach", _points_by_k(k, values), make_style(place))
        for place, (share, values) in enumerate(zip(found.shares, found.smallest, strict=True))
    ])  # fmt: skip
    axes.axhline(0, color=QUIET, linewidth=0.8)
    axes.set_ylim(bottom=max(axes.get_ylim()[0], -1))  # below it the hyperplane misses all rows
    axes.legend(loc="best")


def _points_by_k(k: Sequence[int], middle: Values, low: Values = (), high: Values = ()) -> dict[float, Interval]:
    """Return values by k, with their range if there is one."""
    ends = zip(low, high, strict=True) if low else ((None, None) for _ in k)
    return {
        dimension: Interval(mean=mean, low=smallest, high=largest)
        for dimension, mean, (smallest, largest) in zip(k, middle, ends, strict=True)
    }


def _prepare_panel(axes: Axes, inspection: Inspection, labelled: bool) -> bool:
    """Prepare the axes of a panel over k, or write in it that labels are needed; return whether it can be drawn."""
    if not labelled:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "needs labels of these classes", ha="center", va="center", transform=axes.transAxes)
        return False
    axes.set_xscale("log")
    ticks = inspection.asked.k
    axes.set_xticks(ticks, labels=[str(tick) for tick in ticks], rotation=90)
    axes.minorticks_off()
    axes.set_xlabel("k (dimensions kept)")
    return True
