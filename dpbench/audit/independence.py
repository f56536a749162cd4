"""Test whether noise is drawn afresh for every step, class, coordinate, block, release and seed, by inner products.

If u, not 0, is known before noise x is drawn, then x.u / |u| is exactly standard normal, however short x is and
whatever the learner asked; successive products are independent. Each pair of steps gives one product. The sum of the
products at one distance between steps, divided by the root of their number, is standard normal again. Nothing is
approximate, which matters for the largest of a million products. Classes and columns of an answer are tested in the
same way.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from dpbench.audit.extremes import SmallestPValue
from dpbench.records.audit import StatisticalCheck

MOST_COORDINATES = 2**15  # coordinates of the canaries that are compared with others of one answer
MOST_LAGS = 1_023  # steps back that are compared, at most
MOST_PRODUCTS = (
    2e9  # multiplications that the comparison of steps may take: for more steps, fewer coordinates are compared
)
MOST_KEPT = 2**24  # numbers of earlier steps that are kept for it
MOST_ROWS = 512  # classes or columns that are compared pair by pair
SEARCH_LENGTH = 2**14  # coordinates of an answer that are searched for repetition at any distance
MOST_SEARCHES = 32  # answers that are
FEWEST_TERMS = 4_000  # of a sum of products that is called normal


class NoiseIndependenceTest:
    """Tests by inner products, added up question by question, whether a fit's noise is independent."""

    def __init__(self, questions: int) -> None:
        self._question_count = max(1, questions)
        self._tallies: defaultdict[str, NormalSumTest] = defaultdict(NormalSumTest)
        self._steps: dict[tuple[str, str, int], StepInnerProducts] = {}
        self._within = RowInnerProducts("answers")
        self._first: dict[str, np.ndarray] = {}
        self._own, self._all = NoiseRepetitionSearch(), NoiseRepetitionSearch()

    def add(
        self, release: str, answers: Sequence[np.ndarray], padding: Sequence[np.ndarray], sampled: np.ndarray
    ) -> None:
        """Add the standardised noise of one question; see `NoiseLog.add`."""
        narrow = [part[:MOST_COORDINATES] for part in padding]
        blocks = [*answers, *narrow]
        for block, part in enumerate(answers):
            self._within.add((release, block, part.shape), part[None])
        for place, part in enumerate(blocks[1:]):
            self._add_inner_product("answers and other coordinates", blocks[place].ravel(), part.ravel())
        for part in padding:
            chosen = part[sampled]
            if len(chosen):
                self._tallies["noise of the examples sampled"].add(float(chosen.sum()) / math.sqrt(len(chosen)))
        own = np.concatenate([np.empty(0), *(part.ravel() for part in answers)])
        whole = np.concatenate([own, *narrow])
        self._own.add(own)
        self._all.add(whole)
        self._compare_with_other_releases(release, whole)
        for who, part in (("answers", own), ("other coordinates", whole[len(own) :])):
            if len(part):
                key = (release, who, len(part))
                self._steps.setdefault(key, StepInnerProducts(self._question_count, len(part))).add(part)

    def add_sums(self, noise_blocks: Sequence[np.ndarray], sums: Sequence[np.ndarray]) -> None:
        """Add a question's noise and the sums that it was added to; the noise must be independent of the sums."""
        for noise, summed in zip(noise_blocks, sums, strict=True):
            self._add_inner_product("noise and the sums behind it", summed.ravel(), noise.ravel())

    def add_noise_of_other_seed(self, release: str, answers: Sequence[np.ndarray]) -> None:
        """Add another seed's noise in the first answer of a release; it must be independent of this seed's noise."""
        if release in self._first:
            self._add_inner_product(
                "another seed", self._first[release], np.concatenate([part.ravel() for part in answers])
            )

    def checks(self) -> Iterator[StatisticalCheck]:
        """Yield the tests of all kinds of products."""
        for name, tally in self._tallies.items():
            yield from tally.test(name)
        for who in ("answers", "other coordinates"):
            yield from _test_step_independence(
                [value for (_, part, _), value in self._steps.items() if part == who], who
            )
        yield from self._within.checks()
        yield from self._own.test("repetition within answers, at any distance")
        yield from self._all.test("repetition at any distance")

    def _compare_with_other_releases(self, release: str, noise: np.ndarray) -> None:
        if release not in self._first:
            for other in self._first.values():
                self._add_inner_product("releases", other, noise)
            self._first[release] = noise

    def _add_inner_product(self, name: str, known_numbers: np.ndarray, drawn_noise: np.ndarray) -> None:
        """Add the inner product of `drawn_noise` and `known_numbers`, both cut to the shorter length."""
        count = min(len(known_numbers), len(drawn_noise))
        length = float(np.linalg.norm(known_numbers[:count]))
        if length > 0:
            self._tallies[name].add(float(known_numbers[:count] @ drawn_noise[:count]) / length)


