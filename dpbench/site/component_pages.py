"""A page for each dataset and each extractor: its description, source, licence and boards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from dpbench.board.index import Standing
from dpbench.errors import DpbenchError
from dpbench.registry import Registration
from dpbench.site import prose, view
from dpbench.site.context import SiteContext, make_slugs
from dpbench.site.render import PageRenderer
from dpbench.support.messages import format_bytes


@dataclass(frozen=True)
class BoardComponent:
    """A dataset or an extractor, with the boards that use it."""

    kind: Literal["dataset", "extractor"]
    name: str
    page: str
    registered: Registration | None
    boards: tuple[Standing, ...]
    facts: tuple[tuple[str, str], ...]
    source: str  # its web page

    @property
    def is_cited(self) -> bool:
        """Whether the citations page lists the component."""
        return self.registered is not None and self.registered.cls.name == self.name

    @property
    def entry_count(self) -> int:
        """The number of ranked entries on the component's boards."""
        return sum(entry.role == "entry" for standing in self.boards for entry in standing.entries)


def list_board_components(site: SiteContext) -> list[BoardComponent]:
    """Return the datasets and then the extractors that the boards use."""
    datasets: dict[str, list[Standing]] = {}
    extractors: dict[str, list[Standing]] = {}
    for standing in (standing for family in site.families for standing in family):
        board = standing.board
        for component in filter(None, (board.dataset, board.public_dataset)):
            datasets.setdefault(component.name, []).append(standing)
        for component in board.extractor.parts:
            extractors.setdefault(component.name, []).append(standing)
    return [*_build_components(site, "dataset", datasets), *_build_components(site, "extractor", extractors)]


def render_component_pages(site: SiteContext, renderer: PageRenderer) -> Iterator[tuple[str, bytes]]:
    """Yield the page of each dataset and extractor, then the page that lists them all."""
    found = list_board_components(site)
    for component in found:
        cls = component.registered.cls if component.registered else None
        values = {
            "part": component, "paragraphs": prose.render_paragraphs(cls) if cls else [],
            "papers": prose.list_paper_links(*prose.read_docstrings(cls), getattr(cls, "citation", "")) if cls else [],
        }  # fmt: skip
        yield component.page, renderer.page("component", component.page, "data", values)
    yield "data.html", renderer.page("data", "data.html", "data", {"parts": found})


def _build_components(
    site: SiteContext, kind: Literal["dataset", "extractor"], named: Mapping[str, list[Standing]]
) -> Iterator[BoardComponent]:
    for name, slug in make_slugs(named).items():
        found = site.plugins.components[kind].get(name)
        boards = tuple(named[name])
        facts, source = (_describe_dataset if kind == "dataset" else _describe_extractor)(site, found, boards)
        yield BoardComponent(
            kind, name, f"{kind}s/{slug}.html", found, boards, tuple(pair for pair in facts if pair[1]), source
        )


FactsAndSource = tuple[list[tuple[str, str]], str]


def _describe_dataset(site: SiteContext, found: Registration | None, boards: tuple[Standing, ...]) -> FactsAndSource:
    filled = next(
        (board for board in boards if board.private and board.board.dataset.name == (found and found.cls.name)), None
    )
    facts = []
    if filled:
        facts += [
            ("Split of its first board", view.describe_split(filled)),
            ("Classes", f"{len(filled.classes)}"),
        ]
        facts += [(f"Overlap, {pair}", str(counted)) for pair, counted in filled.overlap.items()]
    if found is None:
        return facts, ""
    try:
        where = site.plugins.build("dataset", found.cls.name, boards[0].board.dataset.options).source()
    except (DpbenchError, TypeError):
        where = None
    facts += [
        ("Licence", found.cls.licence), ("Citation", found.cls.citation),
        ("Test split", found.cls.test_differs),
        ("Download", format_bytes(where.size) if where and where.size else ""),
        ("Provided by", f"plugin {found.plugin} of {found.distribution} {found.version}"),
    ]  # fmt: skip
    page = where.page if where and where.page.startswith(("https://", "http://")) else ""
    return facts, page


def _describe_extractor(site: SiteContext, found: Registration | None, boards: tuple[Standing, ...]) -> FactsAndSource:
    if found is None:
        return [], ""
    size, dimension, seen = found.cls.weights_size, found.cls.dimension, found.cls.trained_on
    facts = [
        ("Features per image", f"{dimension:,}" if dimension else ""),
        ("Weights", format_bytes(size) if size else ""), ("Licence of the weights", found.cls.licence),
        ("Weights trained on", seen if isinstance(seen, str) else "depends on the model"),
        ("Version", found.cls.version),
        ("Provided by", f"plugin {found.plugin} of {found.distribution} {found.version}"),
    ]  # fmt: skip
    return facts, ""
