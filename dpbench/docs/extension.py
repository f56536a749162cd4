"""What Sphinx lacks: formulas as MathML, which browsers draw by themselves, and docstrings that are prose."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_CODE = re.compile(r"(``.+?``|`[^`]+`)", re.DOTALL)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
    app.connect("autodoc-process-docstring", _escaped, priority=1)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def _escaped(app: Sphinx, what: str, name: str, item: object, options: object, lines: list[str]) -> None:
    """Escape stars and bars outside of code: in a docstring they mean themselves."""
    parts = _CODE.split("\n".join(lines))
    text = "".join(part if number % 2 else re.sub(r"([*|])", r"\\\1", part) for number, part in enumerate(parts))
    if what == "attribute":  # before a colon outside of double quotes, Sphinx would read a type
        text = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", text)
    lines[:] = text.split("\n")
