"""Find out which rows a loop samples: each row has a feature of its own, so its contribution shows in that column.

Two runs with the same seed and number of rows draw the same samples and noise. In one run all rows are 0 and contribute
nothing, so the difference in a row's column is the row's contribution to the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpbench.audit.samples import SampleCollector
from dpbench.errors import SpecError
from dpbench.records.audit import NoiseStatistics

LoopRun = Callable[[Tensor, Tensor, int], Sequence[np.ndarray]]
"""(x (n, d), y (n,), seed) -> the answer (2, d) of each step."""

MOST_WATCHED = 4_000  # rows that are watched, the last ones: each takes a column
SEEDS = 64  # that are tried for a first sample which has one of the last rows
SPARE_COLUMNS = 64  # columns that no row has: where they move, other things than rows do too
LAST_SHARE = 0.1  # of the rows, by which datasets may be shortened to end with a sampled one: bugs follow from n
ROUNDING = 2.0**-17  # of a difference between answers in float32
NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True)
class RowContributions:
    """The contributions of the watched rows to the steps of a run."""

    norms: np.ndarray  # (steps, watched); 0 if not sampled
    rounding: np.ndarray  # (steps,): what may be rounding alone
    alone: np.ndarray  # (steps,) bool: columns that no row has did not move, so each other one is its row's

    @property
    def largest(self) -> float:
        """The largest contribution of a row beyond rounding, over steps in which only the rows' own columns moved."""
        beyond = self.norms.max(axis=1, initial=0.0) - self.rounding
        return max(0.0, float(beyond[self.alone].max(initial=0.0)))


@dataclass(frozen=True)
class ContributionMeter:
    """Measures what the last rows of a dataset contribute to a loop's steps; `size` is the largest number of rows."""

    loop: LoopRun
    size: int
    feature: float  # that a row has as its own, far above the clip
    first_seed: int

    @property
    def skipped(self) -> int:
        """The number of rows before the watched rows."""
        return max(0, self.size - MOST_WATCHED)

    def contributions(self, size: int, seed: int) -> RowContributions:
        """Measure the contribution of each watched row to each step of a run over `size` rows.

        Raises:
            SpecError: an answer is not finite, so contributions cannot be measured.
        """
        watched = self.size - self.skipped
        x, y = torch.zeros(size, watched + SPARE_COLUMNS), torch.arange(size) % 2
        empty = self.loop(x.clone(), y, seed)
        x[torch.arange(self.skipped, size), torch.arange(size - self.skipped)] = self.feature
        full = self.loop(x, y, seed)
        for step, answers in enumerate(zip(empty, full, strict=True), 1):
            if not np.isfinite(answers).all():
                raise SpecError(f"Expected finite answers from the loop on finite examples, got others in step {step}.")
        rounding = np.array([ROUNDING * np.abs(after).max() for after in full])
        pairs = zip(empty, full, rounding, strict=True)
        moved = [np.where(np.abs(after - before) > pair, after - before, 0.0) for before, after, pair in pairs]
        norms = np.array([np.linalg.norm(array, axis=0) for array in moved])
        return RowContributions(norms[:, :watched], rounding, norms[:, watched:].max(axis=1) == 0)

    def find_sampled_row(self) -> tuple[int, int]:
        """Return the last row of the first sample, and the seed that samples it.

        Raises:
            SpecError: no seed samples one of the last rows.
        """
        for seed in range(self.first_seed, self.first_seed + SEEDS):
            drawn = np.flatnonzero(self.contributions(self.size, seed).norms[0]) + self.skipped
            if len(drawn) and drawn[-1] >= (1 - LAST_SHARE) * (self.size - 1):
                return int(drawn[-1]), seed
        raise SpecError(
            f"Expected the loop's first step to sample one of the last {LAST_SHARE * self.size:.0f} of {self.size:,} "
            f"examples for one of {SEEDS} seeds or more; it did for none. Audit it with a larger size or a larger rate."
        )

    def measure_effect_on_other_rows(self, size: int, seed: int) -> float | None:
        """Add a row; return how much the other rows' contributions to the first step change in total.

        Only rows that are sampled with and without the added row count. Return None if the added row does not change
        which other rows are sampled: whole sums can then be compared.
        """
        fewer, more = (self.contributions(count, seed).norms[0, : size - self.skipped] for count in (size, size + 1))
        both = (fewer > 0) & (more > 0)
        if np.array_equal(fewer > 0, more > 0):
            return None
        changed = np.abs(more - fewer)[both]
        return float(changed[changed > 2 * ROUNDING * self.feature].sum())


def add_sample_statistics(noise: NoiseStatistics, release: str, rate: float, inclusions: np.ndarray) -> NoiseStatistics:
    """Return `noise` with sample statistics added; `inclusions` (steps, rows) is nonzero where a step samples a row."""
    steps, rows = inclusions.shape
    samples = SampleCollector(rate, rows, np.zeros(0, bool), steps, None)
    for inclusion in inclusions:
        samples.add(np.flatnonzero(inclusion), NO_ROWS)
    return noise.model_copy(
        update={"samples": (samples.summarise(release),), "checks": (*noise.checks, *samples.checks(release))}
    )
