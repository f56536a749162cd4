"""The noise: what was added to the sums is normal, and everywhere as large as stated; and samples are Poisson.

The noise of an answer is the answer, as whoever asked has it, less the integer sum behind it, in units of the stated
sigma * clip * sqrt(blocks): standard normal, and independent of all other noise (`independence`). That of the learner's
own coordinates is looked at apart from that of the canaries', which are a hundred times as many.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from dpbench.audit.independence import Independence, Matrices
from dpbench.audit.samples import Samples
from dpbench.audit.spread import Spread
from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.records.audit import Check, Noise

KEPT = 2**17  # numbers whose distribution is looked at
LAST_BIT = 2.0**-23  # of a float32, in its own size
MANY = 1_000  # numbers whose sum of squares is nearly normal
FEWEST = 2_000  # numbers whose skewness and kurtosis are nearly normal themselves
TAIL = 0.85
"""Power of the p-value of D'Agostino's test, which is too small where it is small: of 354,000 samples of 2,000 numbers
it has 77 below 1e-4 and 20 below 1.4e-5, where chance has 35 and 5."""
COMPARED = 2**16  # numbers that are searched for equal ones
CLOSE = 2.0**-19  # standard deviations between values that count as equal, where floats are no coarser
LATTICE = 4  # units of the coarsest float below which distances say nothing


@dataclass(frozen=True)
class StandardNoise:
    """The noise in one block of an answer, in standard deviations."""

    noise: np.ndarray  # float64, of the answer's shape
    coarse: np.ndarray  # the same: how coarse the answer's floats are


def standardise(answer: Tensor, summed: IntegerSum, std: float) -> StandardNoise:
    """Return the noise in an answer, in units of `std`."""
    sums = summed.total.double().mul_(summed.grid)
    found: np.ndarray = answer.double().sub_(sums).div_(std).cpu().numpy()
    coarse: np.ndarray = answer.abs().double().mul_(LAST_BIT / std).cpu().numpy()
    return StandardNoise(found, coarse)


def standardise_noise(answer: Tensor, std: float) -> StandardNoise:
    """Return an answer over nothing, in units of `std`: it is noise."""
    noise: np.ndarray = answer.double().div_(std).cpu().numpy()
    return StandardNoise(noise, np.abs(noise) * LAST_BIT)


class NoiseLog:
    """All noise of one fit, question by question."""

    def __init__(self, questions: int, member: np.ndarray) -> None:
        self.independence = Independence(questions)
        self._member, self._each = member, max(16, KEPT // max(1, questions))
        self._answers, self._canaries = Numbers(self._each), Numbers(self._each)
        self._spread = Spread("in answers", zeros=True), Spread("at other coordinates", zeros=False)
        self._squares: defaultdict[str, list[float]] = defaultdict(list)  # step by step, less their mean, standardised
        self._numbers: defaultdict[str, list[int]] = defaultdict(list)
        self._sizes: defaultdict[str, list[int]] = defaultdict(list)
        self._samples: dict[str, Samples] = {}
        self.elsewhere = OtherSeeds()
        self.laws: list[Check] = []  # of choices

    def add(
        self, release: str, answers: Sequence[StandardNoise], padding: Sequence[StandardNoise], sampled: np.ndarray
    ) -> None:
        """Add the noise of one question, block by block, and that of the canaries' coordinates."""
        before = self._answers.squares + self._canaries.squares
        kinds = (answers, self._answers, self._spread[0]), (padding, self._canaries, self._spread[1])
        for parts, numbers, spread in kinds:
            for block, part in enumerate(parts):
                numbers.add(part)
                spread.add(release, block, part.noise, part.coarse)
        self._squares[release].append(self._answers.squares + self._canaries.squares - before)
        self._numbers[release].append(sum(part.noise.size for part in (*answers, *padding)))
        self.independence.add(release, [one.noise for one in answers], [one.noise for one in padding], sampled)

    def add_sample(
        self, release: str, rate: float, planned: int, rows: int, labels: np.ndarray | None, drawn: np.ndarray,
        sampled: np.ndarray,
    ) -> None:  # fmt: skip
        """Add the sample of one question."""
        self._sizes[release].append(len(drawn))
        if rate < 1:
            if release not in self._samples:
                self._samples[release] = Samples(rate, rows, self._member, planned, labels)
            self._samples[release].add(drawn, sampled)

    def summarise(self) -> Noise:
        """Return the statistics."""
        return Noise(
            numbers=self._answers.count, squares=self._answers.squares, padding=self._canaries.count,
            padding_squares=self._canaries.squares,
            samples=tuple(samples.summarise(name) for name, samples in self._samples.items()),
            checks=tuple(self._checks()),
        )  # fmt: skip

    def _checks(self) -> Iterator[Check]:
        yield from self._answers.checks("in answers")
        yield from self._canaries.checks("at other coordinates")
        for spread in self._spread:
            yield from spread.checks()
        yield from self.independence.checks()
        yield from self.elsewhere.checks()
        for name, samples in self._samples.items():
            yield from samples.checks(name)
            yield from self._sizes_and_noise(name, samples)
        yield from self.laws

    def _sizes_and_noise(self, release: str, samples: Samples) -> Iterator[Check]:
        """Yield whether noise is larger where samples are: it may not tell how many were drawn."""
        numbers = np.array(self._numbers[release])
        if len(numbers) == len(self._sizes[release]) and len(numbers) and numbers.min() >= MANY:
            off = np.array(self._sizes[release]) - samples.rate * samples.size
            squares = (np.array(self._squares[release]) - numbers) / np.sqrt(2 * numbers)
            if off.any():
                z = float(off @ squares) / float(np.linalg.norm(off))
                p = math.erfc(abs(z) / math.sqrt(2))
                yield Check(name=f"size of the noise and of the samples of {release!r}", p=p, z=z, numbers=len(numbers))


