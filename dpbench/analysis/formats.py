"""A table as text, Markdown, LaTeX, HTML or, row by row at full precision, CSV. Scores in percent, ties bold."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dpbench.analysis import spreadsheet
from dpbench.analysis.reader import StoredResult
from dpbench.analysis.tables import Row, Table, TableCell, ordered
from dpbench.records.metrics import FACTS
from dpbench.records.result import Interval

if TYPE_CHECKING:
    from rich.table import Table as RichTable

LEGEND = "{}ean over seeds with its 95% interval. {}: statistically tied with the best of its column."
PAD = 2  # blanks around a column of a terminal's table


def percent(score: Interval) -> str:
    """Return a score in percent, with half its interval where there is one, or its ends where one would pass 0 or 100.

    >>> percent(Interval(mean=0.7231, low=0.72, high=0.7262)), percent(Interval(mean=0.5, low=None, high=None))
    ('72.31 ± 0.31', '50.00')
    >>> percent(Interval(mean=0.95, low=0.85, high=1.05)), percent(Interval(mean=0.02, low=-0.1, high=0.14))
    ('95.00 (85.00 to 100)', '2.00 (0 to 14.00)')
    """
    low, high = clamp_interval(score).low, clamp_interval(score).high
    if low is not None and high is not None and (low != score.low or high != score.high):
        return f"{100 * score.mean:.2f} ({_end(low)} to {_end(high)})"
    half = "" if score.high is None else f"{100 * (score.high - score.mean):.2f}"
    return f"{100 * score.mean:.2f}" + (f" ± {half}" if half not in {"", "0.00"} else "")


def percent_with_sign(score: Interval) -> str:
    """Return what `percent` does, with the percent sign behind the mean.

    >>> percent_with_sign(Interval(mean=0.7231, low=0.72, high=0.7262))
    '72.31% ± 0.31'
    """
    mean, *rest = percent(score).split(" ", 1)
    return " ".join([f"{mean}%", *rest])


def write_score(metric: str, score: Interval) -> str:
    """Return a score as its metric is printed: a share of 1 in percent, anything else as a number of three digits.

    >>> write_score("accuracy", Interval(mean=0.5, low=0.4, high=0.6))
    '50.00 ± 10.00'
    >>> write_score("nll", Interval(mean=1.25, low=1.0, high=1.5))
    '1.250 ± 0.250'
    """
    if FACTS[metric].share:
        return percent(score)
    return f"{score.mean:.3f}" + ("" if score.high is None else f" ± {score.high - score.mean:.3f}")


def unit_of(metric: str) -> str:
    """Return what stands behind a printed score."""
    return "%" * FACTS[metric].share


def legend(metric: str, mark: str = "*") -> str:
    """Return what a table's numbers and its mark mean."""
    way = "Percent, m" if FACTS[metric].share else "M"
    return LEGEND.format(way, mark) + ("" if FACTS[metric].higher else " Lower is better.")


def percent_at_most(share: float) -> str:
    """Return an upper bound on a share in percent, rounded up.

    >>> percent_at_most(0.00271), percent_at_most(1.0)
    ('0.28%', '100.00%')
    """
    return f"{math.ceil(10_000 * share) / 100:.2f}%"


def clamp_interval(score: Interval) -> Interval:
    """Return an interval whose ends are shares: Student's t knows no bounds."""
    low, high = (None if end is None else min(max(end, 0.0), 1.0) for end in (score.low, score.high))
    return Interval(mean=score.mean, low=low, high=high)


def _clamped(metric: str, score: Interval) -> Interval:
    return clamp_interval(score) if FACTS[metric].share else score


def _end(share: float) -> str:
    return f"{100 * share:.0f}" if share in (0, 1) else f"{100 * share:.2f}"


