"""Results as CSV: scores at full precision, and no text that a spreadsheet would execute as a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from dpbench.analysis.columns import Column
from dpbench.analysis.rows import ResultRow

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def render_csv(rows: Iterable[ResultRow], columns: Sequence[Column]) -> str:
    """Return rows as CSV text, with the names of the columns in the first line.

    Untrusted text that a spreadsheet would read as a formula gets a leading apostrophe; numbers stay as they are.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    writer.writerows([_escape_formula(column.value(row)) for column in columns] for row in rows)
    return text.getvalue()


def _escape_formula(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value
