"""The museum's page on the site, and the sentence about the museum on the site's first page."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dpbench.site import prose
from dpbench.site.context import SiteContext
from dpbench.site.extras import ExtraSection
from dpbench.site.layout import PageSection
from dpbench.site.render import PageRenderer
from dpbench_lab.museum.record import GUARDS, ExhibitRecord, Guard, read_museum_record
from dpbench_lab.museum.tour import EXHIBITS

UNCAUGHT = "nothing"
GUARDED: Mapping[str, tuple[str, str]] = {
    "cannot be written": (
        "The interface has no way to write it",
        "The curator offers no call for these bugs: the code fails with an error before it reads a private row.",
    ),
    "changes nothing": (
        "The harness makes it harmless",
        "The code runs, but the harness clips and sums by itself, so the guarantee holds anyway.",
    ),
    "while running": (
        "Stopped while the learner runs",
        "The harness checks row functions at random moments and stops a run that breaks the rules.",
    ),
    "dpbench check": (
        "Caught by dpbench check",
        "These bugs show only when a learner runs several times; the command does that.",
    ),
    "audit: sensitivity": (
        "Caught by the audit: sensitivity",
        "The audit measures how far one row moves a sum and compares it with the clip.",
    ),
    "audit: noise": (
        "Caught by the audit: noise",
        "The audit measures the size and the independence of the noise.",
    ),
    "audit: attack": (
        "Caught by the audit: attack",
        "The audit plants examples and counts how often an attacker detects them.",
    ),
    "second accountant": (
        "Caught by the second accountant",
        "A second, independent accountant computes ε from the same plan and disagrees.",
    ),
    "valid bound": (
        "Contradicted by a valid bound",
        "These audits report more than the known ε of an honest mechanism. The bounds that dpbench computes from the "
        "same scores stay below it.",
    ),
    "board": (
        "Refused by the board",
        "The run works, but its result breaks a rule of the leaderboard.",
    ),
    UNCAUGHT: (
        "Caught by no check",
        "Nobody can find these by looking at what a run releases. Only reading the code helps.",
    ),
}
"""For each guard: the heading of its section, and how the guard works."""
GUARD_NOUNS: Mapping[Guard, str] = {
    "cannot be written": "the interface, which has no such call", "changes nothing": "the harness, which ignores it",
    "while running": "the checks while a learner runs", "dpbench check": "`dpbench check`",
    "audit: sensitivity": "the audit of sensitivity", "audit: noise": "the audit of noise",
    "audit: attack": "the attack of the audit", "second accountant": "the second accountant",
    "valid bound": "the valid bounds of dpbench's audit", "board": "the checks of the board",
}  # fmt: skip


@dataclass(frozen=True)
class ExhibitSection:
    """An exhibit as the museum's page presents it."""

    record: ExhibitRecord
    summary: Markup
    source: Markup
    code: str

    @property
    def claimed_epsilon(self) -> str:
        """The epsilon that the bug claims; empty if it or the actual epsilon is unknown."""
        return self.record.epsilon.partition(" → ")[0]

    @property
    def true_epsilon(self) -> str:
        """The actual epsilon; empty if it or the claimed epsilon is unknown."""
        return self.record.epsilon.partition(" → ")[2]

    @property
    def is_unbounded(self) -> bool:
        """Whether the actual epsilon is infinite."""
        return self.record.true is not None and math.isinf(self.record.true)

    @property
    def catching_checks(self) -> str:
        """The names of the checks that catch the bug, or `nothing`."""
        return _join_guard_nouns(self.record.stopped) or UNCAUGHT

    @property
    def checks_that_missed(self) -> str:
        """The names of the checks that ran and missed the bug."""
        return _join_guard_nouns(self.record.passed)


def _render_museum_files(site: SiteContext, renderer: PageRenderer) -> Iterator[tuple[str, bytes]]:
    """Yield the museum's page: all exhibits with their code, grouped by the guard that catches them."""
    records = read_museum_record()
    guards = [guard for guard in GUARDS if any(guard in record.stopped + record.passed for record in records)]
    code = {exhibit.name: exhibit.code for exhibit in EXHIBITS}
    stories = [
        ExhibitSection(
            record, prose.render_paragraph(record.summary), _render_source(record), code.get(record.name, "")
        )
        for record in records
    ]
    groups: dict[str, list[ExhibitSection]] = defaultdict(list)
    for story in stories:
        groups[(*story.record.stopped, UNCAUGHT)[0]].append(story)
    ordered = [(guard, groups[guard]) for guard in (*GUARDS, UNCAUGHT) if guard in groups]
    values = {
        "exhibits": stories, "groups": ordered, "guards": guards, "guarded": GUARDED,
        "stopped": sum(bool(record.stopped) for record in records),
    }  # fmt: skip
    yield "museum.html", renderer.page("museum", "museum.html", "evidence", values)


def _render_source(record: ExhibitRecord) -> Markup:
    """Return an exhibit's source as HTML, with a capital first letter."""
    said = record.source
    return prose.render_paragraph(f"{said[:1].upper()}{said[1:]}")


def _join_guard_nouns(guards: Sequence[Guard]) -> str:
    return ", ".join(GUARD_NOUNS[guard] for guard in guards)


def render_museum_summary() -> Markup:
    """Return the sentence about the museum for the first page of the site."""
    records = read_museum_record()
    stopped = sum(bool(record.stopped) for record in records)
    known = f"The harness stops {stopped} of the {len(records)} known privacy bugs"
    return Markup('{} in the <a href="museum.html">museum</a>.').format(known)


PAGE = ExtraSection(
    PageSection("evidence", "Museum of privacy bugs", "museum.html", "Ways of getting ε wrong, and what catches each."),
    _render_museum_files,
    "dpbench_lab.museum",
)
