"""Additions from another package: pages of the site, parts of other pages, and pages of the manual."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from markupsafe import Markup

from dpbench.site.context import SiteContext
from dpbench.site.layout import PageSection
from dpbench.site.picture import Chart
from dpbench.site.render import PageRenderer


@dataclass(frozen=True)
class ExtraSection:
    """An additional section of the site, with its files."""

    section: PageSection
    files: Callable[
        [SiteContext, PageRenderer], Iterable[tuple[str, bytes]]
    ]  # paths within the site, with their content
    package: str  # where its templates lie
    folder: str = ""  # of the leaderboard, without which there is nothing to show


@dataclass(frozen=True)
class SiteExtras:
    """Additions to the site and the manual. Without additions, both are complete and no link is broken."""

    pages: tuple[ExtraSection, ...] = ()
    evidence: tuple[Callable[[], Markup], ...] = ()  # a sentence each, on the first page: why to trust the numbers
    charts: tuple[
        Callable[[SiteContext], Callable[[str], Iterable[Chart]]], ...
    ] = ()  # of a learner by name, on its page
    boards: tuple[Callable[[], Callable[[str], Markup]], ...] = ()  # a section of a board by name, on its page
    manual: Mapping[str, Callable[[], str]] = field(default_factory=dict)  # path within the manual -> text

    def for_leaderboard(self, root: Path) -> SiteExtras:
        """Return these additions without the pages whose folder the leaderboard lacks."""
        return replace(self, pages=tuple(page for page in self.pages if (root / page.folder).is_dir()))

    @property
    def sections(self) -> tuple[PageSection, ...]:
        """The sections that the page of evidence links to."""
        return tuple(page.section for page in self.pages)

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages that hold the templates of the additional pages."""
        return tuple(page.package for page in self.pages)


NO_EXTRAS = SiteExtras()
