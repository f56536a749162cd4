"""The columns of tables of results, in the order of the CSV.

`dpbench leaderboard export`, `dpbench results --csv` and `--columns`, `dpbench.load` and the page of all entries use
these columns and refer to a column by its `name`. To add a column, add one `Column` here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from dpbench.analysis.formats import format_metric_score, format_percent_score
from dpbench.analysis.rows import SELECTION_WORDS, ResultRow, ResultStanding
from dpbench.errors import SpecError
from dpbench.records.metrics import METRIC_FACTS, METRICS, Metric
from dpbench.records.result import Interval
from dpbench.support.messages import format_bytes, format_seconds, format_unknown_name_message

NO_VALUE = "–"
ReadValue = Callable[[ResultRow], object]
FormatCell = Callable[[ResultRow], str]
Availability = Literal["everywhere", "boards", "files"]
"""Which rows have a value in a column: all rows, only entries of boards, or only results read from their files."""
ValueType = Literal["string", "int64", "double", "bool"]
"""The Parquet name of the type of a column's values. Any value may be missing."""


@dataclass(frozen=True)
class Column:
    """One column of results."""

    name: str  # in CSV, in the notebook's frame and in the page's data
    title: str  # as a head
    value: ReadValue  # at full precision
    show: FormatCell  # as a person reads it
    filter: bool = False  # whether the page of all entries can be filtered by it
    known: Availability = "everywhere"
    dtype: ValueType = "string"

    def numeric_value(self, row: ResultRow) -> float | None:
        """Return the value if it is a number, otherwise None. Tables right-align and sort numeric values."""
        value = self.value(row)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _column(name: str, title: str, value: ReadValue, show: FormatCell | None = None, *, filtered: bool = False,
            known: Availability = "everywhere", dtype: ValueType = "string") -> Column:  # fmt: skip
    return Column(name, title, value, show or (lambda row: format_cell_value(value(row))), filtered, known, dtype)


def _board_column(name: str, title: str, value: Callable[[ResultStanding], object],
              show: Callable[[ResultStanding], str] | None = None, *, filtered: bool = False,
              dtype: ValueType = "string") -> Column:  # fmt: skip
    """Return a column that has a value only for entries of boards; other rows show a dash."""
    shown = show or (lambda standing: format_cell_value(value(standing)))
    return Column(
        name, title, lambda row: value(row.standing) if row.standing else None,
        lambda row: shown(row.standing) if row.standing else NO_VALUE, filtered, "boards", dtype,
    )  # fmt: skip


def format_cell_value(value: object) -> str:
    """Return a value as text for a reader.

    >>> [format_cell_value(value) for value in (None, True, 1234, 0.51234567, "pillar")]
    ['–', 'yes', '1,234', '0.5123', 'pillar']
    """
    if value is None:
        return NO_VALUE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}".replace("inf", "∞") if isinstance(value, float) else str(value)


def format_epsilon(epsilon: float) -> str:
    """Return a target epsilon as text, in its shortest form.

    >>> format_epsilon(0.1), format_epsilon(math.inf)
    ('0.1', '∞')
    """
    return "∞" if math.isinf(epsilon) else f"{epsilon:.10g}"


def format_percent_cell(score: Interval | None) -> str:
    """Return a mean with its interval in percent; a dash if there is no score.

    >>> format_percent_cell(None), format_percent_cell(Interval(mean=0.72, low=0.70, high=0.74))
    ('–', '72.00 ± 2.00')
    """
    return NO_VALUE if score is None else format_percent_score(score)


def _make_score_columns(metric: Metric) -> Iterator[Column]:
    """Yield a metric's columns: its mean and both ends of its interval."""
    title = METRIC_FACTS[metric].title

    def score(row: ResultRow) -> Interval | None:
        return row.facts.metrics.get(metric)

    def format_score_cell(row: ResultRow) -> str:
        found = score(row)
        return NO_VALUE if found is None else format_metric_score(metric, found)

    def make_score_field_reader(name: str) -> ReadValue:
        return lambda row: getattr(score(row), name, None)

    yield _column(metric, title, make_score_field_reader("mean"), format_score_cell, dtype="double")
    yield _column(f"{metric}_low", f"{title}, low", make_score_field_reader("low"), dtype="double")
    yield _column(f"{metric}_high", f"{title}, high", make_score_field_reader("high"), dtype="double")


def _format_settings(row: ResultRow) -> str:
    return " ".join(f"{name}={value}" for name, value in row.facts.settings.items())


def _format_cpu_time(row: ResultRow) -> str:
    spent = row.facts.cpu_seconds
    return format_seconds(spent) if spent is not None and row.facts.records_cost else ""


def _sum_run_seconds(row: ResultRow) -> float:
    return sum(row.result.seconds.values())


