"""Hypothesis classes on public points: one representative for each labelling of the points by the class.

A private example lies in a cell between public points, and each representative is constant on a cell. So
representatives are stored as a public table of answers by cell or, for half-planes and stumps, as a function of rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dpbench import SpecError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CellCandidates:
    """Candidate hypotheses that are constant on cells: a table of answers by cell."""

    cell: Callable[[Tensor], Tensor]  # (c, d) -> (c,) int64
    yes: Tensor  # (cells, N) bool

    def answer(self, x: Tensor, candidate: int) -> Tensor:
        """Return the answers of one candidate for rows x, (c,) bool."""
        return self.yes[self.cell(x), candidate]

    def keep(self, kept: Tensor) -> CellCandidates:
        """Return the candidates with these indices."""
        return CellCandidates(self.cell, self.yes[:, kept])


@dataclass(frozen=True)
class RowCandidates:
    """Candidate hypotheses that a function evaluates: it maps rows to yes or no for each candidate."""

    answers: Callable[[Tensor], Tensor]  # (c, d) -> (c, N) bool
    count: int  # N

    def answer(self, x: Tensor, candidate: int) -> Tensor:
        """Return the answers of one candidate for rows x, (c,) bool."""
        return self.answers(x)[:, candidate]

    def keep(self, kept: Tensor) -> RowCandidates:
        """Return the candidates with these indices."""
        return RowCandidates(lambda x: self.answers(x)[:, kept], len(kept))


class HypothesisClass(ABC):
    """A class of finite VC dimension; its hypotheses answer yes or no."""

    dimension: ClassVar[int | None]  # features that it takes; None for any number
    vc: ClassVar[int]
    points: ClassVar[int] = 2**20  # public points that are used at most: more patterns than can be held

    @abstractmethod
    def max_representatives(self, points: int, features: int) -> int:
        """Return an upper bound on the number of representatives for this many points."""

    @abstractmethod
    def representatives(self, points: Tensor) -> CellCandidates | RowCandidates:
        """Return the representatives for distinct public points (m, d)."""


class ThresholdClass(HypothesisClass):
    """Thresholds x >= t on the line; m points give m + 1 patterns."""

    dimension, vc = 1, 1

    def max_representatives(self, points: int, features: int) -> int:
        """Return the number of points plus one."""
        return points + 1

    def representatives(self, points: Tensor) -> CellCandidates:
        """Return thresholds below, between and above the points."""
        import torch

        cell, cells = _make_cell_map(points[:, 0])
        place = torch.arange(cells)
        return CellCandidates(lambda x: cell(x[:, 0]), place.unsqueeze(1) >= torch.arange(cells + 1))


class IntervalClass(HypothesisClass):
    """Intervals a <= x < b on the line; m points give m (m + 1) / 2 + 1 patterns."""

    dimension, vc = 1, 2

    def max_representatives(self, points: int, features: int) -> int:
        """Return the number of pairs of ends, plus one for the empty interval."""
        return points * (points + 1) // 2 + 1

    def representatives(self, points: Tensor) -> CellCandidates:
        """Return the empty interval, then the intervals whose ends lie below, between or above the points."""
        import torch

        cell, cells = _make_cell_map(points[:, 0])
        low, high = torch.triu_indices(cells + 1, cells + 1, 1)
        place = torch.arange(cells).unsqueeze(1)
        inside = (low <= place) & (place < high)
        return CellCandidates(lambda x: cell(x[:, 0]), torch.cat([torch.zeros(cells, 1, dtype=torch.bool), inside], 1))


class StumpClass(HypothesisClass):
    """Stumps: x_f >= t or its negation, for any of p features f.

    m points give 2 p (m + 1) representatives, of which the constant ones are repeated.
    """

    dimension, vc = None, 2

    def max_representatives(self, points: int, features: int) -> int:
        """Return an upper bound: points + 1 thresholds per feature, in both directions."""
        return 2 * features * (points + 1)

    def representatives(self, points: Tensor) -> RowCandidates:
        """Return thresholds between the public values of each feature; repeated values give repeated candidates."""
        import torch

        ordered = points.sort(0).values.T.contiguous()  # (p, m)
        ends = torch.full((len(ordered), 1), math.inf)
        cuts = torch.cat([-ends, _compute_midpoints(ordered), ends], 1)  # (p, m + 1)

        def answers(x: Tensor) -> Tensor:
            above = (x.unsqueeze(2) >= cuts).flatten(1)
            return torch.cat([above, ~above], 1)

        return RowCandidates(answers, 2 * cuts.numel())


class RectangleClass(HypothesisClass):
    """Axis-aligned rectangles in the plane; at most four points span the tightest rectangle of a pattern."""

    dimension, vc, points = 2, 4, 20

    def max_representatives(self, points: int, features: int) -> int:
        """Return the number of sets of up to four points, those that can touch the sides of a tightest rectangle."""
        return sum(math.comb(points, touching) for touching in range(5))

    def representatives(self, points: Tensor) -> CellCandidates:
        """Return rectangles whose sides lie halfway to the next public point outside."""
        import torch

        (column, columns), (row, rows) = _make_cell_map(points[:, 0]), _make_cell_map(points[:, 1])
        places = torch.stack([column(points[:, 0]), row(points[:, 1])], 1).tolist()  # ranks of the points
        boxes = torch.tensor(
            [(0, -1, 0, -1), *_find_tightest_rectangles(places)]
        )  # (N, 4): columns and rows, both ends inside
        x, y = torch.arange(columns)[:, None, None], torch.arange(rows)[None, :, None]
        left, right, low, high = boxes.T
        inside = (left <= x) & (x <= right) & (low <= y) & (y <= high)  # (columns, rows, N)
        return CellCandidates(lambda z: column(z[:, 0]) * rows + row(z[:, 1]), inside.flatten(0, 1))


def _find_tightest_rectangles(points: list[list[int]]) -> list[tuple[int, int, int, int]]:
    """Return the distinct bounding boxes of subsets of the points, each with a point on every side."""
    found = set()
    ordered = sorted(points)
    for first, (left, label) in enumerate(ordered):
        between: list[int] = []
        for right, other in ordered[first:]:
            between.append(other)
            low, high = min(label, other), max(label, other)
            lows, highs = ([y for y in between if y <= low], [y for y in between if y >= high])
            found |= {(left, right, bottom, top) for bottom in lows for top in highs}
    return sorted(found)


class HalfPlaneClass(HypothesisClass):
    """Half-planes: at most m^2 - m + 2 patterns (Cover), found by rotating a line past all pairs of points."""

    dimension, vc, points = 2, 3, 60

    def max_representatives(self, points: int, features: int) -> int:
        """Return Cover's bound on the number of patterns."""
        return max(2, points * points - points + 2)

    def representatives(self, points: Tensor) -> RowCandidates:
        """Return a half-plane for each pattern, from the orders of the points along a rotating line."""
        import torch

        centre, spread = points.double().mean(0), float(points.double().std().clamp(min=1e-30))
        unit = (points.double() - centre) / spread
        normals = _find_sweep_normals(unit)  # (a, 2)
        along = normals @ unit.T  # (a, m)
        ordered = along.sort(1).values
        ends = torch.full((len(ordered), 1), math.inf, dtype=torch.float64)
        offsets = torch.cat([-ends, _compute_midpoints(ordered), ends], 1)  # (a, m + 1)
        patterns = (along.unsqueeze(1) >= offsets.unsqueeze(2)).flatten(0, 1)  # (a (m + 1), m)
        _, first = _find_distinct_rows(patterns)
        normal = normals.repeat_interleave(offsets.shape[1], 0)[first]
        offset, (across, up) = offsets.flatten()[first], normal.T

        def answers(x: Tensor) -> Tensor:
            z = (x.double() - centre) / spread
            above: Tensor = z[:, :1] * across + z[:, 1:] * up >= offset  # by element: a row's bits are its own
            return above

        return RowCandidates(answers, len(first))


