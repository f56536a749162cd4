"""A page for each learner: what it does, where it is written, and every entry it has."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpbench_lab.explain.explanation import Explanation
from markupsafe import Markup

from dpbench.board.folder import content_of, validate_content
from dpbench.board.index import Entry, Standing
from dpbench.errors import DataError, MalformedFile
from dpbench.records.metrics import TITLES
from dpbench.registry import Registration
from dpbench.site import prose, text, view
from dpbench.site.context import Site
from dpbench.site.overall import count_data_sets, describe_distance, overall
from dpbench.site.picture import Chart, picture
from dpbench.site.render import Renderer

MOST = 200  # entries on a learner's page
EXPLANATIONS = "explanations"


@dataclass(frozen=True)
class LearnerView:
    """A learner as its page shows it."""

    name: str
    registered: Registration | None  # None: its plugin is not installed where the site was built
    entries: tuple[tuple[Standing, view.Row], ...]
    axis: view.Axis
    role: str
    distance: str  # from the best entry, over all boards, in words; empty where it has none

    @property
    def firsts(self) -> int:
        """On how many boards it shares the first rank."""
        return len({standing.board.name for standing, row in self.entries if row.entry.rank == 1})

    @property
    def boards(self) -> int:
        """On how many boards it is."""
        return len({standing.board.name for standing, _ in self.entries})


def pages(site: Site, renderer: Renderer) -> Iterator[tuple[str, bytes]]:
    """Yield the pages of all learners, and the list of them."""
    data_sets = count_data_sets(site.index)
    distances = {one.distance.learner: describe_distance(one, data_sets) for one in overall(site.index)}
    every = [_shown(site, name, rows, distances.get(name, "")) for name, rows in _rows(site).items()]
    explained = explanations(site)
    for one in every:
        yield site.learners[one.name], _page(site, one, explained, renderer)
    found = {one.distance.learner: one for one in overall(site.index)}
    places = {name: place for place, name in enumerate(found)}
    every.sort(key=lambda one: (one.role != "entry", places.get(one.name, len(places)), -one.firsts, one.name))
    values = {"learners": [(one, _summary(one), found.get(one.name)) for one in every], "site": site}
    yield "learners.html", renderer.page("learners", "learners.html", "learners", values)


def explanations(site: Site) -> list[Explanation]:
    """Return what `dpbench explain --out` wrote into the leaderboard's folder.

    Raises:
        DataError: a file there is no explanation.
    """
    found = []
    for file in sorted((site.root / EXPLANATIONS).rglob("*.json")):
        try:
            found.append(validate_content(Explanation, content_of(file)))
        except MalformedFile as error:
            raise DataError(
                f"Expected an explanation in {file}, at {error.field}: {error.said}. Make it again."
            ) from None
    return found


def _rows(site: Site) -> dict[str, list[tuple[Standing, view.Row]]]:
    """Return every learner's lines, board by board in the order of families."""
    found: dict[str, list[tuple[Standing, view.Row]]] = {name: [] for name in site.learners}
    for family in site.families:
        for standing in family:
            for row in view.lines(standing):
                found[row.entry.learner].append((standing, row))
    return found


def _shown(site: Site, name: str, rows: Sequence[tuple[Standing, view.Row]], distance: str) -> LearnerView:
    registered = site.plugins.components["learner"].get(name)
    roles = {row.entry.role for _, row in rows}
    role = "entry" if roles & {"entry", "unranked"} else next(iter(roles), "entry")
    return LearnerView(name, registered, tuple(rows), view.Axis.of(row.score for _, row in rows), role, distance)


def _summary(one: LearnerView) -> Markup:
    """Return the first paragraph of what a learner says of itself."""
    return next(iter(prose.paragraphs(one.registered.cls)), Markup()) if one.registered else Markup()


def _page(site: Site, one: LearnerView, explained: Sequence[Explanation], renderer: Renderer) -> bytes:
    first = one.entries[0] if one.entries else None
    cls = one.registered.cls if one.registered else None
    commits = [row.entry.made.commit for _, row in one.entries if row.entry.made.commit]
    file = prose.file_of(cls) if cls else ""
    values = {
        "learner": one, "look": site.looks[one.name], "paragraphs": prose.paragraphs(cls)[1:] if cls else [],
        "papers": prose.papers(*prose.about(cls)) if cls else [], "summary": _summary(one),
        "file": file, "code": site.settings.code(file, commits[0] if commits else None) if file else "",
        "commit": commits[0] if commits else None, "rows": one.entries[:MOST],
        "left_out": max(len(one.entries) - MOST, 0), "plan": _guarantee(first[1].entry) if first else "",
        "command": f"dpbench run --board {first[0].board.name} --learner {text.show_string(one.name, 200)}"
        if first else "",
        "charts": [*_explained(one.name, explained)],
    }  # fmt: skip
    return renderer.page("learner", site.learners[one.name], "learners", values)


def _guarantee(entry: Entry) -> str:
    if entry.role == "control":
        return "ε 0: its plan reads no private image."
    if entry.role == "ceiling":
        return "None: no noise is added, so it is a reference and never an entry."
    return (
        "The (ε, δ) of its board, for neighbours that differ by one image added or removed, or by all images of one "
        "unit, such as a patient, where the board names one. The harness samples, clips and adds the noise, and two "
        "accountants compute ε from the plan."
    )


def _explained(name: str, found: Sequence[Explanation]) -> Iterator[Chart]:
    """Yield what privacy costs a learner, part by part, on each protocol that was explained."""
    from dpbench_lab.explain.chart import figure, stairs

    for number, one in enumerate(found):
        mine = tuple(each for each in one.learners if each.learner.name == name)
        if mine:
            alone = one.model_copy(update={"learners": mine})
            spec, key = one.specs[0], f"explain-{number}"
            title = f"What each part of privacy costs: {spec.dataset.name}, {spec.extractor.names}"
            rows = tuple(
                (each.learner.name, text.budget(each.epsilon), stage, f"{after - before:+.2f}")
                for each in mine
                for stage, before, after in stairs(each)
            )
            drawn = picture(functools.partial(figure, alone, titled=False), key, f"{title}. The table has the numbers.")
            note = (
                f"{TITLES[one.metric]} gained when noise, clipping and other limits are removed one after another. "
                "Only the private run has a guarantee."
            )
            yield Chart(key, title, note, drawn, ("Learner", "ε", "Removed", "points"), rows)
