"""The first page and one a further epsilon: which learner, on which data, at which epsilon."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dpbench.analysis.grid import Grid, GridLine
from dpbench.board.index import Standing
from dpbench.board.rows import EntryRow, find_reference_row
from dpbench.site import view
from dpbench.site.context import Site
from dpbench.site.overall import count_data_sets, describe_distance, overall
from dpbench.site.render import Renderer

EPSILONS = 12  # that have a map, a page each
LEARNERS = 25  # rows of a map: the rest is on the boards and in the table of all entries
STEPS = (0.005, 0.01, 0.02, 0.035, 0.055, 0.09, 0.15)  # how far behind the best, in shares: each a paler colour


@dataclass(frozen=True)
class BoardColumn:
    """A board of the map."""

    data: str
    features: str
    standing: Standing


@dataclass(frozen=True)
class HeatMap:
    """The boards of one epsilon by learner."""

    epsilon: float
    path: str  # of its page
    columns: tuple[BoardColumn, ...]
    grid: Grid[EntryRow]  # learners with an entry on one of the boards, and references
    left_out: int

    @property
    def lines(self) -> list[GridLine[EntryRow]]:
        """The lines of learners."""
        return [line for line in self.grid.lines if not line.reference]

    @property
    def references(self) -> list[GridLine[EntryRow]]:
        """The lines below the map, of results that are no entries."""
        return [line for line in self.grid.lines if line.reference]


def maps(site: Site) -> list[HeatMap]:
    """Return a map for each epsilon that most boards have: first that of the home page, then by epsilon."""
    filled = filled_boards(site)
    often = Counter(standing.board.epsilon for standing in filled).most_common(EPSILONS)
    first = max(often, key=lambda found: (found[1], -abs(math.log(found[0]))), default=(None, 0))[0]
    order = sorted((epsilon for epsilon, _ in often), key=lambda epsilon: (epsilon != first, epsilon))
    learners = [line.label for line in learner_lines(site, filled)]
    return [_map(site, filled, epsilon, learners, place) for place, epsilon in enumerate(order)]


def filled_boards(site: Site) -> list[Standing]:
    """Return the boards that have results, the largest families first."""
    return [standing for family in site.families for standing in family if standing.entries]


def _map(site: Site, filled: Sequence[Standing], epsilon: float, learners: Sequence[str], place: int) -> HeatMap:
    boards = [standing for standing in filled if standing.board.epsilon == epsilon]
    lines = sorted(learner_lines(site, boards), key=lambda line: learners.index(line.label))
    references = [_reference(site, boards, role) for role in view.LINES]
    titles = tuple(view.title(standing) for standing in boards)
    grid = Grid(f"ε {epsilon:g}", None, titles, (*lines[:LEARNERS], *references))
    return HeatMap(
        epsilon, f"epsilon-{epsilon:g}.html" if place else "index.html", tuple(map(_column, boards)), grid,
        max(len(lines) - LEARNERS, 0),
    )  # fmt: skip


def further_maps(site: Site, found: Sequence[HeatMap], renderer: Renderer) -> Iterator[tuple[str, bytes]]:
    """Yield a page for every map but that of the home page."""
    shared = {"maps": _by_epsilon(found), "looks": site.looks, "learners": site.learners, "heat": heat}
    for one in found[1:]:
        yield one.path, renderer.page("epsilon", one.path, "home", {"map": one, **shared})


def _by_epsilon(found: Sequence[HeatMap]) -> list[HeatMap]:
    return sorted(found, key=lambda one: one.epsilon)


def home(site: Site, found: Sequence[HeatMap], evidence: Sequence[Markup], renderer: Renderer) -> bytes:
    """Return the first page, with further sentences on why its numbers can be trusted."""
    filled = filled_boards(site)
    lines = learner_lines(site, filled)
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
        "evidence": evidence, "heat": heat,
        "above": {view.title(standing): standing for standing in reversed(filled) if standing.above},
        "open": [standing for standing in site.index.standings if not standing.entries],
        "ranking": site.index.ranking, "learner": lines[0].label if lines else "pillar",
        "board": (found[0].columns[0].standing if found else next(iter(site.index.standings))).board.name,
    }  # fmt: skip
    return renderer.page("index", "index.html", "home", values)


def _column(standing: Standing) -> BoardColumn:
    data, _, features = view.title(standing).partition(", ")
    return BoardColumn(data, features, standing)


def learner_lines(site: Site, boards: Sequence[Standing]) -> list[GridLine[EntryRow]]:
    """Return the best ranked entry of each learner on each of some boards.

    In order of the boards on which they tie with the best, then of how far they are behind it on average.
    """
    best: dict[str, dict[str, EntryRow]] = defaultdict(dict)
    for standing in boards:
        for row in reversed(site.rows[standing.board.name]):  # the best last
            if row.entry.role == "entry":
                best[row.entry.learner][standing.board.name] = row
    lines = [GridLine(name, tuple(rows.get(standing.board.name) for standing in boards)) for name, rows in best.items()]
    return sorted(lines, key=_order)


def _order(line: GridLine[EntryRow]) -> tuple[float, float, str]:
    behind = [row.behind or 0.0 for row in line.filled]
    return -_count_ties(line), sum(behind) / len(behind), line.label


def _count_ties(line: GridLine[EntryRow]) -> int:
    return sum(row.standing.tied for row in line.filled)


def heat(row: EntryRow) -> int:
    """Return how pale a cell is: 0 for an entry that is tied with the best, then one more for each step behind it."""
    return 0 if row.standing.tied else 1 + sum((row.behind or 0.0) > step for step in STEPS)


def _reference(site: Site, boards: Sequence[Standing], role: str) -> GridLine[EntryRow]:
    rows = tuple(find_reference_row(site.rows[standing.board.name], role) for standing in boards)
    return GridLine(view.LINES[role], rows, reference=True)


def _answer(lines: Sequence[GridLine[EntryRow]], boards: int) -> list[tuple[str, int]]:
    """Return who ties with the best on the most boards, with how many: the first two numbers of boards there are."""
    found = [(line.label, _count_ties(line)) for line in lines]
    numbers = sorted({count for _, count in found if count}, reverse=True)[:2]
    return [(label, count) for label, count in found if count in numbers] if boards else []
