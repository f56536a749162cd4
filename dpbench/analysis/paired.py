"""The paired test: whether two results differ by more than noise.

Two results are compared on the same test examples and seeds, which they share. With d[s, i] = a[s, i] - b[s, i],
where a[s, i] is 1 if the first was right on example i with seed s, the difference of their accuracies is the mean of d.
It would come out otherwise on other test examples, and with other noise. Both are sampled, crossed, so that its
variance has three parts, example/n + seed/S + interaction/(nS), and as for any two-way random effects without
replication::

    by example      E[variance over i of the mean over s of d, / n]  = example/n + interaction/(nS)
    by seed         E[variance over s of the mean over i of d, / S]  = seed/S    + interaction/(nS)
    what is left    E[residual mean square, / (nS)]                  = interaction/(nS)

The sum of the first two counts the interaction twice, so the third is taken off once; never below the larger of the
two, which it cannot be. The quotient of mean and standard error is held against Student's t at 5%, two-sided, with
Satterthwaite's degrees of freedom: close to n - 1, that is normal, where examples decide, and S - 1 where seeds do.

- Learners that do the same with every seed have no variance by seed and no interaction: examples alone decide.
- A single seed cannot show noise of fits: examples alone decide, and the test is too sure by what it cannot see.
- Metrics other than accuracy are not means over examples: there it is Student's t over the paired seeds, with the test
  split taken as given; a single seed tells nothing apart.
- What differs by less than numbers of several machines may (`records.tolerance`) does not differ: entries are sorted by
  answers that are counted, or by a mean in whole millionths, and seeds that score the same have a difference of zero.
- One comparison is not corrected for others: of 20 pairs that are equally good, one differs. `holm` corrects a family.

Sources: Searle, Casella and McCulloch, Variance Components, ch. 4; Satterthwaite 1946; Holm 1979.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpbench.errors import DataError
from dpbench.records.result import Result, SeedResult
from dpbench.records.tolerance import close

LEVEL = 0.05


@dataclass(frozen=True)
class Scores:
    """The scores of an entry that decide its rank."""

    per_seed: tuple[float, ...]
    bits: Callable[[], np.ndarray] | None  # (S, n) bool; none for metrics that are no mean over examples


@dataclass(frozen=True)
class PairedComparison:
    """The difference between two entries, with its standard error."""

    difference: float
    error: float  # standard error
    freedom: float  # degrees of

    @property
    def p(self) -> float:
        """Probability of a difference of at least this size between entries that are equally good."""
        from scipy.special import stdtr

        if self.difference == 0 or math.isnan(self.error):
            return 1.0
        return 0.0 if self.error == 0 else float(2 * stdtr(self.freedom, -abs(self.difference) / self.error))

    @property
    def half(self) -> float:
        """Half of the difference's 95% interval; nan if the noise cannot be estimated."""
        from scipy.special import stdtrit

        return float(stdtrit(self.freedom, 1 - LEVEL / 2)) * self.error

    @property
    def differs(self) -> bool:
        """Whether the difference is more than noise."""
        return self.p < LEVEL


def holm(p: Sequence[float]) -> np.ndarray:
    """Return the p-values (m,) of a family of comparisons, adjusted by Holm's step-down method, in the same order.

    Comparing each with 5% keeps the chance that any true tie of the family is called a difference at 5% or less,
    however the comparisons depend on each other. Source: Holm 1979, A simple sequentially rejective multiple test
    procedure.

    >>> [round(float(one), 6) for one in holm([0.02, 0.01, 0.3])]
    [0.04, 0.03, 0.3]
    """
    values = np.asarray(p, dtype=float)  # (m,)
    order = np.argsort(values, kind="stable")
    steps = np.arange(len(values), 0, -1)  # the smallest is held to all m comparisons, the next to m - 1, ...
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(values[order] * steps), 1.0)
    return adjusted


def ranking_scores(result: Result, metric: str) -> Scores:
    """Return the scores that decide the rank of a checked result by `metric`, which all of its seeds have."""
    per_seed = tuple(seed.value(metric) for seed in result.seeds)
    return Scores(per_seed, partial(_stack_correct_bits, result) if metric == "accuracy" else None)


def _stack_correct_bits(result: Result) -> np.ndarray:
    try:
        return np.stack([correct_bits(seed, result.task.test) for seed in result.seeds])
    except ValueError as error:
        raise DataError(f"Result {result.file_name} does not say which answers were correct: {error}.") from error


def correct_bits(seed: SeedResult, test: int) -> np.ndarray:
    """Return for each test example, in order, whether it was classified correctly; see `decode_bits`."""
    return decode_bits(seed.correct, test)


def decode_bits(correct: str, test: int) -> np.ndarray:
    """Decode base64 of a bit per test example into bools (n,).

    Raises:
        ValueError: it is not base64 of so many bits, padded with zeros.
    """
    if test < 1:
        raise ValueError(f"expected test examples, got {test}")
    try:
        raw = base64.b64decode(correct, validate=True)
    except binascii.Error as error:
        raise ValueError(f"expected base64: {error}") from None
    if len(raw) != math.ceil(test / 8):
        raise ValueError(
            f"expected {math.ceil(test / 8):,} bytes, a bit for each of {test:,} examples, got {len(raw):,}"
        )
    bits = np.unpackbits(np.frombuffer(raw, np.uint8)).view(bool)
    if bits[test:].any():
        raise ValueError("expected zeros after the last test example")
    return bits[:test]


def compare_entries(first: Scores, second: Scores) -> PairedComparison:
    """Compare two entries on the same seeds, and also on the same test examples if both have answers for them."""
    if first.bits is None or second.bits is None:
        return compare_over_seeds(first.per_seed, second.per_seed)
    return compare_over_examples(first.bits(), second.bits())


def compare_over_examples(first: np.ndarray, second: np.ndarray) -> PairedComparison:
    """Compare the correct answers of two entries, bools (S, n) on the same seeds and test examples; see the module."""
    d = first.view(np.int8) - second.view(np.int8)  # (S, n) in -1, 0, 1
    seeds, n = d.shape
    mean, by_seed = float(d.mean()), d.mean(1)
    by_example = d.sum(0, dtype=np.int32) / seeds
    squares = float(np.square(by_example - mean).sum())
    example = squares / (n - 1) / n if n > 1 else math.nan
    if seeds == 1:
        return PairedComparison(mean, math.sqrt(example), n - 1)
    seed = float(np.square(by_seed - mean).sum()) / (seeds - 1) / seeds
    whole = float(np.count_nonzero(d)) - seeds * n * mean**2
    residual = max(0.0, whole - seeds * squares - n * seed * (seeds - 1) * seeds)
    left = residual / ((n - 1) * (seeds - 1)) / (n * seeds) if n > 1 else math.nan
    variance = max(example + seed - left, example, seed)
    parts = example**2 / (n - 1) + seed**2 / (seeds - 1) + left**2 / ((n - 1) * (seeds - 1)) if n > 1 else math.nan
    return PairedComparison(mean, math.sqrt(variance), variance**2 / parts if parts > 0 else n - 1)


def compare_over_seeds(first: Sequence[float], second: Sequence[float]) -> PairedComparison:
    """Compare the scores of two entries seed by seed; a single seed cannot tell them apart."""
    d = np.array([0.0 if close(*pair) else pair[0] - pair[1] for pair in zip(first, second, strict=True)])
    error = float(d.std(ddof=1)) / math.sqrt(len(d)) if len(d) > 1 else math.nan
    return PairedComparison(float(d.mean()), error, len(d) - 1)
