"""The page of evidence: re-runs, audits and studies, in addition to the checks that every result passes."""

from __future__ import annotations

from dataclasses import dataclass

from dpbench.board.index import Entry, Standing
from dpbench.site import layout, view
from dpbench.site.context import SiteContext
from dpbench.site.render import PageRenderer


@dataclass(frozen=True)
class VerifiedBoardEntries:
    """The re-run entries and the audited entries of one board, each with the path of its page."""

    standing: Standing
    again: list[tuple[Entry, str]]
    audited: list[tuple[Entry, str]]

    @property
    def counts(self) -> tuple[int, int, int]:
        """The numbers of re-run, audited and reproduced entries."""
        return len(self.again), len(self.audited), sum(entry.reproduced for entry in self.standing.entries)


def render_audits_page(site: SiteContext, renderer: PageRenderer) -> bytes:
    """Return the page of re-runs and audits, board by board."""
    old, among = view.count_earlier_mechanisms(site.index)
    boards = [_collect_verified_entries(standing) for family in site.families for standing in family]
    values = {
        "boards": [board for board in boards if board.again or board.audited],
        "counts": tuple(sum(sizes) for sizes in zip(*(board.counts for board in boards), strict=True)),
        "studies": site.studies, "results": sum(1 for _ in site.entries), "before": old, "read": among,
    }  # fmt: skip
    return renderer.page("audits", "audits.html", "evidence", values)


def _collect_verified_entries(standing: Standing) -> VerifiedBoardEntries:
    rows = [(entry, layout.entry_page_path(standing, entry)) for entry in standing.entries]
    return VerifiedBoardEntries(standing, [row for row in rows if row[0].again], [row for row in rows if row[0].audit])
