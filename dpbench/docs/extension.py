"""Sphinx extension: formulas as MathML, docstrings as plain prose, keyboard scrolling, and collapsible sections."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDED_PAGES = (
    "reference/names", "reference/commands", "reference/learners", "reference/datasets", "reference/extractors",
    "explanation/museum", "explanation/papers",
)  # fmt: skip
"""Pages whose innermost sections are collapsed until the reader clicks on them."""
_LEAF_SECTION = re.compile(
    r'<section id="([^"]+)">((?:\s*<span id="[^"]*"></span>)*)\s*(<h[23]>(?:(?!</h).)*</h[23]>)'
    r"((?:(?!</?section).)*)</section>",
    re.DOTALL,
)
_FOLDED_SECTION = r'<section>\2<details><summary>\3</summary><div id="\1">\4</div></details></section>'
"""The HTML of a collapsed section. The id is inside the collapsed part, so that a link to the section opens it."""
_SIGNATURE_LIST = re.compile(r'<dl>\n((?:<dd><em class="sig-param">.*?</dd>\n)+)</dl>', re.DOTALL)
_PROSE_KINDS = ("attribute", "data", "property")
_CODE = re.compile(r"(``.+?``|`[^`]+`)", re.DOTALL)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register this extension with Sphinx."""
    app.add_html_math_renderer("mathml", (_visit_inline_math, None), (_visit_block_math, None))
    app.config.html_math_renderer = "mathml"
    app.connect("autodoc-process-docstring", _escape_docstring, priority=1)
    app.connect("html-page-context", _improve_page, priority=900)  # after the theme's own
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _visit_inline_math(writer: Any, node: nodes.math) -> None:
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _visit_block_math(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def _escape_docstring(app: Sphinx, what: str, name: str, item: object, options: object, lines: list[str]) -> None:
    """Escape asterisks and vertical bars outside code, because docstrings use them as plain characters."""
    parts = _CODE.split("\n".join(lines))
    text = "".join(part if number % 2 else re.sub(r"([*|])", r"\\\1", part) for number, part in enumerate(parts))
    if what in _PROSE_KINDS:  # before a colon in the first line, napoleon would read a type: that line is an empty one
        text = "\\ \n" + re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", text)
    lines[:] = text.split("\n")


def _improve_page(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Make code and tables scrollable by keyboard, set heading levels, simplify signatures, and collapse long pages."""
    if tree := context.get("furo_navigation_tree"):
        context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')
    body = context.get("body") or ""
    body = body.replace("<pre>", '<pre tabindex="0">')
    body = body.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')
    body = _SIGNATURE_LIST.sub(_render_signature, body)
    context["body"] = _LEAF_SECTION.sub(_FOLDED_SECTION, body) if page in FOLDED_PAGES else body


def _render_signature(match: re.Match[str]) -> str:
    lines = match[1].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")
    return f'<span class="sig-lines">{lines}</span>'
