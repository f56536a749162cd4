"""Citations: BibTeX for dpbench and for every installed learner, dataset and extractor."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from dpbench.records.provenance import HARNESS
from dpbench.registry import KINDS, ComponentKind, Registration, Registry
from dpbench.site import prose, text
from dpbench.site.context import SiteContext
from dpbench.site.render import PageRenderer

TITLES = {"learner": "Learners", "dataset": "Datasets", "extractor": "Extractors"}
_ENTRY = re.compile(r"^@\w+\{(?P<key>[^,]+),\n.*?^\}\n", re.MULTILINE | re.DOTALL)
_KEYWORDS = re.compile(r"^  keywords +=(?: \{(?P<names>[^}]*)\}),\n", re.MULTILINE)
_LINK = re.compile(r"^  (?P<field>url|doi) +=(?: \{(?P<place>[^}]*)\})", re.MULTILINE)


@dataclass(frozen=True)
class BibliographyReference:
    """A BibTeX entry and the components that it describes."""

    bibtex: str
    components: frozenset[str]  # KIND/NAME
    link: str  # empty without one


@dataclass(frozen=True)
class Citation:
    """The references to cite for a component."""

    kind: ComponentKind
    name: str
    references: tuple[BibliographyReference, ...]
    said: str  # what its class says
    own: bool  # whether dpbench brings it


def render_citations_page(site: SiteContext, renderer: PageRenderer) -> bytes:
    """Return the page of citations."""
    every = list(list_citations(site.plugins))
    groups = [
        (kind, title, [citation for citation in every if citation.kind == kind]) for kind, title in TITLES.items()
    ]
    own = make_dpbench_entry(site.settings.version, site.settings.repository)
    return renderer.page("cite", "cite.html", "cite", {"groups": groups, "own": own})


def list_citations(plugins: Registry) -> Iterator[Citation]:
    """Yield the citation of each installed component, sorted by kind and name."""
    for kind in KINDS:
        for name, found in sorted(plugins.components[kind].items()):
            yield Citation(
                kind, name, find_references(kind, found), getattr(found.cls, "citation", ""),
                found.distribution == HARNESS,
            )  # fmt: skip


def find_references(kind: ComponentKind, found: Registration) -> tuple[BibliographyReference, ...]:
    """Return a component's references from dpbench's catalogue, or else the papers that its class cites."""
    name = f"{kind}/{found.cls.name}"
    kept = tuple(reference for reference in read_catalogue() if name in reference.components)
    cited = prose.list_paper_links(*prose.read_docstrings(found.cls), getattr(found.cls, "citation", ""))
    return kept or tuple(_make_arxiv_reference(kind, found, link) for link in cited)


def _make_arxiv_reference(kind: ComponentKind, found: Registration, link: str) -> BibliographyReference:
    """Return a reference with only the arXiv number, for a paper missing from the catalogue."""
    number = link.removeprefix(prose.ARXIV_ABSTRACTS)
    fields = {"note": f"arXiv:{number}, the paper of {kind} {found.cls.name}", "url": link}
    return BibliographyReference(_format_bibtex("misc", f"arxiv-{number}", fields), frozenset(), link)


@cache
def read_catalogue() -> tuple[BibliographyReference, ...]:
    """Read the references of dpbench's own catalogue."""
    kept = (files("dpbench.site") / "references.bib").read_text(encoding="utf-8")
    return tuple(_parse_reference(match[0]) for match in _ENTRY.finditer(kept))


def _parse_reference(entry: str) -> BibliographyReference:
    named, link = _KEYWORDS.search(entry), _LINK.search(entry)
    names = named["names"].split(", ") if named else []
    place = link["place"] if link else ""
    address = f"https://doi.org/{place}" if link and link["field"] == "doi" else place
    return BibliographyReference(_KEYWORDS.sub("", entry), frozenset(names), address)


def make_dpbench_entry(version: str, repository: str) -> str:
    """Return the BibTeX entry of dpbench itself.

    >>> print(make_dpbench_entry("0.2.0", ""))
    @software{dpbench,
      author    = {{The dpbench developers}},
      title     = {dpbench: a benchmark and leaderboard for differentially private image classification},
      version   = {0.2.0},
    }
    """
    fields = {
        "author": "{The dpbench developers}",
        "title": "dpbench: a benchmark and leaderboard for differentially private image classification",
        "version": version, "url": repository,
    }  # fmt: skip
    return _format_bibtex("software", "dpbench", fields)


def _format_bibtex(kind: str, key: str, fields: Mapping[str, str]) -> str:
    lines = "".join(f"  {name:9} = {{{text.sanitise_string(value)}}},\n" for name, value in fields.items() if value)
    return f"@{kind}{{{key},\n{lines}}}"
