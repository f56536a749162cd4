"""Grids and lists of results as text: for a terminal, in Markdown, in LaTeX and in HTML."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench.analysis.columns import Column
from dpbench.analysis.formats import format_legend, format_metric_score
from dpbench.analysis.grid import LearnerLine, ResultGrid
from dpbench.analysis.palette import LearnerStyle, assign_row_styles
from dpbench.analysis.rows import ResultRow
from dpbench.records.metrics import METRIC_FACTS, Metric

if TYPE_CHECKING:
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

PADDING = 2  # blanks around a column of a terminal's table


@dataclass(frozen=True)
class TextLine:
    """A line of a table: a label, and a text for each column."""

    label: str
    cells: tuple[str, ...]
    best: tuple[bool, ...] = ()  # which cells are marked
    reference: bool = False
    style: LearnerStyle | None = None  # of a learner

    def mark_best_cells(self, mark: Callable[[str], str], escape: Callable[[str], str] = str) -> list[str]:
        """Return the escaped cells, with a mark on the best cells."""
        best = self.best or (False,) * len(self.cells)
        cells = map(escape, self.cells)
        return [mark(cell) if is_best else cell for cell, is_best in zip(cells, best, strict=True)]


@dataclass(frozen=True)
class TextTable:
    """A table whose cells are text."""

    title: str
    head: str  # above the labels
    columns: tuple[str, ...]
    lines: tuple[TextLine, ...]
    metric: Metric | None = None  # of all cells; None where columns have their own

    def legend(self, mark: str) -> str:
        """Return the meaning of the table's numbers and of its mark; empty if columns have their own metrics."""
        return format_legend(self.metric, mark) if self.metric else ""


def make_text_tables(grids: Iterable[ResultGrid[ResultRow]]) -> list[TextTable]:
    """Return grids as text tables: scores with intervals, and a mark on ties with the best of a column."""
    return [
        TextTable(format_grid_heading(grid), "learner", grid.columns, tuple(_make_text_lines(grid)), grid.metric)
        for grid in grids
    ]


def _make_text_lines(grid: ResultGrid[ResultRow]) -> Iterator[TextLine]:
    references = {line.label for line in grid.lines if line.reference}
    styles = assign_row_styles([line.label for line in grid.lines], references)
    return (_format_line(grid, line, styles[line.label]) for line in grid.lines)


def format_grid_heading(grid: ResultGrid[ResultRow]) -> str:
    """Return a grid's heading: its protocol and its metric."""
    return f"{grid.title}: {METRIC_FACTS[grid.metric].inline_title}" if grid.metric else grid.title


def _format_line(grid: ResultGrid[ResultRow], line: LearnerLine[ResultRow], style: LearnerStyle) -> TextLine:
    cells = tuple(format_metric_score(grid.row_metric(row), grid.score(row)) if row else "" for row in line.rows)
    best = tuple(row is not None and row.standing is not None and row.standing.tied for row in line.rows)
    return TextLine(line.label, cells, best, line.reference, style)


def make_result_table(rows: Iterable[ResultRow], columns: Sequence[Column]) -> TextTable:
    """Return a table with a line for each result and with these columns."""
    first, *rest = columns
    lines = tuple(TextLine(first.show(row), tuple(column.show(row) for column in rest)) for row in rows)
    return TextTable("", first.title, tuple(column.title for column in rest), lines)


