"""A page for each learner: its results, its method and its source code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dpbench.analysis.grid import ResultGrid, make_numeric_grid
from dpbench.board.index import Entry, Standing
from dpbench.board.rows import EntryRow
from dpbench.registry import Registration
from dpbench.site import prose, text, view
from dpbench.site.context import SiteContext
from dpbench.site.entries_page import MAX_NAME_LENGTH
from dpbench.site.overall import count_data_sets, describe_distance, list_overall_results
from dpbench.site.picture import Chart
from dpbench.site.render import PageRenderer


@dataclass(frozen=True)
class LearnerView:
    """The data of a learner's page."""

    name: str
    registered: Registration | None  # None: its plugin is not installed where the site was built
    entries: tuple[tuple[Standing, EntryRow], ...]
    role: str
    distance: str  # from the best entry, over all boards, in words; empty where it has none

    @property
    def first_ranks(self) -> int:
        """The number of boards on which the learner has rank 1, alone or tied."""
        return len({standing.board.name for standing, row in self.entries if row.entry.rank == 1})

    @property
    def board_count(self) -> int:
        """The number of boards on which the learner has results."""
        return len({standing.board.name for standing, _ in self.entries})


ChartFunction = Callable[[str], Iterable[Chart]]  # of a learner, by its name


def render_learner_pages(
    site: SiteContext, chart_functions: Sequence[ChartFunction], renderer: PageRenderer
) -> Iterator[tuple[str, bytes]]:
    """Yield the page of each learner, with the charts of `chart_functions`, then the page that lists all learners."""
    data_sets = count_data_sets(site.index)
    distances = {
        result.distance.learner: describe_distance(result, data_sets) for result in list_overall_results(site.index)
    }
    every = [
        _make_view(site, name, rows, distances.get(name, "")) for name, rows in _group_rows_by_learner(site).items()
    ]
    for page in every:
        shown = [chart for charts in chart_functions for chart in charts(page.name)]
        yield site.learners[page.name], _render_page(site, page, shown, renderer)
    found = {result.distance.learner: result for result in list_overall_results(site.index)}
    places = {name: place for place, name in enumerate(found)}
    every.sort(
        key=lambda view: (view.role != "entry", places.get(view.name, len(places)), -view.first_ranks, view.name)
    )
    values = {"learners": [(view, _read_summary(view), found.get(view.name)) for view in every], "site": site}
    yield "learners.html", renderer.page("learners", "learners.html", "learners", values)


def _group_rows_by_learner(site: SiteContext) -> dict[str, list[tuple[Standing, EntryRow]]]:
    """Return the rows of each learner, board by board, in the order of families."""
    found: dict[str, list[tuple[Standing, EntryRow]]] = {name: [] for name in site.learners}
    for family in site.families:
        for standing in family:
            for row in site.rows[standing.board.name]:
                found[row.entry.learner].append((standing, row))
    return found


def _make_view(site: SiteContext, name: str, rows: Sequence[tuple[Standing, EntryRow]], distance: str) -> LearnerView:
    registered = site.plugins.components["learner"].get(name.partition(" (")[0])
    if registered and any(row.entry.plugin.distribution != registered.distribution for _, row in rows):
        registered = None
    roles = {row.entry.role for _, row in rows}
    role = "entry" if roles & {"entry", "unranked"} else next(iter(roles), "entry")
    return LearnerView(name, registered, tuple(rows), role, distance)


def _read_summary(view: LearnerView) -> Markup:
    """Return the first paragraph of a learner's docstring."""
    return next(iter(prose.render_paragraphs(view.registered.cls)), Markup()) if view.registered else Markup()


def _render_page(site: SiteContext, view: LearnerView, charts: Sequence[Chart], renderer: PageRenderer) -> bytes:
    first = view.entries[0] if view.entries else None
    cls = view.registered.cls if view.registered else None
    commits = [row.entry.made.commit for _, row in view.entries if row.entry.made.commit]
    file = prose.find_source_path(cls) if cls else ""
    values = {
        "learner": view, "look": site.looks[view.name], "paragraphs": prose.render_paragraphs(cls)[1:] if cls else [],
        "papers": prose.list_paper_links(*prose.read_docstrings(cls)) if cls else [], "summary": _read_summary(view),
        "file": file, "code": site.settings.code(file, commits[0] if commits else None) if file else "",
        "commit": commits[0] if commits else None, "grid": _make_grid(view), "longest": MAX_NAME_LENGTH,
        "plan": _describe_guarantee(first[1].entry) if first else "",
        "command": _format_run_command(*first) if first else "",
        "charts": charts,
    }  # fmt: skip
    return renderer.page("learner", site.learners[view.name], "learners", values)


def _make_grid(learner: LearnerView) -> ResultGrid[EntryRow]:
    """Return the grid of the learner's best result on each board: a line per protocol, a column per epsilon."""
    lines: dict[str, dict[float, EntryRow]] = defaultdict(dict)
    for standing, row in reversed(learner.entries):  # the best last
        if row.score:
            lines[view.family_title(standing)][standing.board.epsilon] = row
    return make_numeric_grid("", None, "ε", dict(reversed(lines.items())))


def _format_run_command(standing: Standing, row: EntryRow) -> str:
    return f"dpbench run --board {standing.board.name} --learner {text.sanitise_string(row.entry.learner_name, 200)}"


def _describe_guarantee(entry: Entry) -> str:
    if entry.role == "control":
        return "ε 0: its plan reads no private image."
    if entry.role == "ceiling":
        return "None: no noise is added, so it is a reference and never an entry."
    return (
        "The (ε, δ) of its board, for neighbours that differ by one image added or removed, or by all images of one "
        "unit, such as a patient, where the board names one. The harness samples, clips and adds the noise, and two "
        "accountants compute ε from the plan."
    )