def render_terminal(table: Table, width: int) -> list[RichTable]:
    """Return a table for a terminal, without its title: the best are starred. Columns beyond the width stand below.

    A long label is wrapped within a third of the width.
    """
    from rich.table import Column
    from rich.table import Table as RichTable
    from rich.text import Text

    texts = [_cells(table.metric, row, lambda text: f"{text} *") for row in table.rows]
    labels = max(len(text) for text in ("learner", *(row.label for row in table.rows)))
    wide = [max(map(len, column)) for column in zip(table.columns, *texts, strict=True)]
    drawn = []
    for places in _fitting(wide, width - min(labels, width // 3) - PAD):
        part = RichTable("learner", *(Column(table.columns[place], no_wrap=True) for place in places), box=None)
        for row, cells in zip(table.rows, texts, strict=True):
            part.add_row(Text(row.label), *(Text(cells[at]) for at in places), style="dim" if row.reference else "")
        drawn.append(part)
    return drawn


def _fitting(wide: Sequence[int], width: int) -> list[list[int]]:
    """Part columns into runs that fit beside each other, one at least.

    >>> _fitting([10, 10, 10], 25), _fitting([10], 5), _fitting([], 5)
    ([[0, 1], [2]], [[0]], [[]])
    """
    parts, used = list[list[int]]([[]]), 0
    for place, one in enumerate(wide):
        if parts[-1] and used + one + PAD > width:
            parts, used = [*parts, []], 0
        parts[-1].append(place)
        used += one + PAD
    return parts


def render_markdown(tables: Sequence[Table]) -> str:
    """Return tables in Markdown, a heading before each."""
    parts = []
    for table in tables:
        head = ["learner", *table.columns]
        lines = [_pipes(head), _pipes(["---", *["---:"] * len(table.columns)])]
        rows = [(row.label, _cells(table.metric, row, lambda text: f"**{text}**")) for row in table.rows]
        lines += [_pipes([_code(label), *cells]) for label, cells in rows]
        title = " ".join(heading(table).split()).replace("<", "&lt;")
        parts.append("\n".join([f"### {title}", "", *lines]))
    return "\n\n".join([*parts, *_legends(tables)]) + "\n"


def render_latex(tables: Sequence[Table]) -> str:
    """Return tables in LaTeX; they need the package booktabs."""
    parts = []
    for table in tables:
        rows, lines = [row for row in table.rows if not row.reference], [row for row in table.rows if row.reference]
        body = [_ampersands(table.metric, row) for row in rows] + ["\\midrule"] * bool(rows and lines)
        body += [_ampersands(table.metric, row) for row in lines]
        head = " & ".join(["learner", *map(_tex, table.columns)]) + r" \\"
        title = " ".join(heading(table).split())
        parts.append("\n".join([
            f"% {title}", f"\\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\toprule", head,
            r"\midrule", *body, r"\bottomrule", r"\end{tabular}",
        ]))  # fmt: skip
    return "\n\n".join([*parts, *(f"% {said}" for said in _legends(tables))]) + "\n"


def render_html(tables: Sequence[Table]) -> str:
    """Return tables in HTML, for a notebook."""
    parts = []
    for table in tables:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in ("learner", *table.columns))
        rows = [
            "".join(
                f"<td>{text}</td>"
                for text in [html.escape(row.label), *_cells(table.metric, row, lambda text: f"<b>{text}</b>")]
            )
            for row in table.rows
        ]
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        caption = html.escape(heading(table))
        parts.append(f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    return "".join([*parts, *(f"<p>{said}</p>" for said in _legends(tables))])


def render_csv(filed: Sequence[StoredResult]) -> str:
    """Return results as CSV: one row each, scores as shares of 1 at full precision."""
    rows = [_values(one) for one in filed]
    return spreadsheet.table(list(rows[0]), rows)


def _values(filed: StoredResult) -> dict[str, object]:
    result, spec = filed.result, filed.result.spec
    row: dict[str, object] = {
        "dataset": str(ordered(spec.dataset)), "extractor": str(ordered(spec.extractor)),
        "learner": spec.learner.name,
        "settings": " ".join(f"{name}={value}" for name, value in sorted(result.settings.items())),
        "selection": result.selection, "target_epsilon": spec.epsilon, "delta": spec.delta, "seeds": len(spec.seeds),
        "private": result.task.private, "public": result.task.public, "test": result.task.test,
        "public_labels": result.task.public_labels_seen,
    }  # fmt: skip
    privacy, metrics = result.privacy, {name: _clamped(name, one) for name, one in result.metrics.items()}
    return {
        **row, **spreadsheet.scores(metrics), "epsilon": privacy.epsilon, "sigma": privacy.sigma, "rng": privacy.rng,
        "mechanism": privacy.mechanism, "seconds": sum(result.seconds.values()),
        "commit": result.provenance.get("commit"), "file": str(filed.file),
    }  # fmt: skip


def heading(table: Table) -> str:
    """Return the protocol and the metric."""
    return f"{table.title}: {table.metric.replace('_', ' ')}"


def _legends(tables: Sequence[Table]) -> list[str]:
    return list(dict.fromkeys(legend(table.metric, "Bold") for table in tables))


def _text(metric: str, cell: TableCell | None) -> str:
    return write_score(metric, cell.score) if cell else ""


def _cells(metric: str, row: Row, bold: Callable[[str], str]) -> list[str]:
    return [bold(_text(metric, cell)) if cell and cell.best else _text(metric, cell) for cell in row.cells]


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _ampersands(metric: str, row: Row) -> str:
    cells = [text.replace("±", r"$\pm$") for text in _cells(metric, row, lambda text: rf"\textbf{{{text}}}")]
    return " & ".join([_tex(row.label), *cells]) + r" \\"


def _tex(text: str) -> str:
    words = {
        "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "{": r"\{", "}": r"\}", "$": r"\$", "\\": r"\textbackslash{}",
        "^": r"\^{}", "~": r"\~{}", "ε": r"$\varepsilon$", "∞": r"$\infty$",
    }  # fmt: skip
    return "".join(words.get(letter, letter) for letter in " ".join(text.split()))


def _code(text: str) -> str:
    """Return a name as code in a cell of Markdown, which a backtick would end and a bar would split."""
    return f"`{' '.join(text.split()).replace('`', chr(39)).replace('|', chr(92) + '|')}`"