def render_terminal(table: TextTable, width: int, *, coloured: bool = False) -> list[RichTable]:
    """Return a table for a terminal, without its title: the best cells have stars, and a wide table is split.

    A long label wraps within a third of the width. If `coloured`, a learner's label begins with the learner's mark.
    """
    from rich.table import Column as RichColumn
    from rich.table import Table as RichTable
    from rich.text import Text

    texts = [line.mark_best_cells(lambda text: f"{text} *") for line in table.lines]
    names = [_make_label(line, coloured) for line in table.lines]
    labels = max(map(len, names), default=0)
    wide = [max(map(len, column)) for column in zip(table.columns, *texts, strict=True)]
    drawn = []
    for places in _split_columns(wide, width - min(labels, width // 3) - PADDING):
        part = RichTable(table.head, *(RichColumn(table.columns[place], no_wrap=True) for place in places), box=None)
        for line, name, cells in zip(table.lines, names, texts, strict=True):
            style = "dim" if line.reference else ""
            part.add_row(name, *(Text(cells[at]) for at in places), style=style)
        drawn.append(part)
    return drawn


def _make_label(line: TextLine, coloured: bool) -> RichText:
    from rich.text import Text

    if line.style is None or not coloured:
        return Text(line.label)
    return Text.assemble((f" {line.style.letter} ", line.style.terminal_colour), f" {line.label}")


def _split_columns(widths: Sequence[int], width: int) -> list[list[int]]:
    """Split columns into groups that fit side by side, with at least one column per group.

    >>> _split_columns([10, 10, 10], 25), _split_columns([10], 5), _split_columns([], 5)
    ([[0, 1], [2]], [[0]], [[]])
    """
    parts, used = list[list[int]]([[]]), 0
    for place, own in enumerate(widths):
        if parts[-1] and used + own + PADDING > width:
            parts, used = [*parts, []], 0
        parts[-1].append(place)
        used += own + PADDING
    return parts


def render_markdown(tables: Sequence[TextTable]) -> str:
    """Return tables in Markdown, each below a heading."""
    parts = []
    for table in tables:
        lines = [
            _format_markdown_row([table.head, *table.columns]),
            _format_markdown_row(["---", *["---:"] * len(table.columns)]),
        ]
        lines += [
            _format_markdown_row(
                [_format_markdown_code(line.label), *line.mark_best_cells(lambda text: f"**{text}**", _escape_bars)]
            )
            for line in table.lines
        ]
        title = " ".join(table.title.split()).replace("<", "&lt;")
        parts.append("\n".join([*([f"### {title}", ""] if title else []), *lines]))
    return "\n\n".join([*parts, *_list_distinct_legends(tables)]) + "\n"


def render_latex(tables: Sequence[TextTable]) -> str:
    """Return tables in LaTeX; the tables need the package booktabs."""
    parts = []
    for table in tables:
        rows, beside = ([line for line in table.lines if line.reference is below] for below in (False, True))
        body = [_format_latex_row(line) for line in rows] + ["\\midrule"] * bool(rows and beside)
        body += [_format_latex_row(line) for line in beside]
        head = " & ".join(map(_escape_latex, [table.head, *table.columns])) + r" \\"
        parts.append("\n".join([
            f"% {' '.join(table.title.split())}", f"\\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\toprule",
            head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}",
        ]))  # fmt: skip
    return "\n\n".join([*parts, *(f"% {said}" for said in _list_distinct_legends(tables))]) + "\n"


def render_html(tables: Sequence[TextTable]) -> str:
    """Return tables in HTML for a notebook."""
    parts = []
    for table in tables:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in (table.head, *table.columns))
        rows = [
            [_format_html_label(line), *line.mark_best_cells(lambda text: f"<b>{text}</b>", html.escape)]
            for line in table.lines
        ]
        body = "".join(f"<tr>{''.join(f'<td>{text}</td>' for text in row)}</tr>" for row in rows)
        caption = html.escape(table.title)
        parts.append(f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    return "".join([*parts, *(f"<p>{said}</p>" for said in _list_distinct_legends(tables))])


def _format_html_label(line: TextLine) -> str:
    mark = f'<span style="color:{line.style.hex}">{line.style.letter}</span> ' if line.style else ""
    return mark + html.escape(line.label)


def _list_distinct_legends(tables: Sequence[TextTable]) -> list[str]:
    return [said for said in dict.fromkeys(table.legend("Bold") for table in tables) if said]


def _format_markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _format_latex_row(line: TextLine) -> str:
    cells = [
        text.replace("±", r"$\pm$") for text in line.mark_best_cells(lambda text: rf"\textbf{{{text}}}", _escape_latex)
    ]
    return " & ".join([_escape_latex(line.label), *cells]) + r" \\"


def _escape_latex(text: str) -> str:
    words = {
        "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "{": r"\{", "}": r"\}", "$": r"\$", "\\": r"\textbackslash{}",
        "^": r"\^{}", "~": r"\~{}", "ε": r"$\varepsilon$", "∞": r"$\infty$",
    }  # fmt: skip
    return "".join(words.get(letter, letter) for letter in " ".join(text.split()))


def _format_markdown_code(text: str) -> str:
    """Return a name as code in a Markdown cell; backticks are replaced and bars escaped."""
    return f"`{_escape_bars(text).replace('`', chr(39))}`"


def _escape_bars(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")
