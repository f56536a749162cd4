"""Docstrings as prose: paragraphs, and links to the papers that they cite by arXiv's numbers."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

from markupsafe import Markup, escape

from dpbench.support.paths import PACKAGE

_ARXIV = re.compile(r"arXiv:([0-9]{4}\.[0-9]{4,5})")
_BREAK = re.compile(r"\n\n|\n(?=[0-9]+\. )")
_CODE = re.compile(r"`([^`\n]+)`")
ABSTRACTS = "https://arxiv.org/abs/"


def paragraphs(documented: object) -> list[Markup]:
    """Return the paragraphs of a docstring, code marked and papers linked; each point of a numbered list is one."""
    said = inspect.getdoc(documented) or ""
    return [mark(" ".join(part.split())) for part in _BREAK.split(said) if part.strip()]


def papers(*said: str | None) -> list[str]:
    """Return the addresses of the papers that some texts cite, each once."""
    found = [number for one in said for number in _ARXIV.findall(one or "")]
    return [ABSTRACTS + number for number in dict.fromkeys(found)]


def about(cls: type) -> tuple[str, str]:
    """Return the docstrings of a class and of its module."""
    return inspect.getdoc(cls) or "", inspect.getdoc(sys.modules[cls.__module__]) or ""


def file_of(cls: type) -> str:
    """Return the file of a class within the repository of dpbench; empty where it is elsewhere."""
    root = PACKAGE.parent
    try:
        file = Path(inspect.getfile(cls))
    except (TypeError, OSError):
        return ""
    kept = (root / "plugins").is_dir() and file.is_relative_to(root)
    return file.relative_to(root).as_posix() if kept else ""


def mark(text: str) -> Markup:
    """Return a paragraph as HTML: code in backticks marked, papers linked."""
    marked = _CODE.sub(r"<code>\1</code>", str(escape(text)))
    linked = _ARXIV.sub(rf'<a href="{ABSTRACTS}\1" rel="noreferrer">arXiv:\1</a>', marked)
    return Markup(linked)
