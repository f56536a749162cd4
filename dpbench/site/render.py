"""Page templates with shared functions and filters, compiled once per process. Every printed value is escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from dpbench.analysis import describe, palette
from dpbench.analysis.rows import SELECTION_WORDS
from dpbench.audit.evidence import describe_evidence
from dpbench.board.rows import describe_trust
from dpbench.records.metrics import METRIC_FACTS
from dpbench.site import layout, text, view, words
from dpbench.site.cost import make_cost_cells
from dpbench.site.own_text import LeaderboardText
from dpbench.site.settings import SiteSettings

if TYPE_CHECKING:
    from jinja2 import Environment

# Firefox gives a page on disk an origin that 'self' never matches; on a server no file: address can be loaded at all.
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' file: data:; base-uri 'none'; "
    "form-action 'none'"
)
STANDALONE_POLICY = (
    "default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
)
STATIC_FILES = ("header.css", "site.js", "icon.svg")
PREVIEW = "assets/preview.png"


@dataclass(frozen=True)
class PageRenderer:
    """Renders pages from named templates."""

    environment: Environment
    settings: SiteSettings
    site_text: LeaderboardText

    def page(self, template: str, path: str, section: str, values: Mapping[str, Any], preview: str = PREVIEW) -> bytes:
        """Render a template for the page at `path`; `section` is its section, `preview` its preview image."""
        address = self.settings.address
        shared = {
            "root": "../" * path.count("/"), "here": section, "policy": POLICY, "settings": self.settings,
            "docs": self.settings.docs, "repository": self.settings.repository, "sections": layout.SECTIONS,
            "canonical": address and f"{address}{'' if path == 'index.html' else path}", "preview": preview,
        }  # fmt: skip
        values = {**shared, "site_text": self.site_text, **values}
        rendered = self.environment.get_template(f"{template}.html.jinja").render(values)
        return rendered.encode("utf-8", "replace")

    def render_not_found(self) -> bytes:
        """Render the page for missing addresses, self-contained because it can appear at any depth."""
        plain = read_static_file("404.css").decode()
        digest = base64.b64encode(hashlib.sha256(plain.encode()).digest()).decode()
        home = self.settings.address or "index.html"  # relative links from an unknown depth could leave the site
        values = {"policy": STANDALONE_POLICY.format(digest=digest), "style": Markup(plain), "home": home}
        return self.environment.get_template("404.html.jinja").render(values).encode()


def make_renderer(settings: SiteSettings, packages: tuple[str, ...] = (), root: Path | None = None) -> PageRenderer:
    """Return a renderer with the shared functions and filters.

    Args:
        settings: the settings of the site.
        packages: packages with additional templates.
        root: the leaderboard's folder, which may replace texts of the pages; see `own_text`.
    """
    return PageRenderer(_build_environment(packages), settings, LeaderboardText.read(root))


@cache
def _build_environment(packages: tuple[str, ...]) -> Environment:
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    own = PackageLoader("dpbench.site", "templates")

    environment = Environment(
        loader=ChoiceLoader([own, *(PackageLoader(package, ".") for package in packages)]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=text.finalize_template_value,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(text.FILTERS)
    environment.globals.update(
        chosen=SELECTION_WORDS,
        trust=words.TRUST_SENTENCES,
        name_trust=describe_trust,
        describe_trust=words.explain_trust,
        describe_evidence=describe_evidence,
        rng=describe.NOISE_SOURCES,
        describe_model=words.explain_model_release,
        selection=describe.SELECTION_SENTENCES,
        metric_name=view.metric_title,
        axis=lambda metric: METRIC_FACTS[metric].axis,
        uncorrected=view.uncorrected_rank,
        heat=view.compute_cell_shade,
        cost=make_cost_cells,
        page=layout.entry_page_path,
        row_page=layout.row_page_path,
    )
    return environment


def read_static_file(name: str) -> bytes:
    """Return the content of a static file of the site."""
    return (files("dpbench.site") / "static" / name).read_bytes()


def make_site_stylesheet() -> bytes:
    """Return the stylesheet of all pages, with the colours of learners."""
    return palette.make_colour_stylesheet().encode() + read_static_file("site.css")
