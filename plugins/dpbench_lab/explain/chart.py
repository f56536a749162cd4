"""The plot of an explanation: for each learner one bar per stage, from its private run up to the ceiling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dpbench.analysis.draw import Bar, draw_bars, new_figure, write_chart
from dpbench.analysis.palette import INK, LINE, QUIET, make_style
from dpbench.records.metrics import METRIC_FACTS
from dpbench_lab.explain.explanation import Explanation, LearnerExplanation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STAGE_COLOURS = {
    name: make_style(place).hex for place, name in enumerate(("projection", "noise", "steps", "tuning", "clipping"))
}
STAGE_COLOURS["rest"] = QUIET
"""The bar colour of each stage."""


def write_explanation_plot(explanation: Explanation, file: Path) -> None:
    """Draw an explanation into `file`; see `draw.write_chart`."""
    write_chart(file, lambda: draw_explanation(explanation))


def list_stage_gains(explanation: LearnerExplanation) -> Iterator[tuple[str, float, float]]:
    """Yield (stage, score before, score after), in percent, for each lifted stage, then for the rest."""
    at = 100 * explanation.private.mean
    for lift in explanation.ladder:
        if lift.points is not None:
            yield lift.stage, at, (at := at + 100 * lift.points.mean)
    yield "rest", at, at + 100 * explanation.rest.mean


def draw_explanation(explanation: Explanation, *, titled: bool = True) -> Figure:
    """Return the figure: a row for each learner, and a legend of the colours below."""
    learners = explanation.learners
    drawn = new_figure(8, 1.1 + 1.1 * len(learners), dpi=110, layout="constrained")
    axes = drawn.subplots()
    if titled:
        drawn.suptitle(_format_explanation_title(explanation), parse_math=False)
    low = min(min(before, after) for learner in learners for _, before, after in list_stage_gains(learner))
    ceiling = 100 * explanation.score.mean
    high = max(ceiling, *(max(before, after) for learner in learners for _, before, after in list_stage_gains(learner)))
    left = low - 0.25 * (high - low) - 1
    draw_bars(axes, (bar for row, learner in enumerate(learners) for bar in _list_bars(row, learner, left)))
    axes.axvline(ceiling, color=INK, linestyle="--", linewidth=1)
    axes.set(xlim=(left, high + 0.12 * (high - low) + 0.5), ylim=(len(learners) - 0.45, -0.55))
    axes.set_xlabel(METRIC_FACTS[explanation.metric].axis)
    axes.set_yticks(range(len(learners)), labels=[learner.learner.name for learner in learners])
    _draw_legend(axes, explanation)
    return drawn


def _format_explanation_title(explanation: Explanation) -> str:
    spec = explanation.specs[0]
    return (
        f"The price of privacy: {spec.extractor.names} on {spec.dataset.name}, {explanation.private:,} private "
        f"{spec.unit or 'example'}s\nGuarantee of all runs except the private ones: {explanation.guarantee}"
    )


def _list_bars(row: int, explanation: LearnerExplanation, left: float) -> Iterator[Bar]:
    """Yield the bars of a learner: the private run at full height, then thinner bars for lifted stages and the rest."""
    private = 100 * explanation.private.mean
    yield Bar(row, left, private, LINE)
    yield Bar(row, private, private, LINE, text=f"{private:.1f}", before=True)
    found = list(list_stage_gains(explanation))
    height = 0.8 / len(found)
    for place, (name, before, after) in enumerate(found):
        middle = row - 0.4 + (place + 0.5) * height
        yield Bar(middle, before, after, STAGE_COLOURS[name], height, text=f"{after - before:+.1f}")


def _draw_legend(axes: Axes, explanation: Explanation) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    used = {name for learner in explanation.learners for name, _, _ in list_stage_gains(learner)}
    handles: list[Patch | Line2D] = [Patch(color=LINE, label="private")]
    handles += [Patch(color=colour, label=name) for name, colour in STAGE_COLOURS.items() if name in used]
    ceiling = f"{explanation.ceiling.name} {100 * explanation.score.mean:.1f}"
    handles.append(Line2D([], [], color=INK, linestyle="--", linewidth=1, label=ceiling))
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
