"""Templates and what all of them know. Compiled once a process; every value that is printed is escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from dpbench.board.site import output, text, view, words

if TYPE_CHECKING:
    from jinja2 import Environment

# Firefox gives a page on disk an origin that 'self' never matches; on a server no file: address can be loaded at all.
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' file: data:; base-uri 'none'; "
    "form-action 'none'"
)
ALONE = "default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
STATIC = ("site.css", "site.js", "theme.js", "icon.svg")


@dataclass(frozen=True)
class Renderer:
    """Renders pages by name."""

    environment: Environment

    def page(self, name: str, depth: int, values: Mapping[str, Any]) -> bytes:
        """Return a page that lies `depth` folders below the first one."""
        template = self.environment.get_template(f"{name}.html.jinja")
        return template.render({"up": "../" * depth, "policy": POLICY, **values}).encode("utf-8", "replace")

    def lost(self) -> bytes:
        """Return the page of addresses that do not exist: it loads nothing, as it may lie at any depth."""
        style = static("404.css").decode()
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        values = {"policy": ALONE.format(digest=digest), "style": Markup(style)}  # our own file
        return self.page("404", 0, values)


def renderer() -> Renderer:
    """Return a renderer with every template's words and filters."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("dpbench.board.site", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=text.finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(text.FILTERS)
    environment.globals.update(
        badge=words.BADGES,
        trust=words.TRUST,
        research=words.RESEARCH,
        selection=words.SELECTION,
        status=words.STATUS,
        metric_name=view.metric_name,
        chance=view.chance,
        page=output.page,
    )
    return Renderer(environment)


def static(name: str) -> bytes:
    """Return a file of our own that pages load."""
    return (files("dpbench.board.site") / "static" / name).read_bytes()
