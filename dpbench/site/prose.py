"""Docstrings as paragraphs of prose, with links to the arXiv papers that they cite."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

from markupsafe import Markup, escape

from dpbench.support.paths import PACKAGE

_ARXIV = re.compile(r"arXiv:([0-9]{4}\.[0-9]{4,5})")
_BREAK = re.compile(r"\n\n|\n(?=(?:[0-9]+\.|-) )")
_CODE = re.compile(r"`([^`\n]+)`")
ARXIV_ABSTRACTS = "https://arxiv.org/abs/"


def render_paragraphs(documented: object) -> list[Markup]:
    """Return the paragraphs of a docstring as HTML, with links to papers; each item of a list is a paragraph."""
    parts = (" ".join(part.split()) for part in _BREAK.split(inspect.getdoc(documented) or ""))
    return [render_paragraph(re.sub("^- ", "• ", part)) for part in parts if part]


def list_paper_links(*texts: str | None) -> list[str]:
    """Return the distinct arXiv addresses of the papers that these texts cite."""
    found = [number for text in texts for number in _ARXIV.findall(text or "")]
    return [ARXIV_ABSTRACTS + number for number in dict.fromkeys(found)]


def read_docstrings(cls: type) -> tuple[str, str]:
    """Return the docstrings of a class and of its module."""
    return inspect.getdoc(cls) or "", inspect.getdoc(sys.modules[cls.__module__]) or ""


def find_source_path(cls: type) -> str:
    """Return the path of a class's file within dpbench's repository.

    The path is empty if dpbench does not run from a clone, or if the file is elsewhere.
    """
    root = PACKAGE.parent
    try:
        file = Path(inspect.getfile(cls))
    except (TypeError, OSError):
        return ""
    kept = (root / "plugins").is_dir() and file.is_relative_to(root)
    return file.relative_to(root).as_posix() if kept else ""


def render_paragraph(text: str) -> Markup:
    """Return a paragraph as HTML: code in backticks marked, papers linked."""
    marked = _CODE.sub(r"<code>\1</code>", str(escape(text)))
    linked = _ARXIV.sub(rf'<a href="{ARXIV_ABSTRACTS}\1" rel="noreferrer">arXiv:\1</a>', marked)
    return Markup(linked)
