"""Is noise fresh in every step, class, coordinate, block, release and seed: products of standard normals tell.

A sum of n products of independent standard normals has mean 0 and variance n; noise that is used twice has a product
that is 1 on average. Sums over many steps come near a normal distribution, and so does each with thousands of terms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from dpbench.records.audit import Check

WIDE = 2**15  # coordinates of the canaries that are compared from step to step
SEARCHED = 2**14  # coordinates of an answer that are searched for repetition at any distance
QUESTIONS = 32  # answers that are
FEWEST = 50  # terms of a sum that is called normal


class Tally:
    """A sum of mean 0 and known variance."""

    def __init__(self) -> None:
        self._total = self._variance = 0.0
        self._terms = 0

    def add(self, total: float, variance: float, terms: int) -> None:
        """Add to it."""
        self._total, self._variance, self._terms = self._total + total, self._variance + variance, self._terms + terms

    def test(self, name: str) -> Iterator[Check]:
        """Yield whether it is as far from 0 as chance has it; nothing where there are too few terms."""
        if self._terms >= FEWEST and self._variance > 0:
            z = self._total / math.sqrt(self._variance)
            yield Check(name=name, p=math.erfc(abs(z) / math.sqrt(2)), z=z)


class Independence:
    """Products of all that has to be independent, added up question by question."""

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}
        self._last: dict[tuple[str, int], np.ndarray] = {}
        self._sums: dict[tuple[str, int], np.ndarray] = {}
        self._first: dict[str, np.ndarray] = {}
        self._search = RepetitionSearch()

    def add(
        self, release: str, answers: Sequence[np.ndarray], padding: Sequence[np.ndarray], sampled: np.ndarray
    ) -> None:
        """Add the standardised noise of one question; see `NoiseLog.add`."""
        blocks = [*answers, *(part[:WIDE] for part in padding)]
        for part in answers:
            self._within(part)
        for place, part in enumerate(blocks[1:]):
            self._product("answers and other coordinates", blocks[place].ravel(), part.ravel())
        for part in padding:
            chosen = part[sampled]
            self._tally("noise of the examples sampled").add(float(chosen.sum()), len(chosen), len(chosen))
        whole = np.concatenate([part.ravel() for part in blocks])
        self._search.add(whole)
        self._between(release, whole)

    def add_other_seed(self, release: str, answers: Sequence[np.ndarray]) -> None:
        """Add the noise of another seed's first answers of a release, to be held against this one's."""
        if release in self._first:
            self._product("another seed", self._first[release], np.concatenate([part.ravel() for part in answers]))

    def checks(self) -> Iterator[Check]:
        """Yield all tests."""
        for name, tally in self._tallies.items():
            yield from tally.test(name)
        yield from self._search.test()

    def _within(self, part: np.ndarray) -> None:
        rows = part.reshape(len(part), -1) if part.ndim > 1 else part.reshape(1, -1)
        classes, columns = rows.shape
        if classes > 1:
            total = np.square(rows.sum(0)).sum() - np.vdot(rows, rows)
            self._tally("classes").add(total / 2, classes * (classes - 1) / 2 * columns, rows.size)
        if columns > 1:
            near = float(np.vdot(rows[:, :-1], rows[:, 1:]))
            self._tally("coordinates").add(near, classes * (columns - 1), rows.size)

    def _between(self, release: str, whole: np.ndarray) -> None:
        key = (release, len(whole))
        if release not in self._first:
            for other in self._first.values():
                self._product("releases", whole, other)
            self._first[release] = whole
        if key in self._last:
            self._product("steps that follow each other", self._last[key], whole)
            before = self._sums[key]
            self._tally("all pairs of steps").add(float(before @ whole), float(before @ before), len(whole))
            self._sums[key] = before + whole
        else:
            self._sums[key] = whole
        self._last[key] = whole

    def _product(self, name: str, one: np.ndarray, other: np.ndarray) -> None:
        count = min(len(one), len(other))
        if count:
            self._tally(name).add(float(one[:count] @ other[:count]), count, count)

    def _tally(self, name: str) -> Tally:
        return self._tallies.setdefault(name, Tally())


class RepetitionSearch:
    """Looks for noise that repeats within an answer, at whatever distance."""

    def __init__(self) -> None:
        self._sums: dict[int, np.ndarray] = {}
        self._questions: dict[int, int] = {}

    def add(self, whole: np.ndarray) -> None:
        """Add one answer's products at every distance up to half its length."""
        part = whole[:SEARCHED]
        count = self._questions.get(len(part), 0)
        if len(part) < FEWEST or count >= QUESTIONS:
            return
        spectrum = np.fft.rfft(part, 2 * len(part))
        products = np.fft.irfft(np.square(np.abs(spectrum)))[1 : len(part) // 2]
        self._sums[len(part)] = self._sums.get(len(part), 0) + products
        self._questions[len(part)] = count + 1

    def test(self) -> Iterator[Check]:
        """Yield the largest of all, in view of how many there are."""
        found = []
        for length, products in self._sums.items():
            terms = self._questions[length] * (length - np.arange(1, len(products) + 1))
            if terms.min() >= 1000:
                found.append((float(np.max(np.abs(products) / np.sqrt(terms))), len(products)))
        if found:
            chances = sum(count * math.erfc(z / math.sqrt(2)) for z, count in found)
            yield Check(name="repetition at any distance", p=min(1.0, chances), z=max(found)[0])
