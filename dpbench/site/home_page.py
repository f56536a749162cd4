"""The first page: which learner, on which data, at which epsilon."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from dpbench.board.index import Entry, Standing
from dpbench.records.museum import read as read_museum
from dpbench.records.result import Interval
from dpbench.site import layout, view
from dpbench.site.context import Site
from dpbench.site.looks import Look
from dpbench.site.overall import count_data_sets, describe_distance, overall
from dpbench.site.render import Renderer

EPSILONS = 12  # of the map, which shows one at a time; the style sheet has as many
LEARNERS = 25  # rows of the map: the rest is on the boards and in the table of all entries
STEPS = (0.005, 0.01, 0.02, 0.035, 0.055, 0.09, 0.15)  # how far behind the best, in shares: each a paler colour


@dataclass(frozen=True)
class Cell:
    """One learner on one board: its best ranked entry."""

    page: str
    score: Interval
    behind: float  # the best of the board, in shares
    above: float | None  # the ceiling, less this
    tied: bool  # it cannot be told from the best
    heat: int  # 0: tied with the best; then ever paler
    said: str


@dataclass(frozen=True)
class Line:
    """A row of the map."""

    name: str
    page: str
    look: Look
    cells: tuple[Cell | None, ...]

    @property
    def order(self) -> tuple[float, float, str]:
        """What it is sorted by: on how many boards it ties with the best, then how far behind it is on average."""
        found = [cell for cell in self.cells if cell]
        return -sum(cell.tied for cell in found), sum(cell.behind for cell in found) / len(found), self.name


@dataclass(frozen=True)
class Reference:
    """A row below the map, of what is no entry."""

    name: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Column:
    """A board of the map. Those of one epsilon are shown together."""

    data: str
    features: str
    standing: Standing
    place: int  # of its epsilon among all


def home(site: Site, renderer: Renderer) -> bytes:
    """Return the first page."""
    filled = [standing for family in site.families for standing in family if standing.entries]
    often = Counter(standing.board.epsilon for standing in filled).most_common(EPSILONS)
    epsilons = sorted(epsilon for epsilon, _ in often)
    columns = [standing for standing in filled if standing.board.epsilon in epsilons]
    lines = _lines(site, columns)
    everything = [entry for _, entry in site.entries]
    ranked = [entry for entry in everything if entry.role == "entry"]
    old, read = view.count_by_other_code(site.index)
    museum, distances, data_sets = read_museum(), overall(site.index), count_data_sets(site.index)
    values = {
        "columns": [_column(standing, epsilons) for standing in columns],
        "epsilons": epsilons, "shown": _shown(often), "lines": lines[:LEARNERS], "left_out": len(lines) - LEARNERS,
        "references": [_reference(columns, role) for role in view.LINES],
        "answer": _answer(lines, len(columns)), "among": len(columns), "looks": site.looks, "learners": site.learners,
        "distances": [(one, describe_distance(one, data_sets)) for one in distances], "data_sets": data_sets,
        "results": len(everything), "ranked": len(ranked), "boards": len(filled), "before": old, "read": read,
        "guaranteed": sum(entry.reads_private and entry.role != "ceiling" for entry in everything),
        "again": sum(entry.again is not None and not entry.reproduced for entry in everything),
        "reproduced": sum(entry.reproduced for entry in everything),
        "audited": sum(entry.audit is not None for entry in everything),
        "exhibits": len(museum), "stopped": sum(bool(one.stopped) for one in museum),
        "above": {view.title(standing): standing for standing in reversed(filled) if standing.above},
        "open": [standing for standing in site.index.standings if not standing.entries],
        "ranking": site.index.ranking, "learner": lines[0].name if lines else "pillar",
        "board": columns[0].board.name if columns else next(iter(site.index.standings)).board.name,
    }  # fmt: skip
    return renderer.page("index", "index.html", "home", values)


def _column(standing: Standing, epsilons: Sequence[float]) -> Column:
    data, _, features = view.title(standing).partition(", ")
    return Column(data, features, standing, epsilons.index(standing.board.epsilon))


def _shown(often: Sequence[tuple[float, int]]) -> float | None:
    """Return the epsilon that the map begins with: most boards have it, and it is near 1."""
    return max(often, key=lambda found: (found[1], -abs(math.log(found[0]))), default=(None, 0))[0]


def _lines(site: Site, columns: Sequence[Standing]) -> list[Line]:
    cells: dict[str, dict[int, Cell]] = defaultdict(dict)
    for place, standing in enumerate(columns):
        for entry in reversed(standing.entries):  # the best last
            if entry.role == "entry":
                cells[entry.learner][place] = _cell(standing, entry)
    return sorted(
        (
            Line(name, site.learners[name], site.looks[name], tuple(found.get(place) for place in range(len(columns))))
            for name, found in cells.items()
        ),
        key=lambda line: line.order,
    )


def _cell(standing: Standing, entry: Entry) -> Cell:
    metric, top, limit = standing.board.metric, view.best(standing), view.ceiling(standing)
    score = entry.metrics[metric]
    behind = top.metrics[metric].mean - score.mean if top else 0.0
    heat = 0 if entry.rank == 1 else 1 + sum(behind > step for step in STEPS)
    above = limit.metrics[metric].mean - score.mean if limit else None
    where = f"{standing.board.title}: " + view.describe_entry(standing, entry)
    return Cell(layout.page(standing, entry), score, behind, above, entry.rank == 1, heat, where)


def _reference(columns: Sequence[Standing], role: str) -> Reference:
    line = view.control if role == "control" else view.ceiling
    found = [(standing, line(standing)) for standing in columns]
    return Reference(view.LINES[role], tuple(_cell(standing, entry) if entry else None for standing, entry in found))


def _answer(lines: Sequence[Line], boards: int) -> list[tuple[Line, int]]:
    """Return who ties with the best on the most boards, with how many: the first two numbers of boards there are."""
    found = [(line, sum(cell.tied for cell in line.cells if cell)) for line in lines]
    numbers = sorted({count for _, count in found if count}, reverse=True)[:2]
    return [(line, count) for line, count in found if count in numbers] if boards else []
