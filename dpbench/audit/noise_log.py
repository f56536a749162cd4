"""Test that the noise in answers is normal and has the stated size everywhere, and that samples are Poisson.

The noise of an answer is the answer that the learner receives minus the exact integer sum, in units of the stated
sigma * clip * sqrt(blocks). It must be standard normal and independent of all other noise (`independence`). Noise at
the learner's own coordinates is tested separately from noise at the canaries' coordinates, which are a hundred times as
many.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from dpbench.audit.directions import check_noise_directions
from dpbench.audit.independence import NoiseIndependenceTest, RowInnerProducts
from dpbench.audit.samples import SampleCollector
from dpbench.audit.spread import NoiseScaleTest
from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.records.audit import NoiseStatistics, StatisticalCheck

MOST_KEPT = 2**17  # numbers whose distribution is looked at
LAST_BIT = 2.0**-23  # of a float32, in its own size
FEWEST_FOR_SQUARES = 1_000  # numbers whose sum of squares is nearly normal
FEWEST_FOR_SHAPE = 2_000  # numbers whose skewness and kurtosis are nearly normal themselves
TAIL_POWER = 0.85
"""D'Agostino's p-value is raised to this power, because small p-values come out too small: for 354,000 samples of 2,000
numbers, 77 are below 1e-4 and 20 below 1.4e-5, where 35 and 5 are expected by chance."""
MOST_COMPARED = 2**16  # numbers that are searched for equal ones
EQUAL_DISTANCE = 2.0**-19  # standard deviations between values that count as equal, where floats are no coarser
LATTICE_UNITS = 4  # units of the coarsest float below which distances say nothing


@dataclass(frozen=True)
class StandardisedNoise:
    """The noise in one block of an answer, in standard deviations."""

    noise: np.ndarray  # float64, of the answer's shape
    coarse: np.ndarray  # the same: how coarse the answer's floats are


def extract_noise(answer: Tensor, summed: IntegerSum, std: float) -> StandardisedNoise:
    """Return the noise in an answer, its difference from the integer sum, in units of `std`."""
    sums = summed.total.double().mul_(summed.grid)
    found: np.ndarray = answer.double().sub_(sums).div_(std).cpu().numpy()
    coarse: np.ndarray = answer.abs().double().mul_(LAST_BIT / std).cpu().numpy()
    return StandardisedNoise(found, coarse)


def standardise_noise(answer: Tensor, std: float) -> StandardisedNoise:
    """Return the noise in an answer over rows of zeros, in units of `std`: the whole answer is noise."""
    noise: np.ndarray = answer.double().div_(std).cpu().numpy()
    return StandardisedNoise(noise, np.abs(noise) * LAST_BIT)


class NoiseLog:
    """Collects all noise of one fit, question by question."""

    def __init__(self, questions: int, member: np.ndarray) -> None:
        self.independence = NoiseIndependenceTest(questions)
        self._member, self._each = member, max(16, MOST_KEPT // max(1, questions))
        self._answers, self._canaries = NormalityTest(self._each), NormalityTest(self._each)
        self._spread = NoiseScaleTest("in answers", zeros=True), NoiseScaleTest("at other coordinates", zeros=False)
        self._squares: defaultdict[str, list[float]] = defaultdict(list)  # step by step, less their mean, standardised
        self._numbers: defaultdict[str, list[int]] = defaultdict(list)
        self._sizes: defaultdict[str, list[int]] = defaultdict(list)
        self._samples: dict[str, SampleCollector] = {}
        self.elsewhere = CrossSeedNoiseTest()
        self.laws: list[StatisticalCheck] = []  # of choices

    def add(
        self,
        release: str,
        answers: Sequence[StandardisedNoise],
        padding: Sequence[StandardisedNoise],
        sampled: np.ndarray,
    ) -> None:
        """Log one question's noise, block by block.

        `answers` is the noise in the answer, `padding` the noise at the canaries' coordinates, and `sampled` has the
        coordinates of the canaries in the sample.
        """
        before = self._answers.squares + self._canaries.squares
        kinds = (answers, self._answers, self._spread[0]), (padding, self._canaries, self._spread[1])
        for parts, numbers, spread in kinds:
            for block, part in enumerate(parts):
                numbers.add(part)
                spread.add(release, block, part.noise[None], part.coarse[None])
        self._squares[release].append(self._answers.squares + self._canaries.squares - before)
        self._numbers[release].append(sum(part.noise.size for part in (*answers, *padding)))
        self.independence.add(
            release, [answer.noise for answer in answers], [noise.noise for noise in padding], sampled
        )

    def add_sample(
        self, release: str, rate: float, planned: int, rows: int, labels: np.ndarray | None, drawn_rows: np.ndarray,
        sampled: np.ndarray,
    ) -> None:  # fmt: skip
        """Add the sample of one question: the drawn private rows and, under sampling, the `sampled` canaries."""
        self._sizes[release].append(len(drawn_rows))
        if rate < 1:
            if release not in self._samples:
                self._samples[release] = SampleCollector(rate, rows, self._member, planned, labels)
            self._samples[release].add(drawn_rows, sampled)

    def summarise(self) -> NoiseStatistics:
        """Return the statistics of the noise and of the samples."""
        return NoiseStatistics(
            numbers=self._answers.count, squares=self._answers.squares, padding=self._canaries.count,
            padding_squares=self._canaries.squares,
            samples=tuple(samples.summarise(name) for name, samples in self._samples.items()),
            checks=tuple(self._checks()),
        )  # fmt: skip

    def _checks(self) -> Iterator[StatisticalCheck]:
        yield from self._answers.checks("in answers")
        yield from self._canaries.checks("at other coordinates")
        for spread in self._spread:
            yield from spread.checks()
        yield from self.independence.checks()
        yield from self.elsewhere.checks()
        for name, samples in self._samples.items():
            yield from samples.checks(name)
            yield from self._compare_sizes_with_noise(name, samples)
        yield from self.laws

    def _compare_sizes_with_noise(self, release: str, samples: SampleCollector) -> Iterator[StatisticalCheck]:
        """Yield a test of whether noise grows or shrinks with the sample size, which would reveal that size."""
        numbers = np.array(self._numbers[release])
        if len(numbers) == len(self._sizes[release]) and len(numbers) and numbers.min() >= FEWEST_FOR_SQUARES:
            off = np.array(self._sizes[release]) - samples.rate * samples.size
            squares = (np.array(self._squares[release]) - numbers) / np.sqrt(2 * numbers)
            if off.any():
                z = float(off @ squares) / float(np.linalg.norm(off))
                p = math.erfc(abs(z) / math.sqrt(2))
                yield StatisticalCheck(
                    name=f"size of the noise and of the samples of {release!r}", p=p, z=z, numbers=len(numbers)
                )


class CrossSeedNoiseTest:
    """Collects the noise that other seeds draw for the audited run's questions."""

    def __init__(self) -> None:
        self._numbers, self._spread = NormalityTest(MOST_KEPT // 64), NoiseScaleTest("of other seeds", zeros=True)
        self._within = RowInnerProducts("other seeds' answers")
        self._vectors: list[np.ndarray] = []

    def add(self, release: str, blocks: Sequence[StandardisedNoise]) -> None:
        """Add the noise of one or more answers of a release; each block's noise is (answers, ...)."""
        for block, part in enumerate(blocks):
            self._numbers.add(part)
            self._spread.add(release, block, part.noise, part.coarse)
            self._within.add((release, block, part.noise.shape[1:]), part.noise)
        if len(blocks[0].noise) > 1:
            self._vectors.append(np.hstack([part.noise.reshape(len(part.noise), -1) for part in blocks]))

    def checks(self) -> Iterator[StatisticalCheck]:
        """Yield the tests of the noise under other seeds."""
        yield from self._numbers.checks("of other seeds")
        yield from self._spread.checks()
        yield from self._within.checks()
        yield from check_noise_directions(self._vectors, "of other seeds")


class NormalityTest:
    """Collects numbers that should be standard normal: the sum of all squares, and the first numbers of each block."""

    def __init__(self, each: int) -> None:
        self.count, self.squares = 0, 0.0
        self._each, self._largest, self._coarse = each, 0.0, 0.0
        self._kept: list[np.ndarray] = []

    def add(self, part: StandardisedNoise) -> None:
        """Add the noise of one block."""
        if part.noise.size:
            self.count += part.noise.size
            self.squares += float(np.vdot(part.noise, part.noise))
            self._largest = max(self._largest, float(np.abs(part.noise).max()))
            self._kept.append(part.noise.ravel()[: self._each].copy())
            self._coarse = max(self._coarse, float(part.coarse.ravel()[: self._each].max()))

    def checks(self, location: str) -> Iterator[StatisticalCheck]:
        """Yield the tests of the numbers' distribution."""
        yield from check_normal_shape(np.concatenate([*self._kept, np.empty(0)]), location, self._coarse)
        yield from check_largest_number(self._largest, self.count, location)


def check_normal_shape(numbers: np.ndarray, location: str, float_spacing: float) -> Iterator[StatisticalCheck]:
    """Yield tests that numbers (n,) are normal; `float_spacing` is in standard deviations."""
    from scipy.stats import kstest, normaltest

    if len(numbers) >= FEWEST_FOR_SHAPE:
        yield StatisticalCheck(name=f"normal {location}", p=float(kstest(numbers, "norm").pvalue), numbers=len(numbers))
        p = float(normaltest(numbers).pvalue) ** TAIL_POWER
        yield StatisticalCheck(name=f"tails {location}", p=p, numbers=len(numbers))
        yield from _check_nearly_equal_pairs(numbers, location, max(EQUAL_DISTANCE, LATTICE_UNITS * float_spacing))


def check_largest_number(largest: float, count: int, location: str) -> Iterator[StatisticalCheck]:
    """Yield an exact test of whether the largest of `count` values is too large or too small."""
    if count:
        tail = math.erfc(largest / math.sqrt(2))
        none = math.exp(count * math.log1p(-tail)) if tail < 1 else 0.0
        above = -math.expm1(count * math.log1p(-tail)) if tail < 1 else 1.0
        yield StatisticalCheck(name=f"largest number {location}", p=min(1.0, 2 * min(above, none)), numbers=count)


def _check_nearly_equal_pairs(numbers: np.ndarray, location: str, close: float) -> Iterator[StatisticalCheck]:
    """Yield a test for too many nearly equal numbers; close pairs are counted as rare events.

    Floats lie on a lattice, which may add up to an eighth of close pairs; the expected number includes a margin.
    """
    from scipy.special import pdtrc

    some = np.sort(numbers[:: max(1, len(numbers) // MOST_COMPARED)][:MOST_COMPARED])
    expected = len(some) * (len(some) - 1) / 2 * close / math.sqrt(math.pi) * (1 + 1 / LATTICE_UNITS)
    found = int((np.diff(some) < close).sum())
    if close <= 2.0**-10:
        p = float(pdtrc(found - 1, expected)) if found > expected + 1 else 1.0
        yield StatisticalCheck(name=f"equal numbers {location}", p=p, numbers=len(some))
