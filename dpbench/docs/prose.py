"""Docstrings -> reStructuredText: they are prose in which `*` and `|` mean themselves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_CODE = re.compile(r"(``.+?``|`[^`]+`)", re.DOTALL)


def escaped(docstring: str) -> str:
    """Return the text with its stars and bars escaped, but for those in code."""
    parts = _CODE.split(docstring)
    return "".join(part if number % 2 else re.sub(r"([*|])", r"\\\1", part) for number, part in enumerate(parts))


def setup(app: Sphinx) -> dict[str, Any]:
    """Let Sphinx read every docstring so."""
    app.connect("autodoc-process-docstring", _process, priority=1)
    return {"parallel_read_safe": True}


def _process(app: Sphinx, what: str, name: str, item: object, options: object, lines: list[str]) -> None:
    text = escaped("\n".join(lines))
    if what == "attribute":  # before a colon outside of double quotes, Sphinx would read a type
        text = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", text)
    lines[:] = text.split("\n")
