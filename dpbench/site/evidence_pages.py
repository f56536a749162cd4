"""What stands behind the numbers: what was run again, what was attacked, and the bugs that were tried."""

from __future__ import annotations

from dpbench.records.museum import GUARDS, read
from dpbench.site import layout, view
from dpbench.site.context import Site
from dpbench.site.render import Renderer

MOST = 500  # entries of one list: the table of all entries is filtered by trust


def audits_page(site: Site, renderer: Renderer) -> bytes:
    """Return the page of re-runs and audits."""
    again = [(standing, entry, layout.page(standing, entry)) for standing, entry in site.entries if entry.again]
    audited = [(standing, entry, layout.page(standing, entry)) for standing, entry in site.entries if entry.audit]
    reproduced = sum(entry.reproduced for _, entry in site.entries)
    old, among = view.count_by_other_code(site.index)
    values = {
        "again": again[:MOST], "audited": audited[:MOST], "counts": (len(again), len(audited), reproduced),
        "looks": site.looks, "results": sum(1 for _ in site.entries), "before": old, "read": among,
    }  # fmt: skip
    return renderer.page("audits", "audits.html", "audits", values)


def museum_page(renderer: Renderer) -> bytes:
    """Return the page of the museum, from its record."""
    records = read()
    guards = [guard for guard in GUARDS if any(guard in one.stopped + one.passed for one in records)]
    return renderer.page("museum", "museum.html", "museum", {"records": records, "guards": guards})
