"""The paired test: whether two results differ by more than noise.

Two results are compared on the test examples and seeds that they share. With d[s, i] = a[s, i] - b[s, i], where
a[s, i] is 1 if the first result is right on example i with seed s, the difference of their accuracies is the mean of d.
Other test examples would change this mean, and so would other noise. Examples and seeds are both sampled, and crossed,
so the variance of the mean has three parts, example/n + seed/S + interaction/(nS). As in any two-way random effects
model without replication::

    by example      E[variance over i of the mean over s of d, / n]  = example/n + interaction/(nS)
    by seed         E[variance over s of the mean over i of d, / S]  = seed/S    + interaction/(nS)
    residual        E[residual mean square, / (nS)]                  = interaction/(nS)

The sum of the first two estimates counts the interaction twice, so the third is subtracted once. The result is never
below the larger of the first two, because the true variance cannot be. The quotient of mean and standard error is
compared with Student's t at 5%, two-sided, with Satterthwaite's degrees of freedom: close to n - 1 (almost a normal
distribution) where examples dominate, and S - 1 where seeds dominate.

- Learners that do not depend on the seed have no variance by seed and no interaction: only examples count.
- A single seed does not show the noise of fits: only examples count, so the test is overconfident.
- Test examples that come in units, such as the images of a lesion, are not independent: all may be right or wrong
  together. Where a result records units, the units are the samples: each sum over examples becomes a sum over the
  totals of units. This is the cluster-robust variance; a bootstrap over units estimates it too.
- Metrics other than accuracy are not means over examples. For them, the test is Student's t over the paired seeds, with
  a fixed test split; a single seed cannot distinguish two results.
- Differences that can arise between machines (`records.tolerance`) do not count: entries are sorted by the number of
  correct answers, or by a mean in whole millionths, and scores within the tolerance have a difference of zero.
- A single comparison is not corrected for others: of 20 pairs of equally good results, the test calls one different.
  `holm_correction` corrects a family of comparisons.

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
from dpbench.records.tolerance import is_close
from dpbench.records.units import decode_units

LEVEL = 0.05


@dataclass(frozen=True)
class RankingScores:
    """The scores of an entry that decide its rank."""

    per_seed: tuple[float, ...]
    bits: Callable[[], np.ndarray] | None  # (S, n) bool; none for metrics that are no mean over examples
    units: np.ndarray | None = None  # (n,) int64: the unit of each test example, from 0; None: each is its own


@dataclass(frozen=True)
class PairedComparison:
    """The difference between two entries, with its standard error."""

    difference: float
    error: float  # standard error
    degrees_of_freedom: float  # degrees of

    @property
    def p(self) -> float:
        """The probability of a difference of at least this size between two equally good entries.

        It is 1 if the noise cannot be estimated.
        """
        from scipy.special import stdtr

        if self.difference == 0 or math.isnan(self.error):
            return 1.0
        return 0.0 if self.error == 0 else float(2 * stdtr(self.degrees_of_freedom, -abs(self.difference) / self.error))

    @property
    def interval_half_width(self) -> float:
        """Half the width of the difference's 95% interval; nan if the noise cannot be estimated."""
        from scipy.special import stdtrit

        return float(stdtrit(self.degrees_of_freedom, 1 - LEVEL / 2)) * self.error

    @property
    def is_significant(self) -> bool:
        """Whether the difference is significant at 5%."""
        return self.p < LEVEL


def holm_correction(p_values: Sequence[float]) -> np.ndarray:
    """Return the p-values (m,) of a family of comparisons, adjusted by Holm's step-down method, in the same order.

    If you call a difference significant when its adjusted p-value is below 5%, the chance that any true tie of the
    family is called a difference is at most 5%, however the comparisons depend on each other. Source: Holm 1979, A
    simple sequentially rejective multiple test procedure.

    >>> [round(float(p), 6) for p in holm_correction([0.02, 0.01, 0.3])]
    [0.04, 0.03, 0.3]
    """
    values = np.asarray(p_values, dtype=float)  # (m,)
    order = np.argsort(values, kind="stable")
    steps = np.arange(len(values), 0, -1)  # the smallest is held to all m comparisons, the next to m - 1, ...
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(values[order] * steps), 1.0)
    return adjusted


def collect_ranking_scores(result: Result, metric: str) -> RankingScores:
    """Return the scores that decide a checked result's rank by `metric`; all of its seeds must have this metric."""
    per_seed = tuple(seed.value(metric) for seed in result.seeds)
    if metric != "accuracy":
        return RankingScores(per_seed, None)
    units, test = result.task.test_units, result.task.test
    return RankingScores(
        per_seed, partial(_stack_correct_bits, result), None if units is None else decode_units(units, test)
    )


