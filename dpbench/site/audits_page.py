"""The page of re-runs and audits: what the project did beyond the checks of all results."""

from __future__ import annotations

from dataclasses import dataclass

from dpbench.board.index import Entry, Standing
from dpbench.site import layout, view
from dpbench.site.context import Site
from dpbench.site.render import Renderer


@dataclass(frozen=True)
class Evidence:
    """What the project re-ran and audited on one board: entries with the addresses of their pages."""

    standing: Standing
    again: list[tuple[Entry, str]]
    audited: list[tuple[Entry, str]]

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many entries were re-run, audited and reproduced."""
        return len(self.again), len(self.audited), sum(entry.reproduced for entry in self.standing.entries)


def audits_page(site: Site, renderer: Renderer) -> bytes:
    """Return the page of re-runs and audits, board by board."""
    old, among = view.count_by_other_code(site.index)
    boards = [_evidence(standing) for family in site.families for standing in family]
    values = {
        "boards": [one for one in boards if one.again or one.audited],
        "counts": tuple(sum(sizes) for sizes in zip(*(one.counts for one in boards), strict=True)),
        "looks": site.looks, "results": sum(1 for _ in site.entries), "before": old, "read": among,
    }  # fmt: skip
    return renderer.page("audits", "audits.html", "audits", values)


def _evidence(standing: Standing) -> Evidence:
    rows = [(entry, layout.page(standing, entry)) for entry in standing.entries]
    return Evidence(standing, [row for row in rows if row[0].again], [row for row in rows if row[0].audit])
