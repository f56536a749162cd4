"""Grids as tables of the documentation, in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from dpbench.analysis.grid import ResultGrid, grid_by_number
from dpbench.analysis.reader import StoredResult
from dpbench.analysis.rows import ResultRow, file_row
from dpbench.records.metrics import Metric
from dpbench.records.result import Interval, Result

Said = Callable[[Interval], str]


def write_markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows of texts as a table."""
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(heads), *lines[1:]])


def write_grid(grid: ResultGrid[ResultRow], heads: Sequence[str], said: Callable[[ResultRow], str]) -> str:
    """Return a grid as a table; `heads` stand above the parts of its labels, which bars separate."""
    rows = [[*line.label.split(" | "), *(said(row) if row else "" for row in line.rows)] for line in grid.lines]
    return write_markdown([*heads, *grid.columns], rows)


def against_epsilon(
    results: Iterable[Result],
    metric: Metric,
    said: Said,
    heads: Sequence[str],
    name: Callable[[Result], tuple[str, ...]],
) -> str:
    """Return a metric by epsilon, a line for each name, in the order of the results; "" where a result lacks it."""
    lines: dict[str, dict[float, ResultRow]] = {}
    for result in results:
        lines.setdefault(" | ".join(name(result)), {})[result.spec.epsilon] = file_row(StoredResult(Path(), result))
    grid = grid_by_number("", metric, "ε", lines)
    return write_grid(grid, heads, lambda row: said(grid.score(row)) if metric in row.facts.metrics else "")
