"""What a board's page shows of its entries, made ready: rows, the references beside them, and the boards akin to it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dpbench.board.index import Entry, Index, Standing
from dpbench.board.site.words import TITLES
from dpbench.records.metrics import Metric
from dpbench.records.result import Interval

MOST = 500  # rows of a board's table: beyond, the table of all entries has them
PLOT = 100  # width of the plot in a row, in its own units


@dataclass(frozen=True)
class Span:
    """What the small plots of a board's rows share: the least and the greatest value, as shares."""

    low: float
    high: float

    def at(self, value: float) -> str:
        """Return where a value lies in the plot, a number that SVG reads."""
        width = self.high - self.low
        place = PLOT / 2 if width <= 0 else 4 + (PLOT - 8) * (value - self.low) / width
        return f"{min(max(place, 0.0), float(PLOT)):.1f}"


@dataclass(frozen=True)
class Row:
    """One entry of a table."""

    entry: Entry
    differs: str  # settings that tell it from other entries of its learner
    name: str  # learner and what it differs by: unique within the table
    leads: bool  # it shares the first rank


@dataclass(frozen=True)
class Table:
    """A board's entries as its page shows them."""

    ranked: tuple[Row, ...]
    unranked: tuple[Row, ...]
    ceilings: tuple[Row, ...]
    left_out: int  # entries that are in the table of all entries alone
    span: Span
    columns: tuple[str, ...]  # metrics, that of the board first


def table(standing: Standing) -> Table:
    """Return the table of a board; at most `MOST` rows of each role."""
    rows = _rows(standing)
    roles: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        roles[row.entry.role].append(row)
    kept = {role: tuple(found[:MOST]) for role, found in roles.items()}
    metric = standing.board.metric
    columns = dict.fromkeys([metric, "accuracy", "balanced_accuracy", "worst_class_accuracy"])
    return Table(
        kept.get("entry", ()),
        kept.get("unranked", ()),
        kept.get("ceiling", ()),
        len(rows) - sum(map(len, kept.values())),
        _span(row.entry.metrics.get(metric) for found in kept.values() for row in found),
        tuple(columns),
    )


def best(standing: Standing) -> Entry | None:
    """Return the best ranked entry that read private data."""
    return next((entry for entry in standing.entries if entry.role == "entry" and entry.reads_private), None)


def ceiling(standing: Standing) -> Entry | None:
    """Return the best result without privacy."""
    metric = standing.board.metric
    found = [entry for entry in standing.entries if entry.role == "ceiling" and metric in entry.metrics]
    return max(found, key=lambda entry: entry.metrics[metric].mean, default=None)


def chance(standing: Standing, metric: str) -> float | None:
    """Return what a uniform guess scores, where that is known."""
    return standing.chance if metric in ("accuracy", "balanced_accuracy") and standing.chance else None


def family(standing: Standing, index: Index) -> list[Standing]:
    """Return the boards that differ from this one in epsilon alone, itself among them, by epsilon."""
    mine = _protocol(standing)
    akin = [other for other in index.standings if _protocol(other) == mine]
    return sorted(akin, key=lambda other: other.board.epsilon)


def metric_name(name: Metric) -> str:
    """Return what a column is called."""
    return TITLES[name]


def _protocol(standing: Standing) -> object:
    return standing.board.model_dump(mode="json", exclude={"name", "title", "about", "published", "epsilon"})


def _rows(standing: Standing) -> list[Row]:
    varied = _varied(standing.entries)
    count = Counter(entry.learner for entry in standing.entries)
    rows: list[Row] = []
    taken: set[str] = set()
    for entry in standing.entries:
        settings = ((key, entry.settings[key]) for key in varied[entry.learner] if key in entry.settings)
        differs = ", ".join(f"{key}={value}" for key, value in settings)
        plain = entry.learner if count[entry.learner] == 1 else f"{entry.learner} ({entry.selection})"
        options = (plain, f"{entry.learner} ({differs})", f"{entry.learner} {entry.id[-16:]}")
        name = next((option for option in options if option not in taken), f"{entry.learner} {entry.id}")
        taken.add(name)
        rows.append(Row(entry, differs, name, entry.rank == 1))
    return rows


def _varied(entries: Sequence[Entry]) -> dict[str, list[str]]:
    """Return for each learner the settings in which its entries differ."""
    values: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for entry in entries:
        for key, value in entry.settings.items():
            values[entry.learner][key].add(value)
    found = {learner: [key for key, seen in keys.items() if len(seen) > 1] for learner, keys in values.items()}
    return defaultdict(list, found)


def _span(intervals: Iterable[Interval | None]) -> Span:
    ends = [
        end
        for interval in intervals
        if interval is not None
        for end in (interval.mean, interval.low, interval.high)
        if end is not None
    ]
    return Span(max(min(ends), 0.0), min(max(ends), 1.0)) if ends else Span(0.0, 1.0)
