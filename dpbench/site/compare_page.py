"""The page that compares two learners: the best entry of each on every board, side by side."""

from __future__ import annotations

from dataclasses import dataclass

from dpbench.board.index import Entry, Standing
from dpbench.site import layout, text
from dpbench.site.context import Site
from dpbench.site.home_page import filled_boards
from dpbench.site.overall import overall
from dpbench.site.render import Renderer

LEARNERS = 60  # columns: the nearest to the best


@dataclass(frozen=True)
class Score:
    """The best ranked entry of a learner on a board."""

    page: str
    shown: str
    mean: float
    rank: str  # one that reads public labels is ranked among others


def compare_page(site: Site, renderer: Renderer) -> bytes:
    """Return the page: boards by learner, of which the script shows two columns and their difference."""
    boards = filled_boards(site)
    ranked = {entry.learner for one in boards for entry in one.entries if entry.role == "entry"}
    near = [one.distance.learner for one in overall(site.index)]
    names = [*near, *sorted(ranked.difference(near))][:LEARNERS]
    rows = [(one, [_score(one, name) for name in names]) for one in boards]
    return renderer.page("compare", "compare.html", "compare", {"names": names, "rows": rows})


def _score(standing: Standing, learner: str) -> Score | None:
    metric = standing.board.metric
    found = (one for one in standing.entries if one.role == "entry" and one.learner == learner)
    entry: Entry | None = next(found, None)  # entries are in order
    if entry is None:
        return None
    score = entry.metrics[metric]
    place = f"{entry.rank} with labels" if entry.reads_labels else str(entry.rank)
    return Score(layout.page(standing, entry), text.spread(score), round(score.mean, 6), place)