class RowInnerProducts:
    """Collects inner products between the classes of an answer, and between its columns."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._products: dict[tuple[str, object], np.ndarray] = {}
        self._terms: defaultdict[tuple[str, object], int] = defaultdict(int)

    def add(self, key: object, parts: np.ndarray) -> None:
        """Add a block's noise in one or more answers, (answers, ...); blocks with the same key have the same shape."""
        rows = parts.reshape(len(parts), parts.shape[1] if parts.ndim > 2 else 1, -1)
        for kind, matrix in (("classes", rows.transpose(1, 0, 2)), ("columns", rows.transpose(2, 0, 1))):
            if len(matrix) > 1:
                few = matrix[:MOST_ROWS].reshape(min(len(matrix), MOST_ROWS), -1)
                self._products[kind, key] = self._products.get((kind, key), 0) + few @ few.T
                self._terms[kind, key] += few.shape[1]

    def checks(self) -> Iterator[StatisticalCheck]:
        """Yield the tests that noise is independent between classes and between columns."""
        for kind in ("classes", "columns"):
            found = [(products, self._terms[key]) for key, products in self._products.items() if key[0] == kind]
            yield from check_row_independence(found, f"{kind} of {self._who}")


class NormalSumTest:
    """Adds up standard normal numbers, and tests whether their sum or the largest number is too large."""

    def __init__(self) -> None:
        self._total, self._count, self._largest = 0.0, 0, 0.0

    def add(self, z: float) -> None:
        """Add a standard normal number."""
        self._total, self._count, self._largest = self._total + z, self._count + 1, max(self._largest, abs(z))

    def test(self, name: str) -> Iterator[StatisticalCheck]:
        """Yield the test of the sum and the test of the largest number."""
        z = self._total / math.sqrt(self._count)
        yield StatisticalCheck(name=name, p=math.erfc(abs(z) / math.sqrt(2)), z=z, numbers=self._count)
        largest = SmallestPValue()
        largest.add(math.erfc(self._largest / math.sqrt(2)), 1, self._count)
        yield from largest.test(f"{name}, one by one")


class StepInnerProducts:
    """Compares each step's noise with the noise of as many earlier steps as memory and time allow."""

    def __init__(self, steps: int, width: int) -> None:
        self._lags = max(1, min(steps - 1, MOST_LAGS))
        self.width = int(min(width, MOST_KEPT / self._lags, max(64, MOST_PRODUCTS / (self._lags * steps))))
        self._kept = np.zeros((self._lags, self.width), np.float32)
        self._lengths = np.zeros(self._lags)
        self._sum = np.zeros(self.width)
        self.totals, self.counts = np.zeros(self._lags), np.zeros(self._lags, np.int64)  # by distance, from 1 on
        self.largest, self.step = 0.0, 0
        self.all = 0.0

    def add(self, noise: np.ndarray) -> None:
        """Add the noise of the next step."""
        noise = noise[: self.width]
        before = min(self.step, self._lags)
        if before:
            places = (self.step - 1 - np.arange(before)) % self._lags
            products = (self._kept[:before] @ noise.astype(np.float32))[places]
            z = products / np.maximum(self._lengths[places], 1e-30)
            self.totals[:before] += z
            self.counts[:before] += 1
            self.largest = max(self.largest, float(np.abs(z).max()))
            self.all += float(self._sum @ noise) / max(float(np.linalg.norm(self._sum)), 1e-30)
        self._sum += noise
        place = self.step % self._lags
        self._kept[place], self._lengths[place] = noise, np.linalg.norm(noise)
        self.step += 1


