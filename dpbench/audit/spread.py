"""Test how large the noise is in each part of an answer: by coordinate, column, class, stretch, block and step.

A sum of squares over all coordinates does not reveal that 10 of 650 coordinates lack noise; the sum over one column
does. Each sum is exactly chi-square, with as many degrees of freedom as it has numbers. A stretch is a run of
consecutive coordinates. Numbers near 0 are counted for the same groups: if a release has one step, these counts best
reveal coordinates without noise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from dpbench.audit.extremes import SmallestPValue
from dpbench.records.audit import StatisticalCheck

NEAR_ZERO = (2.0**-8, 2.0**-20)  # what counts as 0, in standard deviations, unless floats are coarser
MOST_PERIOD = 8  # steps are also taken together whose numbers leave the same remainder


class NoiseScaleTest:
    """Tests the size of noise by group: collects squares of standardised noise, and counts numbers near 0."""

    def __init__(self, who: str, zeros: bool) -> None:
        self._who, self._zeros = who, zeros
        self._squares: dict[tuple[object, ...], np.ndarray] = {}
        self._near: dict[tuple[object, ...], np.ndarray] = {}
        self._steps: defaultdict[tuple[object, ...], list[float]] = defaultdict(list)
        self._coarsest: defaultdict[tuple[object, ...], float] = defaultdict(float)

    def add(self, release: str, block: int, parts: np.ndarray, float_spacing: np.ndarray | float) -> None:
        """Add a block's noise in one or more answers, (answers, ...), and how coarse its floats are.

        Noise and coarseness are in standard deviations.
        """
        key = (release, block, parts.shape[1:])
        squares = np.square(parts)
        self._steps[key] += squares.reshape(len(parts), -1).sum(1).tolist()
        self._squares[key] = self._squares.get(key, 0.0) + squares.sum(0)
        self._coarsest[key] = max(self._coarsest[key], float(np.max(float_spacing, initial=0.0)))
        if self._zeros:
            self._count_numbers_near_zero(key, parts, float_spacing)

    def _count_numbers_near_zero(
        self, key: tuple[object, ...], parts: np.ndarray, float_spacing: np.ndarray | float
    ) -> None:
        if key not in self._near:
            self._near[key] = np.zeros((len(NEAR_ZERO), 2, *parts.shape[1:]))
        sizes = np.abs(parts)
        for place, near in enumerate(NEAR_ZERO):
            within = np.maximum(
                near, 2 * np.broadcast_to(float_spacing, parts.shape)
            )  # a number may be off by half of it
            self._near[key][place, 0] += (sizes <= within).sum(0)
            self._near[key][place, 1] += within.sum(0)  # above 1.25 * within * 2 * density(0)

    def checks(self) -> Iterator[StatisticalCheck]:
        """Yield the tests of how large the noise is in each group of numbers."""
        sizes: defaultdict[str, SmallestPValue] = defaultdict(SmallestPValue)
        zeros: defaultdict[str, SmallestPValue] = defaultdict(SmallestPValue)
        unequal: defaultdict[str, SmallestPValue] = defaultdict(SmallestPValue)
        for key, squares in self._squares.items():
            steps = np.array(self._steps[key])
            for kind, sums, each in sum_coordinate_groups(squares):
                numbers = each * len(steps)  # one of a million may be rounded to 0; no two of a group will
                sizes[kind].add_sums_of_squares(sums, numbers, self._coarsest[key] if numbers == 1 else 0.0)
            add_difference_test(unequal["coordinate"], squares.ravel(), len(steps))
            add_difference_test(unequal["step"], steps, squares.size)
            for sums, each in sum_step_groups(steps):
                sizes["step"].add_sums_of_squares(sums, each * squares.size)
        for key, near in self._near.items():
            for found, expected in near:
                pairs = zip(sum_coordinate_groups(found), sum_coordinate_groups(expected), strict=True)
                for (kind, counts, each), (_, means, _) in pairs:
                    zeros[kind].add_event_counts(counts, means, each * len(self._steps[key]))
        for kind, extreme in sizes.items():
            yield from extreme.test(f"size of the noise {self._who}, {kind} by {kind}")
        for kind, extreme in unequal.items():
            yield from extreme.test(f"differences in size of the noise {self._who}, {kind} by {kind}")
        for kind, extreme in zeros.items():
            yield from extreme.test(f"zeros in the noise {self._who}, {kind} by {kind}")


def add_difference_test(smallest: SmallestPValue, sums: np.ndarray, value_count: int) -> None:
    """Add to `smallest` a test of whether sums of `value_count` squares differ: the sum of their squared normal scores.

    Many small differences add up in this sum, so it detects noise whose scale varies a little between positions.
    """
    from scipy.special import chdtr, ndtri

    if len(sums) > 1:
        scores = ndtri(np.clip(chdtr(value_count, sums), 1e-300, 1 - 1e-16))
        smallest.add_sums_of_squares(np.array([np.vdot(scores, scores)]), len(sums))


def sum_coordinate_groups(values: np.ndarray) -> Iterator[tuple[str, np.ndarray, int]]:
    """Yield, for each way to group coordinates, its name, the sums (groups,), and the coordinates per group."""
    rows = values.reshape(len(values), -1) if values.ndim > 1 else values.reshape(1, -1)
    classes, columns = rows.shape
    yield "coordinate", rows.ravel(), 1
    if classes > 1 and columns > 1:
        yield "column", rows.sum(0), classes
        yield "class", rows.sum(1), columns
    for sums, each in sum_consecutive_blocks(rows.ravel()):
        yield "stretch", sums, each
    yield "block", rows.sum(keepdims=True).ravel(), rows.size


def sum_step_groups(values: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """Yield sums over groups of steps, with the group size: single steps, consecutive steps, every k-th step."""
    yield values, 1
    yield from sum_consecutive_blocks(values)
    for period in range(2, min(MOST_PERIOD, len(values) // 2) + 1):
        whole = values[: len(values) // period * period].reshape(-1, period)
        yield whole.sum(0), len(whole)


def sum_consecutive_blocks(values: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """Yield sums over blocks of 2, 4, 8, ... consecutive values, with the block length, while there are two blocks."""
    each, sums = 1, values
    while len(sums) >= 4:
        sums, each = sums[: len(sums) // 2 * 2].reshape(-1, 2).sum(1), 2 * each
        yield sums, each
