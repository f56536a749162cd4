"""The noise: is what was added to the sums normal, and as large as stated. And the samples: are they Poisson.

The noise of an answer is the answer, as whoever asked has it, less the integer sum behind it, in units of the stated
sigma * clip * sqrt(blocks): standard normal, and independent of all other noise (`independence`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from dpbench.audit.independence import Independence
from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.records.audit import Check, Noise, SampleSizes

FEWEST = 2_000  # numbers whose skewness and kurtosis are nearly normal themselves
KEPT = 2**17  # numbers whose distribution is looked at


def standardise(answer: Tensor, summed: IntegerSum, std: float) -> np.ndarray:
    """Return the noise in an answer, float64 of its shape, in units of `std`."""
    sums = summed.total.double().mul_(summed.grid)
    found: np.ndarray = answer.double().sub_(sums).div_(std).cpu().numpy()
    return found


@dataclass
class Sizes:
    """The samples of one release: how large, and who of the canaries is in them."""

    rate: float
    size: int  # of the private split
    members: int  # canaries in the data
    counts: np.ndarray  # (m,) how often each canary was sampled
    steps: int = 0
    whole: float = 0.0
    rows: float = 0.0

    def add(self, size: int, sampled: np.ndarray) -> None:
        """Count one sample."""
        self.steps += 1
        self.whole += self._square(size + len(sampled), self.size + self.members)
        self.rows += self._square(size, self.size)
        self.counts[sampled] += 1

    def summarise(self, release: str, member: np.ndarray) -> SampleSizes:
        """Return the record: each count of a member is binomial."""
        counts, variance = self.counts[member], self.rate * (1 - self.rate)
        z = None
        if len(counts) > 1:
            squares = float(np.square(counts - self.steps * self.rate).sum()) / (self.steps * variance)
            kurtosis = (1 - 6 * variance) / (self.steps * variance)
            z = (squares - len(counts)) / math.sqrt(len(counts) * (2 + kurtosis))
        return SampleSizes(release=release, steps=self.steps, sizes=self.whole, rows=self.rows, counts=z)

    def _square(self, size: int, of: int) -> float:
        return (size - of * self.rate) ** 2 / (of * self.rate * (1 - self.rate))


class NoiseLog:
    """All noise of one fit, question by question."""

    def __init__(self, questions: int, member: np.ndarray) -> None:
        self.independence = Independence()
        self._member, self._each = member, max(16, KEPT // max(1, questions))
        self._numbers = self._padding = 0
        self._squares = self._padding_squares = 0.0
        self._kept: list[np.ndarray] = []
        self._sizes: dict[str, Sizes] = {}
        self.laws: list[Check] = []  # of choices

    def add(
        self, release: str, answers: Sequence[np.ndarray], padding: Sequence[np.ndarray], sampled: np.ndarray
    ) -> None:
        """Add the standardised noise of one question, block by block, and that of the canaries' coordinates."""
        for part in answers:
            self._numbers += part.size
            self._squares += float(np.vdot(part, part))
            self._kept.append(part.ravel()[: self._each].copy())
        for part in padding:
            self._padding += part.size
            self._padding_squares += float(np.vdot(part, part))
            self._kept.append(part[: self._each].copy())
        self.independence.add(release, answers, padding, sampled)

    def add_sample(self, release: str, rate: float, rows: int, size: int, sampled: np.ndarray) -> None:
        """Add the sample of one question."""
        if rate < 1:
            fresh = Sizes(rate, rows, int(self._member.sum()), np.zeros(len(self._member), np.int64))
            self._sizes.setdefault(release, fresh).add(size, sampled)

    def summarise(self) -> Noise:
        """Return the statistics."""
        return Noise(
            numbers=self._numbers, squares=self._squares, padding=self._padding,
            padding_squares=self._padding_squares,
            samples=tuple(sizes.summarise(name, self._member) for name, sizes in self._sizes.items()),
            checks=(
                *shape_checks(np.concatenate([*self._kept, np.empty(0)])), *self.independence.checks(), *self.laws,
            ),
        )  # fmt: skip


def shape_checks(numbers: np.ndarray) -> Iterator[Check]:
    """Yield whether numbers are standard normal: by Kolmogorov and Smirnov's test, and by skewness and kurtosis."""
    from scipy.stats import kstest, normaltest

    if len(numbers) >= FEWEST:
        yield Check(name="normal", p=float(kstest(numbers, "norm").pvalue))
        yield Check(name="tails", p=float(normaltest(numbers).pvalue))
