"""Test that samples are Poisson: their sizes, which rows they contain, and which rows they contain together.

Under Poisson sampling, each row is included with the same chance, whatever is known of other rows. This also holds for
rows at a given distance from a sampled row (pairs, clusters), and for rows that were in an earlier sample. Private rows
are tested separately from the canaries in the data, which come after the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dpbench.audit.extremes import SmallestPValue
from dpbench.records.audit import SampleStatistics, StatisticalCheck

MOST_ROWS = 2**15  # rows, and canaries, whose pairs are looked at
NEAR_DISTANCES = 32  # distances between rows that are all looked at; beyond, powers of two
MOST_LOOKUPS = 2e8  # inclusions that comparing samples with earlier ones may look up
HISTORY_ROWS = 2**13  # rows, and canaries, whose history is kept
HISTORY_STEPS, TESTED_STEPS = 512, 64  # steps of it, and how many of its second half are foretold by those before
FEWEST_INCLUSIONS = (
    2_000  # expected inclusions, less the certain ones, from which on the spread of counts is nearly normal
)


class SampleInclusionCounts:
    """Records which of `size` members are in the samples of one release, step by step."""

    def __init__(self, size: int, rate: float, steps: int) -> None:
        self.size, self.rate, self.steps = size, rate, 0
        self.counts = np.zeros(size, np.int64)
        self._wide = min(size, MOST_ROWS)
        self._lags = int(max(1, min(steps - 1, MOST_LOOKUPS / max(1.0, self._wide * rate * steps))))
        self._kept = np.zeros((self._lags, self._wide), bool)
        self._lag_hits, self._lag_trials = np.zeros(self._lags), np.zeros(self._lags)
        far = 2 ** np.arange(NEAR_DISTANCES.bit_length(), 16)
        self._distances = np.concatenate([np.arange(1, NEAR_DISTANCES + 1), far[far < self._wide]])
        self._distances = self._distances[self._distances < self._wide]
        self._hits, self._trials = np.zeros(len(self._distances)), np.zeros(len(self._distances))
        self._pairs = SmallestPValue()
        self._history: list[np.ndarray] = []

    def add(self, sample: np.ndarray) -> None:
        """Add the sample of the next step: positions, ascending."""
        sample = sample[: np.searchsorted(sample, self.size)]  # a broken core may know of more: sizes tell
        self.counts[sample] += 1
        near = sample[: np.searchsorted(sample, self._wide)]
        mask = np.zeros(self._wide, bool)
        mask[near] = True
        for place, distance in enumerate(self._distances):
            self._hits[place] += mask[near[np.searchsorted(near, distance) :] - distance].sum()
            self._trials[place] += np.searchsorted(near, self._wide - distance)
        before = min(self.steps, self._lags)
        if before:
            places = (self.steps - 1 - np.arange(before)) % self._lags
            hits, trials = self._kept[:, near].sum(1)[places], self._kept.sum(1)[places]
            self._lag_hits[:before] += hits
            self._lag_trials[:before] += trials
            self._pairs.add_hit_counts(hits, trials, self.rate)
        self._kept[self.steps % self._lags] = mask
        if self.steps < HISTORY_STEPS:
            self._history.append(mask[:HISTORY_ROWS])
        self.steps += 1

    def spread(self) -> float | None:
        """Return the z-score of the variance of the members' counts; None for fewer than two members."""
        if self.size < 2:
            return None
        variance = self.rate * (1 - self.rate)
        squares = float(np.square(self.counts - self.steps * self.rate).sum()) / (self.steps * variance)
        kurtosis = (1 - 6 * variance) / (self.steps * variance)
        return (squares - self.size) / math.sqrt(self.size * (2 + kurtosis))

    def checks(self, location: str, release: str) -> Iterator[StatisticalCheck]:
        """Yield the tests of how often members are sampled: one by one, together with others, and in several steps."""
        often, distances, lags = SmallestPValue(), SmallestPValue(), SmallestPValue()
        if self.size:
            often.add_hit_counts(self.counts, np.full(self.size, self.steps), self.rate)
        distances.add_hit_counts(self._hits, self._trials, self.rate)
        lags.add_hit_counts(self._lag_hits, self._lag_trials, self.rate)
        partners = SmallestPValue()
        partners.add_hit_counts(*count_hits_of_row_pairs(np.array(self._history)), self.rate)
        yield from partners.test(f"{location} that are in the samples of {release!r} with those they were with before")
        yield from often.test(f"how often {location} are in the samples of {release!r}, one by one")
        yield from distances.test(
            f"{location} that are in the samples of {release!r} together, by how far they are apart"
        )
        yield from lags.test(f"{location} that are in later samples of {release!r} again, by steps between")
        yield from self._pairs.test(f"{location} that are in two samples of {release!r}, pair by pair")


