"""The first page and one a further epsilon: which learner, on which data, at which epsilon."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dpbench.analysis.palette import LearnerStyle
from dpbench.board.distance import behind
from dpbench.board.index import Entry, Standing
from dpbench.records.result import Interval
from dpbench.site import layout, text, view
from dpbench.site.context import Site
from dpbench.site.overall import count_data_sets, describe_distance, overall
from dpbench.site.render import Renderer

EPSILONS = 12  # that have a map, a page each
LEARNERS = 25  # rows of a map: the rest is on the boards and in the table of all entries
STEPS = (0.005, 0.01, 0.02, 0.035, 0.055, 0.09, 0.15)  # how far behind the best, in shares: each a paler colour


@dataclass(frozen=True)
class Cell:
    """One learner on one board: its best ranked entry."""

    page: str
    score: Interval
    behind: float  # the best of the board that reads no more, in shares
    above: float | None  # the ceiling, less this
    tied: bool  # it cannot be told from the best
    heat: int  # 0: tied with the best; then ever paler
    said: str


@dataclass(frozen=True)
class Line:
    """A row of the map."""

    name: str
    page: str
    look: LearnerStyle
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
    """A board of the map."""

    data: str
    features: str
    standing: Standing


@dataclass(frozen=True)
class HeatMap:
    """The boards of one epsilon by learner."""

    epsilon: float
    path: str  # of its page
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]  # of learners with an entry on one of the boards
    left_out: int
    references: tuple[Reference, ...]


def maps(site: Site) -> list[HeatMap]:
    """Return a map for each epsilon that most boards have: first that of the home page, then by epsilon."""
    filled = filled_boards(site)
    often = Counter(standing.board.epsilon for standing in filled).most_common(EPSILONS)
    first = max(often, key=lambda found: (found[1], -abs(math.log(found[0]))), default=(None, 0))[0]
    order = sorted((epsilon for epsilon, _ in often), key=lambda epsilon: (epsilon != first, epsilon))
    learners = [line.name for line in _lines(site, filled)]
    return [_map(site, filled, epsilon, learners, place) for place, epsilon in enumerate(order)]


def filled_boards(site: Site) -> list[Standing]:
    """Return the boards that have results, the largest families first."""
    return [standing for family in site.families for standing in family if standing.entries]


def _map(site: Site, filled: Sequence[Standing], epsilon: float, learners: Sequence[str], place: int) -> HeatMap:
    boards = [standing for standing in filled if standing.board.epsilon == epsilon]
    lines = sorted(_lines(site, boards), key=lambda line: learners.index(line.name))
    return HeatMap(
        epsilon, f"epsilon-{epsilon:g}.html" if place else "index.html", tuple(map(_column, boards)),
        tuple(lines[:LEARNERS]), max(len(lines) - LEARNERS, 0), tuple(_reference(boards, role) for role in view.LINES),
    )  # fmt: skip


def further_maps(found: Sequence[HeatMap], renderer: Renderer) -> Iterator[tuple[str, bytes]]:
    """Yield a page for every map but that of the home page."""
    for one in found[1:]:
        yield one.path, renderer.page("epsilon", one.path, "home", {"map": one, "maps": _by_epsilon(found)})


def _by_epsilon(found: Sequence[HeatMap]) -> list[HeatMap]:
    return sorted(found, key=lambda one: one.epsilon)


def home(site: Site, found: Sequence[HeatMap], evidence: Sequence[Markup], renderer: Renderer) -> bytes:
    """Return the first page, with further sentences on why its numbers can be trusted."""
    filled = filled_boards(site)
    lines = _lines(site, filled)
    everything = [entry for _, entry in site.entries]
    ranked = [entry for entry in everything if entry.role == "entry"]
    old, read = view.count_by_other_code(site.index)
    distances, data_sets = overall(site.index), count_data_sets(site.index)
    values = {
        "map": found[0] if found and lines else None, "maps": _by_epsilon(found),
        "answer": _answer(lines, len(filled)), "among": len(filled), "looks": site.looks, "learners": site.learners,
        "distances": [(one, describe_distance(one, data_sets)) for one in distances], "data_sets": data_sets,
        "results": len(everything), "ranked": len(ranked), "boards": len(filled), "before": old, "read": read,
        "guaranteed": sum(entry.reads_private and entry.role != "ceiling" for entry in everything),
        "again": sum(entry.again is not None and not entry.reproduced for entry in everything),
        "reproduced": sum(entry.reproduced for entry in everything),
        "audited": sum(entry.audit is not None for entry in everything),
        "evidence": evidence,
        "above": {view.title(standing): standing for standing in reversed(filled) if standing.above},
        "open": [standing for standing in site.index.standings if not standing.entries],
        "ranking": site.index.ranking, "learner": lines[0].name if lines else "pillar",
        "board": (found[0].columns[0].standing if found else next(iter(site.index.standings))).board.name,
    }  # fmt: skip
    return renderer.page("index", "index.html", "home", values)


def _column(standing: Standing) -> Column:
    data, _, features = view.title(standing).partition(", ")
    return Column(data, features, standing)


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
    metric, limit = standing.board.metric, view.ceiling(standing)
    score = entry.metrics[metric]
    gap = _behind(standing, entry)
    heat = 0 if entry.rank == 1 else 1 + sum(gap > step for step in STEPS)
    above = limit.metrics[metric].mean - score.mean if limit else None
    place = f", rank {entry.rank} of {view.count_rivals(standing, labels=entry.reads_labels)}" if entry.rank else ""
    said = f"{text.spread(score)}%{place}"
    return Cell(layout.page(standing, entry), score, gap, above, entry.rank == 1, heat, said)


def _behind(standing: Standing, entry: Entry) -> float:
    """Return how far a result is behind the best entry: one that reads no more, for an entry; for a line, the first."""
    top = view.best(standing)
    if top is None:
        return 0.0
    if entry.role == "entry":
        return behind(standing, entry)
    return top.metrics[standing.board.metric].mean - entry.metrics[standing.board.metric].mean


def _reference(columns: Sequence[Standing], role: str) -> Reference:
    line = view.control if role == "control" else view.ceiling
    found = [(standing, line(standing)) for standing in columns]
    return Reference(view.LINES[role], tuple(_cell(standing, entry) if entry else None for standing, entry in found))


def _answer(lines: Sequence[Line], boards: int) -> list[tuple[Line, int]]:
    """Return who ties with the best on the most boards, with how many: the first two numbers of boards there are."""
    found = [(line, sum(cell.tied for cell in line.cells if cell)) for line in lines]
    numbers = sorted({count for _, count in found if count}, reverse=True)[:2]
    return [(line, count) for line, count in found if count in numbers] if boards else []
