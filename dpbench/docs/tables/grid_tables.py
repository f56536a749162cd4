"""Render grids of results as Markdown tables for the documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from dpbench.analysis.grid import ResultGrid, make_numeric_grid
from dpbench.analysis.reader import StoredResult
from dpbench.analysis.rows import ResultRow, make_result_row
from dpbench.records.metrics import Metric
from dpbench.records.result import Interval, Result


def format_score(value: Interval, digits: int = 2) -> str:
    """Format a mean in percent, with the half-width of its interval unless that rounds to 0."""
    half = 0.0 if value.high is None else 100 * (value.high - value.mean)
    return f"{100 * value.mean:.{digits}f}" + (f" ± {half:.{digits}f}" if half >= 0.5 * 10**-digits else "")


def render_markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with these column heads and rows."""
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(heads), *lines[1:]])


def render_grid_table(
    grid: ResultGrid[ResultRow], heads: Sequence[str], format_cell: Callable[[ResultRow], str]
) -> str:
    """Return a grid as a Markdown table. Labels are split at vertical bars into columns with the heads `heads`."""
    rows = [[*line.label.split(" | "), *(format_cell(row) if row else "" for row in line.rows)] for line in grid.lines]
    return render_markdown_table([*heads, *grid.columns], rows)


def render_epsilon_table(
    results: Iterable[Result],
    metric: Metric,
    heads: Sequence[str],
    name_row: Callable[[Result], tuple[str, ...]],
) -> str:
    """Return a table of a metric by epsilon, with a row per name in the order of `results`; missing cells are empty."""
    lines: dict[str, dict[float, ResultRow]] = {}
    for result in results:
        lines.setdefault(" | ".join(name_row(result)), {})[result.spec.epsilon] = make_result_row(
            StoredResult(Path(), result)
        )
    grid = make_numeric_grid("", metric, "ε", lines)
    return render_grid_table(
        grid, heads, lambda row: format_score(grid.score(row)) if metric in row.facts.metrics else ""
    )
