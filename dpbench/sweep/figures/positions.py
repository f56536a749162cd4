"""Where values of x stand: numbers by their size, words and what has no x to their right, one beside the other."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from dpbench.sweep.plot import Plot, X, text

GAP = 0.15  # between neighbouring words, of the numbers' range
CHARACTER = 0.07  # inches, at the size of tick labels


@dataclass(frozen=True)
class Positions:
    """Positions on the axis."""

    of: dict[X, float]  # in the order of the axis
    words: tuple[X, ...]  # those that stand beside the numbers
    log: bool

    def labels(self, plot: Plot) -> list[str]:
        """Return a tick label for every position."""
        words = [(plot.without or "") if x is None else text(x) for x in self.of]
        return [textwrap.fill(word, 10, break_long_words=False, break_on_hyphens=False) for word in words]

    @property
    def boundary(self) -> float | None:
        """Where numbers end and words begin, if there are both."""
        if not self.numbers or not self.words:
            return None
        last, first = self.of[self.numbers[-1]], self.of[self.words[0]]
        return math.sqrt(last * first) if self.log else (last + first) / 2

    @property
    def limits(self) -> tuple[float, float]:
        """The ends of the axis, with room for the outermost marks."""
        low, high = min(self.of.values()), max(self.of.values())
        if not self.log:
            room = 0.5 if not self.numbers else (high - low) * 0.07 or 0.5
            return low - room, high + room
        room = (high / low) ** 0.07 if high > low else 2.0
        return low / room, high * room

    @property
    def numbers(self) -> tuple[X, ...]:
        """Those that stand by their size, rising."""
        return tuple(x for x in self.of if x not in self.words)

    def crowded(self, plot: Plot, inches: float) -> bool:
        """Say whether tick labels would touch on an axis of so many inches."""
        places = [math.log(position) if self.log else position for position in self.of.values()]
        widths = [CHARACTER * max(map(len, label.split("\n"))) for label in self.labels(plot)]
        span = (places[-1] - places[0]) * 1.14 or 1  # with the room of `limits`
        return any(
            (right - left) / span * inches < (width + following) / 2 + CHARACTER
            for (left, right), (width, following) in zip(pairwise(places), pairwise(widths), strict=True)
        )


def positions(values: Iterable[X], log: bool) -> Positions:
    """Return the positions of all values: numbers, then words in their order, then infinity, then what has no x."""
    distinct = list(dict.fromkeys(values))
    numbers = sorted(x for x in distinct if isinstance(x, float) and math.isfinite(x))
    words = [x for x in distinct if isinstance(x, str)]
    beside = [*words, *(x for x in distinct if x == math.inf), *(x for x in distinct if x is None)]
    of: dict[X, float] = {x: x for x in numbers}
    if not numbers:
        return Positions({x: float(place) for place, x in enumerate(beside)}, tuple(beside), False)
    low, high = numbers[0], numbers[-1]
    for place, x in enumerate(beside, 1):
        if log:
            of[x] = high * ((high / low) ** GAP if high > low else 2.0) ** place
        else:
            of[x] = high + ((high - low) * GAP or 1.0) * place
    return Positions(of, tuple(beside), log)
