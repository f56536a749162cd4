"""Grids of learners by ε, by board or by k. All tables of learners and all line charts are made from grids."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from dpbench.analysis.rows import ResultRow
from dpbench.records.metrics import Metric
from dpbench.records.result import Interval

Row = TypeVar("Row", bound=ResultRow)
Row_co = TypeVar("Row_co", bound=ResultRow, covariant=True)


@dataclass(frozen=True)
class LearnerLine(Generic[Row_co]):
    """A line of a grid: a learner's row in each column, None where the learner has no result."""

    label: str
    rows: tuple[Row_co | None, ...]
    reference: bool = False  # what entries are compared with, and never the best

    @property
    def present_rows(self) -> list[Row_co]:
        """The existing rows, in the order of the columns."""
        return [row for row in self.rows if row]


@dataclass(frozen=True)
class GridSeries:
    """A line of a chart: scores by x value."""

    label: str
    reference: bool
    points: Mapping[float, Interval]


@dataclass(frozen=True)
class ResultGrid(Generic[Row_co]):
    """A grid with a line per learner and a column per epsilon, board or k. References follow the entries."""

    title: str
    metric: Metric | None  # None where columns are boards, each with its own
    columns: tuple[str, ...]
    lines: tuple[LearnerLine[Row_co], ...]
    axis: str = ""  # what columns are values of, ε or k
    x: tuple[float, ...] = ()  # those values, where they are numbers

    def row_metric(self, row: ResultRow) -> Metric:
        """Return the metric of a row's score: the grid's metric, or the row's board's metric if the grid has none."""
        return self.metric or row.protocol.metric

    def score(self, row: ResultRow) -> Interval:
        """Return a row's score in the metric that `row_metric` returns."""
        return row.facts.metrics[self.row_metric(row)]

    @property
    def series(self) -> list[GridSeries]:
        """The lines of a chart: every line of the grid that has a score at a finite x value."""
        found = []
        for line in self.lines:
            pairs = zip(self.x, line.rows, strict=True)
            points = {x: self.score(row) for x, row in pairs if row and math.isfinite(x)}
            if points:
                found.append(GridSeries(line.label, line.reference, points))
        return found

    def column(self, index: int) -> Iterator[tuple[LearnerLine[Row_co], Row_co]]:
        """Yield each line that has a row in a column, together with that row."""
        for line in self.lines:
            row = line.rows[index]
            if row is not None:
                yield line, row


def make_numeric_grid(
    title: str,
    metric: Metric | None,
    axis: str,
    lines: Mapping[str, Mapping[float, Row]],
    references: Mapping[str, Mapping[float, Row]] | None = None,
) -> ResultGrid[Row]:
    """Return a grid: a line for each label, references last, and a column for each x value, in ascending order."""
    beside = references or {}
    x = tuple(sorted({x for rows in (*lines.values(), *beside.values()) for x in rows}))
    columns = tuple(f"{axis} {'∞' if math.isinf(value) else f'{value:g}'}" for value in x)
    made = [
        LearnerLine(label, tuple(rows.get(value) for value in x), reference)
        for group, reference in ((lines, False), (beside, True))
        for label, rows in group.items()
    ]
    return ResultGrid(title, metric, columns, tuple(made), axis, x)
