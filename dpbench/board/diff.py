"""Changes between two versions of `leaderboard.json`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from dpbench.board.index import Entry, Index
from dpbench.support.validation import Record

Key = tuple[str, str]


class BoardChange(Record):
    """An entry that was added or removed between two indexes, or the change of its mean or rank.

    `before` and `after` are means, or ranks for a change of rank. `before` is None if the entry was added or had no
    such value; `after` is None if the entry was removed or now has no such value.
    """

    what: Literal["added", "removed", "mean", "rank"]
    board: str
    id: str
    learner: str
    before: float | None
    after: float | None

    def __str__(self) -> str:
        name = f"{self.board}: {self.learner} ({self.id})"
        if self.what == "added":
            return f"added    {name}, {_format_value(self.after)}"
        if self.what == "removed":
            return f"removed  {name}, {_format_value(self.before)}"
        return f"{self.what:<8} {name}: {_format_value(self.before)} -> {_format_value(self.after)}"


def list_changes(before: Index, after: Index) -> list[BoardChange]:
    """Return the changes of entries, means and ranks between two indexes, sorted by board."""
    old, new = _collect_scored_entries(before), _collect_scored_entries(after)
    return [
        change
        for key in sorted(old.keys() | new.keys())
        for change in _list_entry_changes(key, old.get(key), new.get(key))
    ]


def _collect_scored_entries(index: Index) -> dict[Key, tuple[Entry, float | None]]:
    found = {}
    for standing in index.standings:
        for entry in standing.entries:
            scored = entry.metrics.get(standing.board.metric)
            found[standing.board.name, entry.id] = entry, scored.mean if scored else None
    return found


def _list_entry_changes(
    key: Key, old: tuple[Entry, float | None] | None, new: tuple[Entry, float | None] | None
) -> Iterator[BoardChange]:
    board, name = key
    entry = (new or old or (None,))[0]
    assert entry is not None
    about = {"board": board, "id": name, "learner": entry.learner}
    if old is None or new is None:
        what: Literal["added", "removed"] = "added" if old is None else "removed"
        yield BoardChange(what=what, before=old and old[1], after=new and new[1], **about)
        return
    if old[1] != new[1]:
        yield BoardChange(what="mean", before=old[1], after=new[1], **about)
    if old[0].rank != new[0].rank:
        yield BoardChange(what="rank", before=old[0].rank, after=new[0].rank, **about)


def _format_value(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"
