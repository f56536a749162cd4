"""The data that all pages share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dpbench.analysis.palette import LearnerStyle, assign_learner_styles
from dpbench.board.index import Entry, Index, Standing
from dpbench.board.rows import EntryRow, make_board_rows
from dpbench.registry import Registry
from dpbench.site import layout, view
from dpbench.site.layout import PageSection
from dpbench.site.settings import SiteSettings


@dataclass(frozen=True)
class SiteContext:
    """The leaderboard and its folder, with the values that every page needs."""

    index: Index
    root: Path
    plugins: Registry
    settings: SiteSettings
    looks: Mapping[str, LearnerStyle]  # by learner
    learners: Mapping[str, str]  # the page of each, by name
    families: list[list[Standing]]
    rows: Mapping[str, tuple[EntryRow, ...]]  # of each board, by its name
    studies: tuple[PageSection, ...]  # of other packages, which the page of evidence links to

    @classmethod
    def from_index(
        cls, index: Index, root: Path, plugins: Registry, *, docs: bool, studies: tuple[PageSection, ...] = ()
    ) -> Self:
        """Collect the data of all pages from an index; `studies` are the sections that the page of evidence links to.

        Raises:
            SpecError: see `Settings.read`.
        """
        pairs = [entry for standing in index.standings for entry in standing.entries]
        ranked = {entry.learner for entry in pairs if entry.role in {"entry", "unranked"}}
        every = assign_learner_styles(ranked, {entry.learner for entry in pairs} - ranked)
        pages = {name: f"learners/{slug}.html" for name, slug in make_slugs(every).items()}
        settings = SiteSettings.read(index, docs=docs)
        rows = {standing.board.name: make_board_rows(standing) for standing in index.standings}
        return cls(index, root, plugins, settings, every, pages, view.group_families(index), rows, studies)

    @property
    def entries(self) -> Iterator[tuple[Standing, Entry]]:
        """All results, each with its board."""
        return ((standing, entry) for standing in self.index.standings for entry in standing.entries)

    def family(self, standing: Standing) -> list[Standing]:
        """Return all boards that differ from this board only in epsilon, including this board."""
        return next(found for found in self.families if standing in found)


def make_slugs(names: Mapping[str, object] | set[str]) -> dict[str, str]:
    """Return a file name for each name: the name itself if it is valid and not yet taken, otherwise a digest."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(names):
        plain = layout.SAFE_NAME.fullmatch(name) and name.casefold() not in taken
        slug = name if plain else f"_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
        taken.add(slug.casefold())
        found[name] = slug
    return found
