"""Colours and marks: a learner has the same colour and mark on every page and in every figure; heat maps share a scale.

There are eight colours, each with a variant for light and for dark paper. Readers who are red-, green- or blue-blind
can distinguish all eight. Eight colours and nine marks give seventy-two styles. References (public labels alone, no
privacy) are grey and hollow.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from markupsafe import Markup

LIGHT = ("#3e6cbe", "#c88362", "#00583d", "#b92285", "#886f22", "#249cdc", "#302464", "#481600")
DARK = ("#4668b4", "#ff851c", "#6ac496", "#b77184", "#fadf3e", "#86dfff", "#a796f9", "#cb2e12")
INK, QUIET, LINE, PAPER = "#1a1c1f", "#545a63", "#dcdfe3", "#ffffff"  # those of light pages
DARK_QUIET, DARK_PAPER = "#a0a6ae", "#15171a"  # those of dark ones
HEAT, SHADES = "#124e78", (1.0, 0.5, 0.41, 0.33, 0.26, 0.19, 0.13, 0.08, 0.04)  # shares of the colour: 0 is best


SALT = 7290  # with it dpbench's learners differ, and no three of those on a board share a colour
FIXED_INDICES = {"public-origin": 0}  # which the salt, chosen before, would give the colour of two others


@dataclass(frozen=True)
class Marker:
    """A mark: its matplotlib name, its SVG path (centre (0, 0), radius 5), and its characters in text."""

    marker: str
    path: str
    letters: str  # filled, hollow


SHAPES = (
    Marker("o", "M-4.2 0a4.2 4.2 0 1 0 8.4 0a4.2 4.2 0 1 0 -8.4 0z", "●○"),
    Marker("s", "M-3.8 -3.8h7.6v7.6h-7.6z", "■□"),
    Marker("^", "M0 -4.8L4.8 3.8H-4.8z", "▲△"),
    Marker("D", "M0 -5.2L5.2 0L0 5.2L-5.2 0z", "◆◇"),
    Marker("v", "M0 4.8L4.8 -3.8H-4.8z", "▼▽"),
    Marker("P", "M-1.6 -4.8h3.2v3.2h3.2v3.2h-3.2v3.2h-3.2v-3.2h-3.2v-3.2h3.2z", "✚"),
    Marker("<", "M-4.8 0L3.8 4.8V-4.8z", "◀◁"),
    Marker("X", "M-4.6 -2.3L-2.3 -4.6L0 -2.3L2.3 -4.6L4.6 -2.3L2.3 0L4.6 2.3L2.3 4.6L0 2.3L-2.3 4.6L-4.6 2.3L-2.3 0z",
          "✖"),
    Marker(">", "M4.8 0L-3.8 4.8V-4.8z", "▶▷"),
)  # fmt: skip


@dataclass(frozen=True)
class LearnerStyle:
    """Colour and mark of a learner; references have no colour."""

    colour: int | None
    shape: Marker
    hollow: bool = False  # a further line or row of the learner, with other settings

    @property
    def css(self) -> str:
        """The CSS class of the colour on a page."""
        return "ref" if self.colour is None else f"c{self.colour}"

    @property
    def hex(self) -> str:
        """The colour on light paper."""
        return QUIET if self.colour is None else LIGHT[self.colour]

    @property
    def letter(self) -> str:
        """The mark as a character; a hollow mark without a hollow character gets the filled one."""
        return self.shape.letters[-1 if self.hollow else 0]

    @property
    def terminal_colour(self) -> str:
        """The colour for `rich`, with its own background, because the terminal's background is unknown."""
        return f"{DARK_QUIET if self.colour is None else DARK[self.colour]} on {DARK_PAPER}"

    @property
    def mark(self) -> Markup:
        """The mark as SVG, as large as a letter."""
        outline = Markup(
            '<svg class="mark {}" viewBox="-6 -6 12 12" aria-hidden="true" focusable="false"><path d="{}"/></svg>'
        )
        return outline.format(f"{self.css} hollow" if self.hollow else self.css, self.shape.path)


REFERENCE = LearnerStyle(None, SHAPES[3], hollow=True)


def make_style(index: int) -> LearnerStyle:
    """Return the style of a learner, or of another line, by its index."""
    return LearnerStyle(index % len(LIGHT), SHAPES[index % len(SHAPES)])


def assign_learner_styles(names: Iterable[str], references: Iterable[str] = ()) -> dict[str, LearnerStyle]:
    """Return the style of each learner. The style depends on the name, so a learner looks the same everywhere.

    If two names give the same style, the alphabetically later learner gets the next free one. The names of dpbench's
    own learners all give different styles. Each name in `references` gets the style `REFERENCE`.
    """
    found, taken = dict.fromkeys(references, REFERENCE), set[LearnerStyle]()
    for name in sorted(set(names)):
        drawn = int.from_bytes(hashlib.sha256(f"{SALT}{name}".encode("utf-8", "surrogatepass")).digest()[:4])
        place = FIXED_INDICES.get(name, drawn)
        styles = (make_style(place + step) for step in range(len(LIGHT) * len(SHAPES)))
        found[name] = next((style for style in styles if style not in taken), make_style(place))
        taken.add(found[name])
    return found


def assign_row_styles(labels: Iterable[str], references: Collection[str] = ()) -> dict[str, LearnerStyle]:
    """Return the style of each row or line whose label names a learner and its settings.

    If a learner has several rows, all but the row with the shortest label (the default settings) are hollow.
    """
    entries: dict[str, list[str]] = {}
    for label in labels:
        if label not in references:
            entries.setdefault(parse_learner_name(label), []).append(label)
    styles, found = assign_learner_styles(entries), dict.fromkeys(references, REFERENCE)
    for learner, rows in entries.items():
        first = min(rows, key=len)
        found |= {label: replace(styles[learner], hollow=label != first) for label in rows}
    return found


def parse_learner_name(label: str) -> str:
    """Return the learner's name in a label.

    >>> parse_learner_name("pillar (tuned)"), parse_learner_name("dp-sgd:steps=3, 2 seeds")
    ('pillar', 'dp-sgd')
    """
    return re.split(r"[ :,(]", label, maxsplit=1)[0]


def heat_map_colour(shade: int) -> str:
    """Return the hexadecimal colour of a heat map's shade on white paper.

    >>> heat_map_colour(0), heat_map_colour(1)
    ('#124e78', '#88a6bc')
    """
    parts = (int(HEAT[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(255 - SHADES[shade] * (255 - part)):02x}" for part in parts)


def make_colour_stylesheet() -> str:
    """Return the colours as CSS custom properties."""
    both = enumerate(zip(LIGHT, DARK, strict=True))
    root = "".join(f"--c{place}:light-dark({light},{dark});" for place, (light, dark) in both)
    classes = "".join(f".c{place}{{--c:var(--c{place})}}" for place in range(len(LIGHT)))
    heat = "".join(f".heat .h{place}{{--share:{share:.0%}}}" for place, share in enumerate(SHADES))
    return f":root{{{root}}}{classes}.ref{{--c:var(--quiet)}}{heat}\n"
