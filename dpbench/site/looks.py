"""What a learner looks like, on every page and in every chart: one colour and one shape.

Eight colours, each with a form for light and for dark paper, are told apart by readers who see no red, no green or no
blue; nine shapes repeat out of step with them, so that seventy-two learners differ. Lines that are no entries (public
labels alone, no privacy) are grey and hollow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

LIGHT = ("#3e6cbe", "#c88362", "#00583d", "#b92285", "#886f22", "#249cdc", "#302464", "#481600")
DARK = ("#4668b4", "#ff851c", "#6ac496", "#b77184", "#fadf3e", "#86dfff", "#a796f9", "#cb2e12")


@dataclass(frozen=True)
class Shape:
    """A marker: matplotlib's name of it, and its outline around (0, 0) within a radius of 5."""

    marker: str
    path: str


SHAPES = (
    Shape("o", "M-4.2 0a4.2 4.2 0 1 0 8.4 0a4.2 4.2 0 1 0 -8.4 0z"),
    Shape("s", "M-3.8 -3.8h7.6v7.6h-7.6z"),
    Shape("^", "M0 -4.8L4.8 3.8H-4.8z"),
    Shape("D", "M0 -5.2L5.2 0L0 5.2L-5.2 0z"),
    Shape("v", "M0 4.8L4.8 -3.8H-4.8z"),
    Shape("P", "M-1.6 -4.8h3.2v3.2h3.2v3.2h-3.2v3.2h-3.2v-3.2h-3.2v-3.2h3.2z"),
    Shape("<", "M-4.8 0L3.8 4.8V-4.8z"),
    Shape("X", "M-4.6 -2.3L-2.3 -4.6L0 -2.3L2.3 -4.6L4.6 -2.3L2.3 0L4.6 2.3L2.3 4.6L0 2.3L-2.3 4.6L-4.6 2.3L-2.3 0z"),
    Shape(">", "M4.8 0L-3.8 4.8V-4.8z"),
)


@dataclass(frozen=True)
class Look:
    """A learner's place among colours and shapes; `colour` None for a line that is no entry."""

    colour: int | None
    shape: Shape
    turn: int = 0  # how often all colours were taken before: lines of another turn are dashed

    @property
    def css(self) -> str:
        """The class that colours it."""
        return "ref" if self.colour is None else f"c{self.colour}"

    @property
    def mark(self) -> Markup:
        """The shape by itself, as large as a letter."""
        outline = Markup(
            '<svg class="mark {}" viewBox="-6 -6 12 12" aria-hidden="true" focusable="false"><path d="{}"/></svg>'
        )
        return outline.format(self.css, self.shape.path)


REFERENCE = Look(None, SHAPES[3])


def looks(entries: Iterable[str], references: Iterable[str] = ()) -> Mapping[str, Look]:
    """Return the look of each learner by name: those of entries in order of their names, references all alike."""
    ranked = sorted(set(entries))
    found = {
        name: Look(place % len(LIGHT), SHAPES[place % len(SHAPES)], place // len(LIGHT))
        for place, name in enumerate(ranked)
    }
    return dict.fromkeys(references, REFERENCE) | found


def style() -> str:
    """Return the colours as custom properties of CSS."""
    pairs = "".join(
        f"--c{place}:light-dark({pair[0]},{pair[1]});" for place, pair in enumerate(zip(LIGHT, DARK, strict=True))
    )
    classes = "".join(f".c{place}{{--c:var(--c{place})}}" for place in range(len(LIGHT)))
    return f":root{{{pairs}}}{classes}.ref{{--c:var(--quiet)}}\n"


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return places as near to `wanted` as keeps them `gap` apart between `low` and `high`, in the same order.

    >>> spread([1.0, 1.0, 5.0], 1.0, 0.0, 9.0)
    [0.5, 1.5, 5.0]
    """
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    groups: list[tuple[float, list[int]]] = []  # middle, members
    for place in order:
        groups.append((wanted[place], [place]))
        while len(groups) > 1 and _ends(groups[-2], gap)[1] + gap > _ends(groups[-1], gap)[0]:
            members = groups[-2][1] + groups[-1][1]
            middle = sum(wanted[one] for one in members) / len(members)
            groups[-2:] = [(middle, members)]
        half = gap * (len(groups[-1][1]) - 1) / 2
        groups[-1] = (min(max(groups[-1][0], low + half), high - half), groups[-1][1])
    found = [0.0] * len(wanted)
    for group in groups:
        first = _ends(group, gap)[0]
        for step, place in enumerate(group[1]):
            found[place] = first + step * gap
    return found


def _ends(group: tuple[float, list[int]], gap: float) -> tuple[float, float]:
    half = gap * (len(group[1]) - 1) / 2
    return group[0] - half, group[0] + half
