"""What publishing changes at a place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Changes:
    """Paths that publishing adds, changes and deletes; each sorted, relative to the place."""

    place: str  # an address or a folder, for people
    added: tuple[str, ...]
    changed: tuple[str, ...]
    deleted: tuple[str, ...]

    @classmethod
    def between(cls, place: str, before: Mapping[str, str], after: Mapping[str, str]) -> Self:
        """Compare two states of a place, each as digests by path.

        >>> Changes.between("there", {"a": "1", "b": "1"}, {"b": "2", "c": "1"}).lines
        ['add c', 'change b', 'delete a']
        """
        changed = (path for path in after.keys() & before.keys() if after[path] != before[path])
        added, deleted = after.keys() - before.keys(), before.keys() - after.keys()
        return cls(place, tuple(sorted(added)), tuple(sorted(changed)), tuple(sorted(deleted)))

    @property
    def lines(self) -> list[str]:
        """One line a file, as `--dry-run` prints them."""
        kinds = {"add": self.added, "change": self.changed, "delete": self.deleted}
        return [f"{kind} {path}" for kind, paths in kinds.items() for path in paths]
