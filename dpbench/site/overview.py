"""An overview of the site in Markdown on one page, for language models that look for `llms.txt`."""

from __future__ import annotations

from collections.abc import Sequence

from dpbench.analysis.columns import format_epsilon
from dpbench.board.index import Standing
from dpbench.site import view
from dpbench.site.context import SiteContext
from dpbench.site.layout import SECTIONS
from dpbench.site.text import escape_markdown

INTRODUCTION = """\
# dpbench

> A leaderboard of differentially private image classification: which private learner is best on this data, at this ε?

A board is a frozen protocol: dataset, features, ε, δ and seeds. Only entries of one board are ranked together, entries
that share a rank are statistically tied, and entries that read public labels are ranked apart from those that do not.
Each ε holds for one image, or for the unit that the board names, and two accountants compute it from plan and noise.
"""
FILES = """\
## Data

- [Entries as Parquet](entries.parquet): a row per entry, typed; `settings` is JSON text
- [Entries as CSV](entries.csv): the same columns
- [leaderboard.json](leaderboard.json): boards and entries, as nested data
"""


def render_overview(site: SiteContext) -> bytes:
    """Return the overview: an introduction, then links to data files, sections and boards."""
    documentation = ["- [Documentation](docs/index.html)"] if site.settings.docs else []
    sections = [f"- [{section.title}]({section.path})" for section in (*SECTIONS, *site.studies)]
    boards = [_format_family_line(family) for family in site.families if any(standing.entries for standing in family)]
    parts = [INTRODUCTION, FILES, "## Pages\n", *sections, *documentation, "\n## Boards\n", *boards]
    return "\n".join(parts).encode() + b"\n"


def _format_family_line(family: Sequence[Standing]) -> str:
    links = [
        f"[{format_epsilon(standing.board.epsilon)}](boards/{standing.board.name}.html)"
        for standing in family
        if standing.entries
    ]
    return f"- {escape_markdown(view.family_title(family[0]))}; by ε: {', '.join(links)}"
