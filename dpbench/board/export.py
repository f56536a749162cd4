"""The leaderboard as a table: one row an entry, at full precision."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping

from dpbench.board.index import Entry, Index, Standing
from dpbench.records.metrics import METRICS
from dpbench.records.result import Interval

FORMULA = ("=", "+", "-", "@", "\t", "\r")


def table(index: Index) -> str:
    """Return the index as CSV.

    A stranger's text that a spreadsheet would take for a formula begins with an apostrophe; numbers are left as they
    are.
    """
    rows = [_row(standing, entry) for standing in index.standings for entry in standing.entries]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(list(_columns()))
    for row in rows:
        writer.writerow([safe(row[name]) for name in _columns()])
    return text.getvalue()


def _columns() -> Iterator[str]:
    yield from ("board", "dataset", "extractor", "target_epsilon", "delta", "role", "rank", "why", "learner")
    yield from ("settings", "selection", "tried", "status", "trust", "seeds")
    yield from scores({})
    yield from ("epsilon", "accountant", "second_accountant", "second_lower", "second_upper", "sigma", "steps")
    yield from (
        "seconds",
        "cpu_seconds",
        "peak_bytes",
        "plugin",
        "distribution",
        "version",
        "date",
        "commit",
        "dirty",
        "command",
        "file",
    )


def _row(standing: Standing, entry: Entry) -> dict[str, object]:
    board, other = standing.board, entry.independent
    row: dict[str, object] = {
        "board": board.name, "dataset": str(board.dataset), "extractor": str(board.extractor),
        "target_epsilon": board.epsilon, "delta": board.delta, "accountant": board.accountant,
        "settings": " ".join(f"{name}={value}" for name, value in entry.settings.items()),
        "second_accountant": other.accountant, "second_lower": other.lower,
        "second_upper": other.upper, "plugin": entry.plugin.plugin, "distribution": entry.plugin.distribution,
        "version": entry.plugin.version, "date": entry.made.date, "commit": entry.made.commit,
        "dirty": entry.made.dirty,
    }  # fmt: skip
    plain = {name: getattr(entry, name) for name in _columns() if name in Entry.model_fields}
    return {**plain, **row, **scores(entry.metrics)}


def scores(metrics: Mapping[str, Interval]) -> dict[str, float | None]:
    """Return a column for the mean and either end of the interval of every metric there is; None where it is absent."""
    found: dict[str, float | None] = {}
    for name in METRICS:
        one = metrics.get(name)
        numbers = (one.mean, one.low, one.high) if one else (None, None, None)
        found |= zip((name, f"{name}_low", f"{name}_high"), numbers, strict=True)
    return found


def safe(value: object) -> object:
    """Return a value for a spreadsheet: a text that it would take for a formula begins with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
