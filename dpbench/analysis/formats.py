"""A table as text, Markdown, LaTeX, HTML or, row by row at full precision, CSV. Scores in percent, ties bold."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
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


def write_score(metric: str, score: Interval, *, unit: bool = False) -> str:
    """Return a score as its metric is printed: mean, and half its interval or, where a bound cuts it, its ends.

    >>> write_score("accuracy", Interval(mean=0.7231, low=0.72, high=0.7262), unit=True)
    '72.31% ± 0.31'
    >>> write_score("accuracy", Interval(mean=0.95, low=0.85, high=1.05))
    '95.00 (85.00 to 100)'
    >>> write_score("nll", Interval(mean=4.043, low=1.639, high=6.447))
    '4.043 ± 2.404'
    """
    facts, held = FACTS[metric], clamp_interval(metric, score)

    def number(value: float, bounds: bool = False) -> str:
        digits = 0 if bounds and value in (0, facts.most) else facts.digits
        return f"{facts.scale * value:.{digits}f}"

    mean = number(score.mean) + facts.unit * unit
    if held.low is None or held.high is None:
        return mean
    if held != score:
        return f"{mean} ({number(held.low, True)} to {number(held.high, True)})"
    half = number(held.high - score.mean)
    return mean + (f" ± {half}" if float(half) else "")


def percent(score: Interval) -> str:
    """Return a score that is a share of 1 in percent."""
    return write_score("accuracy", score)


def clamp_interval(metric: str, score: Interval) -> Interval:
    """Return an interval whose ends are values that a metric can have: Student's t knows no bounds."""
    low, high = (None if end is None else min(max(end, 0.0), FACTS[metric].most) for end in (score.low, score.high))
    return Interval(mean=score.mean, low=low, high=high)


def unit_of(metric: str) -> str:
    """Return what stands behind a printed score."""
    return FACTS[metric].unit


def round_up(value: float, digits: int = 4) -> str:
    """Return an upper bound with some significant digits, rounded up: a page never states less than the file does.

    >>> round_up(0.9999912), round_up(1.00001), round_up(37.3064), round_up(math.inf), round_up(0.0)
    ('1', '1.001', '37.31', '∞', '0')
    """
    return _round(value, digits, ROUND_CEILING)


def round_down(value: float, digits: int = 4) -> str:
    """Return a lower bound as `round_up` does an upper one.

    >>> round_down(0.97996)
    '0.9799'
    """
    return _round(value, digits, ROUND_FLOOR)


def _round(value: float, digits: int, way: str) -> str:
    if math.isinf(value):
        return "∞"
    exact = Decimal(value)
    return f"{exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), way).normalize():f}" if value else "0"


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
    privacy, metrics = result.privacy, {name: clamp_interval(name, one) for name, one in result.metrics.items()}
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
