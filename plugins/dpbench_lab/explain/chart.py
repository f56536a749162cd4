"""The plot of an explanation: a flight of stairs for each learner, from its private run up to the ceiling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dpbench.records.metrics import TITLES
from dpbench.support.charts import BLUE, GREY, VERMILLION, write_chart
from dpbench_lab.explain.explanation import Explanation, LearnerExplanation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "tuning": "#CC79A7", "noise": VERMILLION, "clipping": "#E69F00", "projection": BLUE, "steps": "#009E73",
    "rest": GREY,
}  # fmt: skip


def write_plot(explanation: Explanation, file: Path) -> None:
    """Draw an explanation into `file`; see `charts.write_chart`."""
    write_chart(file, lambda: figure(explanation))


def stairs(one: LearnerExplanation) -> Iterator[tuple[str, float, float]]:
    """Yield what is lifted with the score before and after, in percent; the last is the rest, up to the ceiling."""
    at = 100 * one.private.mean
    for lift in one.ladder:
        if lift.points is not None:
            yield lift.stage, at, (at := at + 100 * lift.points.mean)
    yield "rest", at, at + 100 * one.rest.mean


def figure(explanation: Explanation, *, titled: bool = True) -> Figure:
    """Return the figure: a row a learner, and under all of them what the colours mean."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    learners = explanation.learners
    drawn = Figure(figsize=(8, 1.1 + 1.1 * len(learners)), dpi=110, layout="constrained")
    FigureCanvasAgg(drawn)
    axes = drawn.subplots()
    if titled:
        drawn.suptitle(_title(explanation), parse_math=False)
    low = min(min(before, after) for one in learners for _, before, after in stairs(one))
    ceiling = 100 * explanation.score.mean
    high = max(ceiling, *(max(before, after) for one in learners for _, before, after in stairs(one)))
    left = low - 0.25 * (high - low) - 1
    for row, one in enumerate(learners):
        _row(axes, row, one, left)
    axes.axvline(ceiling, color="black", linestyle="--", linewidth=1)
    axes.set(xlim=(left, high + 0.12 * (high - low) + 0.5), ylim=(len(learners) - 0.45, -0.55))
    axes.set_xlabel(f"{TITLES[explanation.metric].lower()} (%)")
    axes.set_yticks(range(len(learners)), labels=[one.learner.name for one in learners])
    axes.grid(visible=False, axis="y")
    _legend(axes, explanation)
    return drawn


def _title(explanation: Explanation) -> str:
    spec = explanation.specs[0]
    return (
        f"The price of privacy: {spec.extractor.names} on {spec.dataset.name}, {explanation.private:,} private "
        f"{spec.unit or 'example'}s\nGuarantee of all runs except the private ones: {explanation.guarantee}"
    )


def _row(axes: Axes, row: int, one: LearnerExplanation, left: float) -> None:
    """Draw one learner: the private run over the whole height, then a stair for each thing lifted."""
    private = 100 * one.private.mean
    axes.barh(row, private - left, left=left, height=0.8, color="#DDDDDD")
    axes.text(private, row, f"{private:.1f} ", ha="right", va="center")
    found = list(stairs(one))
    height = 0.8 / len(found)
    for place, (name, before, after) in enumerate(found):
        middle = row - 0.4 + (place + 0.5) * height
        axes.barh(middle, after - before, left=before, height=height, color=COLOURS[name])
        axes.text(max(before, after), middle, f" {after - before:+.1f}", ha="left", va="center", fontsize=7)


def _legend(axes: Axes, explanation: Explanation) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    used = {name for one in explanation.learners for name, _, _ in stairs(one)}
    handles: list[Patch | Line2D] = [Patch(color="#DDDDDD", label="private")]
    handles += [Patch(color=colour, label=name) for name, colour in COLOURS.items() if name in used]
    ceiling = f"{explanation.ceiling.name} {100 * explanation.score.mean:.1f}"
    handles.append(Line2D([], [], color="black", linestyle="--", linewidth=1, label=ceiling))
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
