"""The home page, and a page for each other epsilon: heat maps of scores by learner and board."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dpbench.analysis.grid import LearnerLine, ResultGrid
from dpbench.board.distance import list_best_default_rows
from dpbench.board.index import Standing
from dpbench.board.rows import EntryRow, find_reference_row
from dpbench.site import view
from dpbench.site.context import SiteContext
from dpbench.site.overall import count_data_sets, describe_distance, list_overall_results
from dpbench.site.render import PageRenderer

MAX_EPSILONS = 12  # that have a map, a page each
MAX_LEARNERS = 25  # rows of a map: the rest is on the boards and in the table of all entries


@dataclass(frozen=True)
class BoardColumn:
    """A column of a heat map: one board."""

    data: str
    features: str
    standing: Standing


@dataclass(frozen=True)
class HeatMap:
    """A heat map of scores at one epsilon, by learner and board."""

    epsilon: float
    path: str  # of its page
    columns: tuple[BoardColumn, ...]
    grid: ResultGrid[EntryRow]  # learners with an entry on one of the boards, and references
    left_out: int
    defaults: Mapping[tuple[str, str], EntryRow]
    """By learner and board: the best entry with default settings, if the map shows an entry with other settings."""

    @property
    def lines(self) -> list[LearnerLine[EntryRow]]:
        """The rows of learners."""
        return [line for line in self.grid.lines if not line.reference]

    @property
    def references(self) -> list[LearnerLine[EntryRow]]:
        """The rows of references below the map. References are results that are not entries."""
        return [line for line in self.grid.lines if line.reference]


def make_heat_maps(site: SiteContext) -> list[HeatMap]:
    """Return a heat map for each of the most common epsilons: the home page's map, then the others by epsilon."""
    filled = list_nonempty_standings(site)
    often = Counter(standing.board.epsilon for standing in filled).most_common(MAX_EPSILONS)
    first = max(often, key=lambda found: (found[1], -abs(math.log(found[0]))), default=(None, 0))[0]
    order = sorted((epsilon for epsilon, _ in often), key=lambda epsilon: (epsilon != first, epsilon))
    learners = [line.label for line in list_learner_lines(site, filled)]
    return [_make_heat_map(site, filled, epsilon, learners, place) for place, epsilon in enumerate(order)]


def list_nonempty_standings(site: SiteContext) -> list[Standing]:
    """Return the boards that have results, the largest families first."""
    return [standing for family in site.families for standing in family if standing.entries]


def _make_heat_map(
    site: SiteContext, filled: Sequence[Standing], epsilon: float, learners: Sequence[str], index: int
) -> HeatMap:
    boards = [standing for standing in filled if standing.board.epsilon == epsilon]
    lines = sorted(list_learner_lines(site, boards), key=lambda line: learners.index(line.label))
    references = [_make_reference_line(site, boards, role) for role in view.REFERENCE_LABELS]
    titles = tuple(view.family_title(standing) for standing in boards)
    grid = ResultGrid(f"ε {epsilon:g}", None, titles, (*lines[:MAX_LEARNERS], *references))
    return HeatMap(
        epsilon, f"epsilon-{epsilon:g}.html" if index else "index.html", tuple(map(_make_column, boards)), grid,
        max(len(lines) - MAX_LEARNERS, 0), _find_default_rows(boards, lines),
    )  # fmt: skip


def _find_default_rows(
    boards: Sequence[Standing], lines: Sequence[LearnerLine[EntryRow]]
) -> dict[tuple[str, str], EntryRow]:
    known = {
        (row.entry.learner, row.protocol.name): row for standing in boards for row in list_best_default_rows(standing)
    }
    shown = {row.entry.file for line in lines for row in line.present_rows}
    return {key: row for key, row in known.items() if row.entry.file not in shown}


def render_epsilon_pages(
    site: SiteContext, heat_maps: Sequence[HeatMap], renderer: PageRenderer
) -> Iterator[tuple[str, bytes]]:
    """Yield the page of each map except the home page's map."""
    shared = {"maps": _sort_by_epsilon(heat_maps), "looks": site.looks, "learners": site.learners}
    for heat_map in heat_maps[1:]:
        yield heat_map.path, renderer.page("epsilon", heat_map.path, "home", {"map": heat_map, **shared})


