"""The page that compares two learners: their best entries on every board, side by side."""

from __future__ import annotations

from dpbench.site.context import SiteContext
from dpbench.site.home_page import list_learner_lines, list_nonempty_standings
from dpbench.site.overall import list_overall_results
from dpbench.site.render import PageRenderer

MAX_LEARNERS = 60  # columns: the nearest to the best


def render_compare_page(site: SiteContext, renderer: PageRenderer) -> bytes:
    """Return the page with a table of boards by learner. A script shows two columns and their difference."""
    boards = list_nonempty_standings(site)
    lines = {line.label: line for line in list_learner_lines(site, boards)}
    near = [result.distance.learner for result in list_overall_results(site.index)]
    names = [*near, *sorted(lines.keys() - set(near))][:MAX_LEARNERS]
    rows = [(board, [lines[name].rows[place] for name in names]) for place, board in enumerate(boards)]
    return renderer.page("compare", "compare.html", "learners", {"names": names, "rows": rows})
