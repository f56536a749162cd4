"""Results as CSV: scores at full precision, and no text that a spreadsheet would run as a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from dpbench.analysis.columns import Column
from dpbench.analysis.rows import ResultRow

FORMULA = ("=", "+", "-", "@", "\t", "\r")


def render_csv(rows: Iterable[ResultRow], columns: Sequence[Column]) -> str:
    """Return rows as CSV under the names of the columns.

    A stranger's text that a spreadsheet would take for a formula begins with an apostrophe; numbers are left as they
    are.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    writer.writerows([_safe(column.value(row)) for column in columns] for row in rows)
    return text.getvalue()


def _safe(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