def count_hits_of_row_pairs(history: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pair rows with the same history; return hits (1,) and trials (1,) of the pairs.

    Trials count how often a pair's first row is sampled; hits count how often the second row is then sampled too. Rows
    are sorted by their history (steps, rows) before the tested step, and neighbours are paired. Rows that are always
    sampled together thus form pairs, whichever rows these are.
    """
    steps, hits, trials = len(history), 0, 0
    later = np.unique(np.linspace(steps // 2, steps - 1, TESTED_STEPS).astype(int)) if steps > 1 else np.empty(0, int)
    for step in later:
        packed = np.ascontiguousarray(np.packbits(history[:step], axis=0).T)  # (rows, bytes)
        order = np.argsort(packed.view(f"V{packed.shape[1]}").ravel(), kind="stable")
        first, second = order[: len(order) // 2 * 2].reshape(-1, 2).T
        chosen = history[step][first]
        hits, trials = hits + int(history[step][second][chosen].sum()), trials + int(chosen.sum())
    return np.array([hits]), np.array([trials])


@dataclass
class SampleCollector:
    """The samples of one release: their sizes, and which rows and canaries are in them."""

    rate: float
    size: int  # of the private split, in units
    member: np.ndarray  # (m,) bool, of the canaries
    planned: int  # steps
    labels: np.ndarray | None  # (n,) of the private rows, where each is a unit of its own
    steps: int = 0
    whole: float = 0.0
    rows: float = 0.0
    _rows: SampleInclusionCounts = field(init=False)
    _canaries: SampleInclusionCounts = field(init=False)

    def __post_init__(self) -> None:
        """Create the counters for sampled rows and sampled canaries."""
        self._rows = SampleInclusionCounts(self.size, self.rate, self.planned)
        self._canaries = SampleInclusionCounts(int(self.member.sum()), self.rate, self.planned)
        self._ordinal = np.cumsum(self.member) - 1  # of each canary among those in the data

    def add(self, drawn: np.ndarray, sampled: np.ndarray) -> None:
        """Add one sample, given the positions of its private rows and the coordinates of its canaries."""
        self.steps += 1
        self.whole += self._standardised_squared_deviation(len(drawn) + len(sampled), self.size + self._canaries.size)
        self.rows += self._standardised_squared_deviation(len(drawn), self.size)
        self._rows.add(drawn)
        self._canaries.add(self._ordinal[sampled])

    def summarise(self, release: str) -> SampleStatistics:
        """Return the statistics of the sample sizes and of the canaries' counts; both should be binomial."""
        return SampleStatistics(
            release=release, steps=self.steps, sizes=self.whole, rows=self.rows, counts=self._canaries.spread(),
            rate=self.rate, members=self.size + self._canaries.size, units=self.size,
        )  # fmt: skip

    def checks(self, release: str) -> Iterator[StatisticalCheck]:
        """Yield the tests of which rows and canaries are in the samples."""
        yield from self._rows.checks("private rows", release)
        yield from self._canaries.checks("canaries", release)
        z = self._rows.spread()
        if z is not None and self.size * self.steps * self.rate * (1 - self.rate) >= FEWEST_INCLUSIONS:
            p = math.erfc(abs(z) / math.sqrt(2))
            yield StatisticalCheck(
                name=f"which private rows are in the samples of {release!r}", p=p, z=z, numbers=self.size
            )
        if self.labels is not None and self.size:
            sizes, classes = np.bincount(self.labels), SmallestPValue()
            classes.add_hit_counts(np.bincount(self.labels, self._rows.counts), sizes * self.steps, self.rate)
            yield from classes.test(f"labels of the private rows in the samples of {release!r}")

    def _standardised_squared_deviation(self, sample_size: int, population_size: int) -> float:
        return (sample_size - population_size * self.rate) ** 2 / (population_size * self.rate * (1 - self.rate))