def _test_step_independence(
    products_by_release: Sequence[StepInnerProducts], location: str
) -> Iterator[StatisticalCheck]:
    distances, pairs, together = SmallestPValue(), SmallestPValue(), SmallestPValue()
    for products in products_by_release:
        seen = products.counts > 0
        distances.add_normal_statistics(
            products.totals[seen] / np.sqrt(products.counts[seen]), products.width * products.step
        )
        if products.step > 1:
            pairs.add(math.erfc(products.largest / math.sqrt(2)), products.width, int(products.counts.sum()))
            together.add_normal_statistics(
                np.array([products.all / math.sqrt(products.step - 1)]), products.width * products.step
            )
    yield from distances.test(f"steps of {location}, by how far they are apart")
    yield from pairs.test(f"pairs of steps of {location}")
    yield from together.test(f"all pairs of steps of {location} together")


def check_row_independence(inner_products: Sequence[tuple[np.ndarray, int]], kind: str) -> Iterator[StatisticalCheck]:
    """Test that rows of noise are independent.

    `inner_products` has pairs: the inner products (k, k) of k rows, and the number of entries per row.
    """
    distances, pairs, together = SmallestPValue(), SmallestPValue(), SmallestPValue()
    for products, numbers in inner_products:
        k = len(products)
        lengths = np.sqrt(np.maximum(np.diag(products), 1e-300))
        z = np.tril(products / lengths, -1)  # row i, drawn after row j < i was known
        pairs.add(math.erfc(float(np.abs(z).max()) / math.sqrt(2)), numbers, k * (k - 1) // 2)
        apart = np.array([np.trace(z, -distance) / math.sqrt(k - distance) for distance in range(1, k)])
        distances.add_normal_statistics(apart, numbers * k)
        before = np.tril(products, -1).sum(1)[1:]
        squares = np.diag(products.cumsum(0).cumsum(1))[:-1]  # of the sums of the rows before
        summed = before / np.sqrt(np.maximum(squares, 1e-300))
        together.add_normal_statistics(np.array([summed.sum() / math.sqrt(k - 1)]), numbers * k)
    yield from distances.test(f"{kind}, by how far they are apart")
    yield from pairs.test(f"pairs of {kind}")
    yield from together.test(f"all pairs of {kind} together")


class NoiseRepetitionSearch:
    """Searches for noise that repeats within an answer, at any distance."""

    def __init__(self) -> None:
        self._sums: dict[int, np.ndarray] = {}
        self._search_counts: defaultdict[int, int] = defaultdict(int)

    def add(self, noise: np.ndarray) -> None:
        """Add the autocorrelation of one answer's noise at every distance below half its length."""
        part = noise[:SEARCH_LENGTH]
        if len(part) < 4 or self._search_counts[len(part)] >= MOST_SEARCHES:
            return
        spectrum = np.fft.rfft(part, 2 * len(part))
        products = np.fft.irfft(np.square(np.abs(spectrum)))[1 : len(part) // 2]
        self._sums[len(part)] = self._sums.get(len(part), 0) + products
        self._search_counts[len(part)] += 1

    def test(self, name: str) -> Iterator[StatisticalCheck]:
        """Yield a test of the largest autocorrelation; a sum of thousands of products is nearly normal."""
        found = SmallestPValue()
        for length, products in self._sums.items():
            terms = self._search_counts[length] * (length - np.arange(1, len(products) + 1))
            if len(terms) and terms.min() >= FEWEST_TERMS:
                found.add_normal_statistics(products / np.sqrt(terms), int(terms.min()))
        yield from found.test(name)
