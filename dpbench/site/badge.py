"""A badge that an author can paste: an entry's rank among how many, at which epsilon, on what."""

from __future__ import annotations

from markupsafe import Markup

from dpbench.board.index import Entry, Standing
from dpbench.site import text, view

WIDTH = 6.0  # of a letter, on average; `textLength` fits the words to the box whatever the font
BADGE = Markup("""\
<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="20" role="img" aria-label="dpbench: {said}">
<title>dpbench: {said}</title>
<rect width="58" height="20" rx="3" fill="#33373d"/>
<rect x="54" width="{box}" height="20" rx="3" fill="#3e6cbe"/><path d="M54 0h4v20h-4z" fill="#3e6cbe"/>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="6" y="14" textLength="44">dpbench</text><text x="62" y="14" textLength="{length}">{said}</text></g>
</svg>
""")


def badge(place: str, standing: Standing) -> bytes:
    """Return the badge of an entry at a place of a board, as SVG."""
    said = text.shown(f"{place} at ε {text.budget(standing.board.epsilon)} on {view.title(standing)}", 160)
    length = round(WIDTH * len(said))
    return BADGE.format(whole=length + 70, box=length + 16, length=length, said=said).encode("utf-8", "replace")


def place(entry: Entry, count: int, tied: bool) -> str:
    """Return an entry's place among `count` ranked ones, in words.

    An entry without a rank is what it is held as: a line, or not ranked.
    """
    if entry.rank is None:
        return view.LINES.get(entry.role, "not ranked")
    return f"rank {entry.rank}{' (tied)' if tied else ''} of {count}"
