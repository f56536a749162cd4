"""The data of a figure: the measured score at each position, and published numbers to draw too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from dpbench.analysis.grid import ResultGrid
from dpbench.analysis.palette import LearnerStyle, assign_row_styles, make_style
from dpbench.analysis.plots import Plot, PlotPosition
from dpbench.analysis.rows import ResultRow
from dpbench.errors import SpecError
from dpbench.records.result import Interval
from dpbench.support.validation import Record

MAX_PANELS = 24  # of a figure of tables


class PublishedPoint(Record):
    """A number from a paper."""

    at: dict[str, float | str]  # axis -> value; an x of "best" means the best x, which the paper does not name
    percent: float = Field(ge=0, le=100)
    above: bool = False  # the paper says "more than"


class PublishedSeries(Record):
    """The numbers from a table, figure or sentence of a paper."""

    paper: str
    place: str  # in the paper: a table, figure or section
    features: str
    protocol: str
    points: tuple[PublishedPoint, ...] = Field(min_length=1)

    @property
    def label(self) -> str:
        """The legend label of the series."""
        above = "; ▲: more than" if any(point.above for point in self.points) else ""
        best = {axis.rpartition(".")[2] for point in self.points for axis, value in point.at.items() if value == "best"}
        line = "".join(f"; line: best {axis}" for axis in sorted(best))
        return f"published: {self.paper}, {self.place} ({self.features}{above}{line})"


@dataclass(frozen=True)
class FigureData:
    """All data that a figure shows."""

    name: str
    plot: Plot
    positions: tuple[PlotPosition, ...]  # of all cells, in the grid's order
    measured: Mapping[PlotPosition, Interval]  # of the cells that have a result, in the grid's order
    seeds: tuple[int, ...]  # how many each result has
    bound: Mapping[PlotPosition, float]  # a theorem's rate times the constant that was fitted at one cell
    fitted: PlotPosition | None  # that cell's, if it has a result
    series: Sequence[PublishedSeries]
    references: frozenset[str] = frozenset()  # lines that are no entries

    @property
    def styles(self) -> Mapping[str, LearnerStyle]:
        """The style of each line, in the grid's order. A learner has its own style; other lines get one by index."""
        found = list(dict.fromkeys(at.line for at in self.positions))
        if self.plot.lines == "learner":
            styles = assign_row_styles(found, self.references)
            return {line: styles[line] for line in found}
        return {line: make_style(place) for place, line in enumerate(found)}

    @property
    def missing(self) -> int:
        """The number of cells without a result."""
        return len(self.positions) - len(self.measured)


def collect_figure_data(name: str, tables: Sequence[ResultGrid[ResultRow]]) -> FigureData:
    """Return the data of a figure of scores against ε: a panel for each grid, a line for each line of a grid.

    Raises:
        SpecError: there are more grids than a figure has room for.
    """
    if len(tables) > MAX_PANELS:
        raise SpecError(
            f"Expected results of up to {MAX_PANELS} protocols in {name}, got {len(tables)}. Draw a part of them."
        )
    several = len(tables) > 1
    found = {
        PlotPosition((grid.title,) * several, line.label, epsilon): (grid.score(row), row.facts.seeds)
        for grid in tables
        for line in grid.lines
        for epsilon, row in zip(grid.x, line.rows, strict=True)
        if row
    }
    title = name if several else tables[0].title
    plot = Plot(
        x="epsilon", lines="learner", panels=("dataset",) * several, scale="log", title=title,
        metric=tables[0].metric or "accuracy",
    )  # fmt: skip
    references = frozenset(line.label for grid in tables for line in grid.lines if line.reference)
    scores = {at: score for at, (score, _) in found.items()}
    seeds = tuple(seeds for _, seeds in found.values())
    return FigureData(name, plot, tuple(found), scores, seeds, {}, None, (), references)
