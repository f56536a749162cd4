"""Results as CSV: scores at full precision, and no text that a spreadsheet would run as a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from dpbench.records.metrics import METRICS
from dpbench.records.result import Interval

FORMULA = ("=", "+", "-", "@", "\t", "\r")


def table(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return rows as CSV under the names of their columns.

    A stranger's text that a spreadsheet would take for a formula begins with an apostrophe; numbers are left as they
    are.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _safe(row[name]) for name in columns} for row in rows)
    return text.getvalue()


def scores(metrics: Mapping[str, Interval]) -> dict[str, float | None]:
    """Return a column for the mean and either end of the interval of every metric there is; None where it is absent."""
    found: dict[str, float | None] = {}
    for name in METRICS:
        one = metrics.get(name)
        numbers = (one.mean, one.low, one.high) if one else (None, None, None)
        found |= zip((name, f"{name}_low", f"{name}_high"), numbers, strict=True)
    return found


def _safe(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
