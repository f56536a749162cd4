"""The plot of an inspection: spectrum, separability, margins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dpbench.support.charts import BLUE, GREY, VERMILLION, write_chart
from dpbench_lab.inspect.report import Inspection

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 400  # of the spectrum: thousands would look the same


def write_plot(inspection: Inspection, file: Path) -> None:
    """Draw an inspection into `file`; see `charts.write_chart`."""
    write_chart(file, lambda: _figure(inspection))


def _figure(inspection: Inspection) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(_title(inspection), color=VERMILLION if inspection.mark else "black", parse_math=False)
    left, middle, right = figure.subplots(1, 3)
    for axes, draw in ((left, _spectrum), (middle, _separability), (right, _margins)):
        draw(axes, inspection)
    return figure


def _title(inspection: Inspection) -> str:
    asked = inspection.asked
    what = f"{asked.extractor} on {asked.dataset}: {inspection.examples:,} {asked.rows} examples"
    return f"{inspection.mark.upper()}: {what}" if inspection.mark else what


def _spectrum(axes: Axes, inspection: Inspection) -> None:
    found = inspection.spectrum
    values = [value for value in found.eigenvalues if value > 1e-10 * found.eigenvalues[0]]
    ranks = sorted({round(len(values) ** (step / POINTS)) for step in range(POINTS + 1)})
    axes.loglog(ranks, [values[rank - 1] for rank in ranks], color=BLUE)
    for rank, name, line in (
        (found.participation_ratio, "participation ratio", "--"),
        (found.entropy_rank, "entropy rank", ":"),
    ):
        axes.axvline(rank, color=GREY, linestyle=line, label=f"{name} {rank:.1f}")
    axes.set(title="Spectrum", xlabel="component", ylabel="variance (unit-length rows)")
    axes.legend(loc="lower left")


def _separability(axes: Axes, inspection: Inspection) -> None:
    axes.set(title="Low-rank separability", ylabel="ξₖ (0: within the first k components)")
    if not _panel(axes, inspection, inspection.separability is not None):
        return
    assert inspection.separability is not None
    found, k = inspection.separability, inspection.asked.k
    for across, name, colour, marker in (
        (found.own, "pair's own components", BLUE, "o"),
        (found.shared, "components of all classes", VERMILLION, "s"),
    ):
        axes.plot(k, across.median, color=colour, marker=marker, markersize=4, label=f"{name}, median")
        axes.fill_between(k, across.smallest, across.largest, color=colour, alpha=0.15, linewidth=0)
    axes.set_ylim(0, 1.4)
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.legend(loc="upper right", title=f"{len(found.pairs)} of {found.possible} class pairs; band: range")


def _margins(axes: Axes, inspection: Inspection) -> None:
    axes.set(title="Margin, one class against the rest", ylabel="smallest margin (unit-length rows)")
    if not _panel(axes, inspection, inspection.margins is not None):
        return
    assert inspection.margins is not None
    found, k = inspection.margins, inspection.asked.k
    for share, values, colour, marker in zip(found.shares, found.smallest, (BLUE, VERMILLION), ("o", "s"), strict=True):
        axes.plot(k, values, color=colour, marker=marker, markersize=4, label=f"that {share:.0%} of rows reach")
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_ylim(bottom=max(axes.get_ylim()[0], -1))  # below it the hyperplane misses all rows
    axes.legend(loc="best")


def _panel(axes: Axes, inspection: Inspection, labelled: bool) -> bool:
    """Prepare a panel over k, or say in it that labels are needed."""
    if not labelled:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "needs labels of these classes", ha="center", va="center", transform=axes.transAxes)
        return False
    axes.set_xscale("log")
    ticks = inspection.asked.k
    axes.set_xticks(ticks, labels=[str(one) for one in ticks], rotation=90)
    axes.minorticks_off()
    axes.set_xlabel("k (dimensions kept)")
    return True