def _find_sweep_normals(points: Tensor) -> Tensor:
    """Return a unit normal (a, 2) for each order in which a sweeping line can meet the points."""
    import torch

    point, other = torch.triu_indices(len(points), len(points), 1)
    across = points[point] - points[other]
    swaps = torch.atan2(across[:, 0], -across[:, 1])  # at right angles to each pair, and opposite
    angles = torch.unique(torch.cat([swaps, swaps + math.pi]).remainder(2 * math.pi))
    if not len(angles):
        angles = torch.zeros(1, dtype=torch.float64)
    following = torch.cat([angles[1:], angles[:1] + 2 * math.pi])
    middle = (angles + following) / 2
    normals: Tensor = torch.stack([middle.cos(), middle.sin()], 1)
    return normals


def _find_distinct_rows(patterns: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct rows of a bool matrix, and the first index of each."""
    import torch

    distinct, place = torch.unique(patterns, dim=0, return_inverse=True)
    first = torch.full((len(distinct),), len(patterns)).scatter_reduce(0, place, torch.arange(len(patterns)), "amin")
    return distinct, first


def _compute_midpoints(ordered: Tensor) -> Tensor:
    """Return the midpoints between neighbouring values of sorted rows, never equal to the lower value."""
    import torch

    low, high = ordered[..., :-1], ordered[..., 1:]
    middle = low / 2 + high / 2
    return torch.where(middle > low, middle, high)


def _make_cell_map(points: Tensor) -> tuple[Callable[[Tensor], Tensor], int]:
    """Return a function from numbers to cells, and the number of cells; bounds are halfway between distinct points."""
    import torch

    cuts = _compute_midpoints(torch.unique(points))

    def find_cell(x: Tensor) -> Tensor:
        return torch.searchsorted(cuts, x.contiguous(), right=True)

    return find_cell, len(cuts) + 1


CLASSES: dict[str, HypothesisClass] = {
    "thresholds": ThresholdClass(), "stumps": StumpClass(), "intervals": IntervalClass(),
    "rectangles": RectangleClass(), "halfplanes": HalfPlaneClass(),
}  # fmt: skip


def find_hypothesis_class(name: str, features: int, learner: str) -> HypothesisClass:
    """Return the hypothesis class `name`, after checking that it takes this many features.

    Raises:
        SpecError: the class takes another number of features.
    """
    found = CLASSES[name]
    if found.dimension not in {None, features}:
        raise SpecError(
            f"Expected {found.dimension} feature(s) for hypotheses={name} in learner {learner!r}, got {features}. "
            "Stumps take any number."
        )
    return found
