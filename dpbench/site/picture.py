"""A matplotlib figure as SVG within a page: text stays text, and colours follow the page's theme.

A page's policy allows only the site's stylesheet, so each style declaration of a figure becomes an attribute. Colours
that the stylesheet defines become its variables; other colours stay. Ids in a picture begin with the picture's key,
because a page can hold several pictures.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from markupsafe import Markup

from dpbench.analysis.draw import render_figure
from dpbench.analysis.palette import INK, LIGHT, LINE, PAPER, QUIET

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THEME_VARIABLES = {
    INK: "var(--ink)", QUIET: "var(--quiet)", LINE: "var(--line)", PAPER: "var(--paper)",
    **{colour: f"var(--c{place})" for place, colour in enumerate(LIGHT)},
}  # fmt: skip
_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_FONT = re.compile(r"(?:(?P<style>italic) )?(?:(?P<weight>bold|[0-9]{3}) )?(?P<size>[0-9.]+)px .*")


@dataclass(frozen=True)
class Chart:
    """A picture with its title, its note and its numbers as a table."""

    key: str  # unique on its page, safe in HTML
    title: str
    note: str
    picture: Markup
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def render_inline_svg(draw: Callable[[], Figure], key: str, alt_text: str) -> Markup:
    """Draw a figure and return it as SVG for a page; `alt_text` is for screen readers."""
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(render_figure(draw, "svg", figure_facecolor="none", font_size=10))
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
        _expand_style(parent, key)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {"role": "img", "aria-label": alt_text, "class": "picture", "stroke-linejoin": "round"}
    return Markup(ElementTree.tostring(root, encoding="unicode").replace("\n", " "))


def _expand_style(element: ElementTree.Element, id_prefix: str) -> None:
    """Turn an element's style into attributes, theme colours into variables, and prefix ids with the picture's key."""
    for declaration in element.attrib.pop("style", "").split(";"):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if name == "font" and (found := _FONT.fullmatch(value)):
            element.attrib |= {f"font-{part}": said for part, said in found.groupdict().items() if said}
        elif name:
            element.set(name, value)
    for name, value in element.attrib.items():
        if name == "id":
            element.set(name, f"{id_prefix}-{value}")
        elif name == f"{{{_XLINK}}}href" or "url(#" in value:
            element.set(name, value.replace("#", f"#{id_prefix}-", 1))
        elif value.lower() in THEME_VARIABLES:
            element.set(name, THEME_VARIABLES[value.lower()])
    target = element.attrib.pop(f"{{{_XLINK}}}href", None)
    if target:
        element.set("href", target)