class OtherSeeds:
    """The noise of the same questions by other seeds."""

    def __init__(self) -> None:
        self._numbers, self._spread = Numbers(KEPT // 64), Spread("of other seeds", zeros=True)
        self._within = Matrices("other seeds' answers")

    def add(self, release: str, blocks: Sequence[StandardNoise]) -> None:
        """Add one answer, block by block."""
        for block, part in enumerate(blocks):
            self._numbers.add(part)
            self._spread.add(release, block, part.noise, part.coarse)
            self._within.add((release, block, part.noise.shape), part.noise)

    def checks(self) -> Iterator[Check]:
        """Yield the tests."""
        yield from self._numbers.checks("of other seeds")
        yield from self._spread.checks()
        yield from self._within.checks()


class Numbers:
    """Numbers that are to be standard normal: what all sum up to, and some as they are."""

    def __init__(self, each: int) -> None:
        self.count, self.squares = 0, 0.0
        self._each, self._largest, self._coarse = each, 0.0, 0.0
        self._kept: list[np.ndarray] = []

    def add(self, part: StandardNoise) -> None:
        """Add one block."""
        if part.noise.size:
            self.count += part.noise.size
            self.squares += float(np.vdot(part.noise, part.noise))
            self._largest = max(self._largest, float(np.abs(part.noise).max()))
            self._kept.append(part.noise.ravel()[: self._each].copy())
            self._coarse = max(self._coarse, float(part.coarse.ravel()[: self._each].max()))

    def checks(self, who: str) -> Iterator[Check]:
        """Yield the tests of their distribution."""
        yield from check_shape(np.concatenate([*self._kept, np.empty(0)]), who, self._coarse)
        yield from check_largest(self._largest, self.count, who)


def check_shape(numbers: np.ndarray, who: str, coarse: float) -> Iterator[Check]:
    """Yield the tests of numbers (n,) that came in floats as coarse as this, in standard deviations."""
    from scipy.stats import kstest, normaltest

    if len(numbers) >= FEWEST:
        yield Check(name=f"normal {who}", p=float(kstest(numbers, "norm").pvalue), numbers=len(numbers))
        p = float(normaltest(numbers).pvalue) ** TAIL
        yield Check(name=f"tails {who}", p=p, numbers=len(numbers))
        yield from _check_equal(numbers, who, max(CLOSE, LATTICE * coarse))


def check_largest(largest: float, numbers: int, who: str) -> Iterator[Check]:
    """Yield whether the largest of so many numbers is too large or too small: both are exact."""
    if numbers:
        tail = math.erfc(largest / math.sqrt(2))
        none = math.exp(numbers * math.log1p(-tail)) if tail < 1 else 0.0
        above = -math.expm1(numbers * math.log1p(-tail)) if tail < 1 else 1.0
        yield Check(name=f"largest number {who}", p=min(1.0, 2 * min(above, none)), numbers=numbers)


def _check_equal(numbers: np.ndarray, who: str, close: float) -> Iterator[Check]:
    """Yield whether more values are next to each other than chance has it: such pairs are rare events.

    Floats are on a lattice, whose points may make up to an eighth more of them.
    """
    from scipy.special import pdtrc

    some = np.sort(numbers[:: max(1, len(numbers) // COMPARED)][:COMPARED])
    expected = len(some) * (len(some) - 1) / 2 * close / math.sqrt(math.pi) * (1 + 1 / LATTICE)
    found = int((np.diff(some) < close).sum())
    if close <= 2.0**-10:
        p = float(pdtrc(found - 1, expected)) if found > expected + 1 else 1.0
        yield Check(name=f"equal numbers {who}", p=p, numbers=len(some))