COLUMNS: tuple[Column, ...] = (
    _board_column("board", "Board", lambda standing: standing.board),
    _column("dataset", "Dataset", lambda row: str(row.protocol.dataset),
            lambda row: row.protocol.dataset.name, filtered=True),
    _column("extractor", "Extractor", lambda row: str(row.protocol.extractor),
            lambda row: row.protocol.extractor.names, filtered=True),
    _column("target_epsilon", "ε", lambda row: row.protocol.epsilon,
            lambda row: format_epsilon(row.protocol.epsilon), filtered=True, dtype="double"),
    _column("delta", "δ", lambda row: row.protocol.delta, dtype="double"),
    _board_column("role", "Role", lambda standing: standing.role),
    _board_column("rank", "Rank", lambda standing: standing.rank, dtype="int64"),
    _board_column("why", "Why unranked", lambda standing: standing.why),
    _column("learner", "Learner", lambda row: row.facts.learner, filtered=True),
    _column("settings", "All settings", lambda row: json.dumps(row.facts.settings, ensure_ascii=False),
            _format_settings),
    _column("selection", "Settings", lambda row: row.facts.selection, lambda row: SELECTION_WORDS[row.facts.selection],
            filtered=True),
    _column("tried", "Settings tried", lambda row: row.facts.tried, dtype="int64"),
    _column("status", "Status", lambda row: row.facts.status),
    _board_column("trust", "Trust", lambda standing: standing.trust, lambda standing: standing.checks, filtered=True),
    _column("seeds", "Seeds", lambda row: row.facts.seeds, dtype="int64"),
    *(column for metric in METRICS for column in _make_score_columns(metric)),
    _column("epsilon", "ε spent", lambda row: row.facts.epsilon, dtype="double"),
    _column("accountant", "Accountant", lambda row: row.protocol.accountant),
    _column("second_accountant", "Second accountant", lambda row: row.facts.independent.accountant),
    _column("second_lower", "ε at least", lambda row: row.facts.independent.lower, dtype="double"),
    _column("second_upper", "ε at most", lambda row: row.facts.independent.upper, dtype="double"),
    _column("sigma", "σ", lambda row: row.facts.sigma, dtype="double"),
    _column("steps", "Steps", lambda row: row.facts.steps, dtype="int64"),
    _column("seconds", "Seconds of a fit", lambda row: row.facts.seconds, known="boards", dtype="double"),
    _column("cpu_seconds", "CPU, s", lambda row: row.facts.cpu_seconds, _format_cpu_time, dtype="double"),
    _column("peak_bytes", "Memory", lambda row: row.facts.peak_bytes,
            lambda row: format_bytes(row.facts.peak_bytes) if row.facts.records_cost else "", dtype="int64"),
    _column("plugin", "Plugin", lambda row: row.facts.plugin.plugin),
    _column("distribution", "Distribution", lambda row: row.facts.plugin.distribution),
    _column("version", "Version", lambda row: row.facts.plugin.version),
    _column("date", "Date", lambda row: row.facts.made.date),
    _column("commit", "Commit", lambda row: row.facts.made.commit),
    _column("dirty", "With changes", lambda row: row.facts.made.dirty, dtype="bool"),
    _board_column("command", "Command", lambda standing: standing.command),
    _column("file", "File", lambda row: row.file),
    _board_column("uncorrected_rank", "Uncorrected rank", lambda standing: standing.uncorrected_rank, dtype="int64"),
    _column("unmeasured", "Why cost is missing", lambda row: row.facts.unmeasured),
    _column("rng", "Noise", lambda row: row.facts.rng),
    _board_column("reproduced", "Reproduced", lambda standing: standing.reproduced, dtype="bool"),
    _board_column("reads", "Public data", lambda standing: standing.reads, filtered=True),
    _column("mechanism", "Mechanism", lambda row: row.facts.mechanism),
    _column("metric", "Metric", lambda row: row.protocol.metric),
    _column("score", "Score, %", lambda row: row.score.mean if row.score else None,
            lambda row: format_percent_cell(row.score), dtype="double"),
    _board_column("behind", "Behind the best", lambda standing: standing.behind,
              lambda standing: NO_VALUE if standing.behind is None else f"{100 * standing.behind:.2f}", dtype="double"),
    _column("private", "Private", lambda row: row.result.task.private, known="files", dtype="int64"),
    _column("public", "Public", lambda row: row.result.task.public, known="files", dtype="int64"),
    _column("test", "Test", lambda row: row.result.task.test, known="files", dtype="int64"),
    _column("public_labels", "Public labels read", lambda row: row.result.task.public_labels_seen, known="files",
            dtype="int64"),
    _column("run_seconds", "Seconds of the run", _sum_run_seconds, known="files", dtype="double"),
    _column("seconds", "Seconds of the run (old name)", _sum_run_seconds, known="files", dtype="double"),  # until 0.4
)  # fmt: skip
ENTRY_COLUMNS = tuple(column for column in COLUMNS if column.known != "files")
FILE_COLUMNS = tuple(column for column in COLUMNS if column.known != "boards")


def pick_columns(names: Iterable[str], columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns with these names, in the order of the names.

    Raises:
        SpecError: a name is not the name of a column.
    """
    known = {column.name: column for column in columns}
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise SpecError(format_unknown_name_message("column", unknown, known))
    return tuple(known[name] for name in names)
