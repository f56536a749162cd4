"""The leaderboard as a table: one row an entry, at full precision."""

from __future__ import annotations

from dpbench.analysis import spreadsheet
from dpbench.board.index import Entry, Index, Standing

COLUMNS = (
    "board", "dataset", "extractor", "target_epsilon", "delta", "role", "rank", "why", "learner", "settings",
    "selection", "tried", "status", "trust", "seeds", *spreadsheet.scores({}), "epsilon", "accountant",
    "second_accountant", "second_lower", "second_upper", "sigma", "steps", "seconds", "cpu_seconds", "peak_bytes",
    "plugin", "distribution", "version", "date", "commit", "dirty", "command", "file",
    "uncorrected_rank", "unmeasured",
    "rng", "reproduced", "reads",
)  # fmt: skip


def table(index: Index) -> str:
    """Return the index as CSV; see `spreadsheet.table`."""
    rows = [_row(standing, entry) for standing in index.standings for entry in standing.entries]
    return spreadsheet.table(COLUMNS, rows)


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
    plain = {name: getattr(entry, name) for name in COLUMNS if name in Entry.model_fields}
    return {**plain, **row, **spreadsheet.scores(entry.metrics)}