def _sort_by_epsilon(heat_maps: Sequence[HeatMap]) -> list[HeatMap]:
    return sorted(heat_maps, key=lambda heat_map: heat_map.epsilon)


def render_home(
    site: SiteContext, heat_maps: Sequence[HeatMap], evidence: Sequence[Markup], renderer: PageRenderer
) -> bytes:
    """Return the home page; `evidence` holds additional sentences on why readers can trust the numbers."""
    filled = list_nonempty_standings(site)
    lines = list_learner_lines(site, filled)
    everything = [entry for _, entry in site.entries]
    ranked = [entry for entry in everything if entry.role == "entry"]
    old, read = view.count_earlier_mechanisms(site.index)
    distances, data_sets = list_overall_results(site.index), count_data_sets(site.index)
    values = {
        "map": heat_maps[0] if heat_maps and lines else None, "maps": _sort_by_epsilon(heat_maps),
        "answer": _find_most_tied_learners(lines, len(filled)), "among": len(filled),
        "looks": site.looks, "learners": site.learners,
        "distances": [(distance, describe_distance(distance, data_sets)) for distance in distances],
        "data_sets": data_sets,
        "results": len(everything), "ranked": len(ranked), "boards": len(filled), "before": old, "read": read,
        "guaranteed": sum(entry.reads_private and entry.role != "ceiling" for entry in everything),
        "again": sum(entry.again is not None and not entry.reproduced for entry in everything),
        "reproduced": sum(entry.reproduced for entry in everything),
        "audited": sum(entry.audit is not None for entry in everything),
        "evidence": evidence,
        "above": {view.family_title(standing): standing for standing in reversed(filled) if standing.above},
        "open": [standing for standing in site.index.standings if not standing.entries],
        "ranking": site.index.ranking, "learner": lines[0].label if lines else "pillar",
        "board": (heat_maps[0].columns[0].standing if heat_maps else next(iter(site.index.standings))).board.name,
    }  # fmt: skip
    return renderer.page("index", "index.html", "home", values)


def _make_column(standing: Standing) -> BoardColumn:
    data, _, features = view.family_title(standing).partition(", ")
    return BoardColumn(data, features, standing)


def list_learner_lines(site: SiteContext, boards: Sequence[Standing]) -> list[LearnerLine[EntryRow]]:
    """Return a line for each learner, with its best ranked entry on each board.

    Lines are sorted by the number of boards where the learner is best or tied, then by mean distance behind the best.
    """
    best: dict[str, dict[str, EntryRow]] = defaultdict(dict)
    for standing in boards:
        for row in reversed(site.rows[standing.board.name]):  # the best last
            if row.entry.role == "entry":
                best[row.entry.learner][standing.board.name] = row
    lines = [
        LearnerLine(name, tuple(rows.get(standing.board.name) for standing in boards)) for name, rows in best.items()
    ]
    return sorted(lines, key=_sort_key)


def _sort_key(line: LearnerLine[EntryRow]) -> tuple[float, float, str]:
    behind = [row.distance_behind or 0.0 for row in line.present_rows]
    return -_count_ties(line), sum(behind) / len(behind), line.label


def _count_ties(line: LearnerLine[EntryRow]) -> int:
    return sum(row.standing.tied for row in line.present_rows)


def _make_reference_line(site: SiteContext, boards: Sequence[Standing], role: str) -> LearnerLine[EntryRow]:
    rows = tuple(find_reference_row(site.rows[standing.board.name], role) for standing in boards)
    return LearnerLine(view.REFERENCE_LABELS[role], rows, reference=True)


def _find_most_tied_learners(lines: Sequence[LearnerLine[EntryRow]], boards: int) -> list[tuple[str, int]]:
    """Return the learners that are best or tied on the most and second-most boards, with the number of boards."""
    found = [(line.label, _count_ties(line)) for line in lines]
    numbers = sorted({count for _, count in found if count}, reverse=True)[:2]
    return [(label, count) for label, count in found if count in numbers] if boards else []
