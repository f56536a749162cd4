"""The x axis of a figure: numbers at their values, followed by words, infinity and cells without an x value."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from dpbench.analysis.plots import Plot, X, format_axis_value

WORD_GAP = 0.15  # between neighbouring words, as a share of the numbers' range
CHARACTER_WIDTH = 0.07  # inches, width at the size of tick labels


@dataclass(frozen=True)
class XAxis:
    """The x axis of a figure: the coordinate of each x value."""

    coordinates: dict[X, float]  # x -> coordinate, from left to right
    words: tuple[X, ...]  # the values right of the numbers
    log: bool

    def labels(self, plot: Plot) -> list[str]:
        """Return a tick label for each value."""
        words = [(plot.without or "") if x is None else format_axis_value(x) for x in self.coordinates]
        return [textwrap.fill(word, 10, break_long_words=False, break_on_hyphens=False) for word in words]

    @property
    def number_word_boundary(self) -> float | None:
        """The coordinate halfway between numbers and words; None if the axis has only one of the two."""
        if not self.numbers or not self.words:
            return None
        last, first = self.coordinates[self.numbers[-1]], self.coordinates[self.words[0]]
        return math.sqrt(last * first) if self.log else (last + first) / 2

    @property
    def limits(self) -> tuple[float, float]:
        """The ends of the axis, with room for the outermost markers."""
        low, high = min(self.coordinates.values()), max(self.coordinates.values())
        if not self.log:
            room = 0.5 if not self.numbers else (high - low) * 0.07 or 0.5
            return low - room, high + room
        room = (high / low) ** 0.07 if high > low else 2.0
        return low / room, high * room

    @property
    def numbers(self) -> tuple[X, ...]:
        """The numbers on the axis, in ascending order."""
        return tuple(x for x in self.coordinates if x not in self.words)

    def has_touching_labels(self, plot: Plot, inches: float) -> bool:
        """Return whether tick labels would touch on an axis that is `inches` long."""
        ticks = [math.log(x) if self.log else x for x in self.coordinates.values()]
        widths = [CHARACTER_WIDTH * max(map(len, label.split("\n"))) for label in self.labels(plot)]
        span = (ticks[-1] - ticks[0]) * 1.14 or 1  # with the room of `limits`
        return any(
            (right - left) / span * inches < (width + following) / 2 + CHARACTER_WIDTH
            for (left, right), (width, following) in zip(pairwise(ticks), pairwise(widths), strict=True)
        )


def make_x_axis(values: Iterable[X], log: bool) -> XAxis:
    """Return the axis for these values: ascending numbers, then words in the given order, infinity and None."""
    distinct = list(dict.fromkeys(values))
    numbers = sorted(x for x in distinct if isinstance(x, float) and math.isfinite(x))
    words = [x for x in distinct if isinstance(x, str)]
    beside = [*words, *(x for x in distinct if x == math.inf), *(x for x in distinct if x is None)]
    coordinates: dict[X, float] = {x: x for x in numbers}
    if not numbers:
        return XAxis({x: float(index) for index, x in enumerate(beside)}, tuple(beside), False)
    low, high = numbers[0], numbers[-1]
    for step, x in enumerate(beside, 1):
        if log:
            coordinates[x] = high * ((high / low) ** WORD_GAP if high > low else 2.0) ** step
        else:
            coordinates[x] = high + ((high - low) * WORD_GAP or 1.0) * step
    return XAxis(coordinates, tuple(beside), log)