def _stack_correct_bits(result: Result) -> np.ndarray:
    try:
        return np.stack([decode_correct_predictions(seed, result.task.test) for seed in result.seeds])
    except ValueError as error:
        raise DataError(f"Result {result.file_name} does not say which answers were correct: {error}.") from error


def decode_correct_predictions(seed: SeedResult, test: int) -> np.ndarray:
    """Return whether each test example was classified correctly, in order; see `decode_bits`."""
    return decode_bits(seed.correct, test)


def decode_bits(correct: str, test: int) -> np.ndarray:
    """Decode base64 text with one bit per test example into bools (n,).

    Raises:
        ValueError: the text is not base64 of exactly this many bits, padded with zeros.
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


def compare_entries(first: RankingScores, second: RankingScores) -> PairedComparison:
    """Compare two entries over seeds and test examples; over seeds alone if the metric is not the accuracy.

    Seeds are paired in order. If one entry has more seeds (challenge seeds, which a reference may lack), its further
    seeds do not count.

    Raises:
        DataError: a result does not record which test examples it classified correctly.
    """
    seeds = min(len(first.per_seed), len(second.per_seed))
    if first.bits is None or second.bits is None:
        return compare_over_seeds(first.per_seed[:seeds], second.per_seed[:seeds])
    units = first.units if first.units is not None else second.units
    return compare_over_examples(first.bits()[:seeds], second.bits()[:seeds], units)


def compare_over_examples(first: np.ndarray, second: np.ndarray, units: np.ndarray | None = None) -> PairedComparison:
    """Compare two entries by the test described at the top of this module.

    Args:
        first: whether the first entry is correct for each seed and test example, bools (S, n).
        second: the same for the second entry, with the same seeds and examples.
        units: the unit of each example, from 0, int64 (n,); None if each example is its own unit.
    """
    d = first.view(np.int8) - second.view(np.int8)  # (S, n) in -1, 0, 1
    if units is not None and len(units):
        sizes = np.bincount(units)  # (u,)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        totals = np.add.reduceat(d[:, np.argsort(units, kind="stable")].astype(np.int64), starts, axis=1)  # (S, u)
        return _compare_totals(totals, sizes)
    return _compare_totals(d, None)


def _compare_totals(differences: np.ndarray, unit_sizes: np.ndarray | None) -> PairedComparison:
    """Compare two entries by their differences d (S, u), a total for each seed and unit.

    `unit_sizes` (u,) counts the examples of each unit; None means one each.
    """
    seeds, n = differences.shape
    size = 1.0 if unit_sizes is None else float(unit_sizes.mean())  # examples in a unit
    weights = 1.0 if unit_sizes is None else unit_sizes / size  # (u,), 1 on average
    mean, by_seed = float(differences.mean()), differences.mean(1)  # of a unit
    by_example = differences.sum(0, dtype=np.int64) / seeds
    squares = float(np.square(by_example - weights * mean).sum())
    example = squares / (n - 1) / n if n > 1 else math.nan
    if seeds == 1:
        return PairedComparison(mean / size, math.sqrt(example) / size, n - 1)
    seed = float(np.square(by_seed - mean).sum()) / (seeds - 1) / seeds
    if unit_sizes is None:
        whole = float(np.count_nonzero(differences)) - seeds * n * mean**2
        residual = max(0.0, whole - seeds * squares - n * seed * (seeds - 1) * seeds)
    else:
        residual = float(np.square(differences - by_example - weights * (by_seed - mean)[:, None]).sum())
    left = residual / ((n - 1) * (seeds - 1)) / (n * seeds) if n > 1 else math.nan
    variance = max(example + seed - left, example, seed)
    parts = example**2 / (n - 1) + seed**2 / (seeds - 1) + left**2 / ((n - 1) * (seeds - 1)) if n > 1 else math.nan
    freedom = variance**2 / parts if parts > 0 else n - 1
    return PairedComparison(mean / size, math.sqrt(variance) / size, freedom)


def compare_over_seeds(first: Sequence[float], second: Sequence[float]) -> PairedComparison:
    """Compare two entries by their score on each seed; on a single seed, no difference is significant."""
    d = np.array([0.0 if is_close(*pair) else pair[0] - pair[1] for pair in zip(first, second, strict=True)])
    error = float(d.std(ddof=1)) / math.sqrt(len(d)) if len(d) > 1 else math.nan
    return PairedComparison(float(d.mean()), error, len(d) - 1)
