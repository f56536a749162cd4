"""What stands behind the numbers: re-runs, audits, and the museum of privacy bugs."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from dpbench_lab.museum.record import GUARDS, ExhibitRecord, Guard, read
from dpbench_lab.museum.tour import EXHIBITS
from markupsafe import Markup

from dpbench.board.index import Entry, Standing
from dpbench.site import layout, prose, view
from dpbench.site.context import Site
from dpbench.site.render import Renderer


@dataclass(frozen=True)
class Story:
    """An exhibit as its page tells it."""

    record: ExhibitRecord
    summary: Markup
    source: Markup
    code: str

    @property
    def claimed(self) -> str:
        """The epsilon that the bug claims."""
        return self.record.epsilon.partition(" → ")[0]

    @property
    def true(self) -> str:
        """The epsilon that holds."""
        return self.record.epsilon.partition(" → ")[2]

    @property
    def unbounded(self) -> bool:
        """Whether no epsilon holds."""
        return self.record.true is not None and math.isinf(self.record.true)


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


def museum_page(renderer: Renderer) -> bytes:
    """Return the page of the museum: each exhibit's story with its code, by the guard that stops it."""
    records = read()
    guards = [guard for guard in GUARDS if any(guard in one.stopped + one.passed for one in records)]
    code = {one.name: one.code for one in EXHIBITS}
    stories = [Story(one, prose.mark(one.summary), _source(one), code.get(one.name, "")) for one in records]
    groups: dict[Guard, list[Story]] = defaultdict(list)
    for one in stories:
        for guard in one.record.stopped[:1]:
            groups[guard].append(one)
    ordered = [(guard, groups[guard]) for guard in GUARDS if guard in groups]
    values = {
        "exhibits": stories, "groups": ordered, "guards": guards, "stopped": sum(bool(one.stopped) for one in records),
    }  # fmt: skip
    return renderer.page("museum", "museum.html", "museum", values)


def _source(record: ExhibitRecord) -> Markup:
    """Return where an exhibit was found, as a sentence."""
    said = record.source
    return prose.mark(f"{said[:1].upper()}{said[1:]}")
