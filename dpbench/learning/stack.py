"""Several settings of one learner fitted at once over the same rows: one sample, one gather, one product a step.

It serves searches alone: `public-validation`, where public rows stand in for the private ones and nothing private is
read, and `private-unaccounted`, which is never ranked. No fit that a result states an epsilon for goes through it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Chunk, Task
from dpbench.privacy.core.curator import LedgerCurator, checked_clips, rows_at_once
from dpbench.privacy.core.exact.quantised import LARGEST, Quantised, floats, quantise
from dpbench.privacy.core.exact.sums import IntegerSum, lengths, outer_sum
from dpbench.privacy.core.exact.surroundings import own_arithmetic
from dpbench.privacy.core.forms.rounding import row_norms, weights_for
from dpbench.privacy.core.noise import noised
from dpbench.privacy.core.randomness import Draws, Std
from dpbench.privacy.core.rows import Scratch


@dataclass(frozen=True)
class Stacked:
    """Under setting j of s, row i contributes the outer product of left[j, :, i] and right[i].

    The right factor ends with a constant 1, the bias, which is not stored.
    """

    left: Tensor  # (s, m, c)
    right: Tensor | Quantised  # (c, d)

    def integers(self, clips: tuple[float, ...]) -> IntegerSum:
        """Return the clipped sums (s, m, d + 1) under clips (s,), each as its own fit's `RankOne` gives it."""
        right = self.right if isinstance(self.right, Quantised) else quantise(self.right)
        return outer_sum(self.left, right, True, clips)

    def norms(self) -> Tensor:
        """Return (s, c) float64: each row's norm under each setting, never under-estimated."""
        right = row_norms(floats(self.right)).square_().add_(1).sqrt_().mul_(1 + 2.0**-40)
        norms = lengths(self.left).mul_(right)
        return norms.masked_fill_(~(norms <= LARGEST**2), torch.inf)


@dataclass(frozen=True)
class SideBySide:
    """The noise of several fits, each from its own stream."""

    draws: Sequence[Draws]

    def noise(self, shape: Sequence[int], std: Std) -> np.ndarray:
        """Return (s, ...) noise: part j is what fit j draws with standard deviation std[j]."""
        stds = np.broadcast_to(std, (len(self.draws), *np.shape(std)[1:]))
        return np.stack([each.noise(shape[1:], one) for each, one in zip(self.draws, stds, strict=True)])


@dataclass(frozen=True)
class Stack:
    """The curators of several fits over the same rows, each made by `binding.bind`, asked together.

    All see the Poisson samples that the first one draws; each has its own sigma, clip, noise stream and ledger.

    Covered: each answer is what that fit's own curator would give for this sample, beside noise to the same integers. A
    row that is not finite under a setting counts as zero under that setting.
    Not covered: what row functions remember or read of other rows, which nothing compares here; and the fits together.
    They are several mechanisms on the same data: publishing more than one, or choosing by what they give, composes.
    """

    curators: tuple[LedgerCurator, ...]
    weight: float = 1.0  # what a row counts for: not 1 only where public rows stand in for the private ones

    @property
    def task(self) -> Task:
        """What is public about the rows, the same for all."""
        return self.curators[0].task

    @own_arithmetic()
    def noisy_sums(self, rows: Callable[[Chunk], Stacked], *, release: str, clips: Sequence[float]) -> Tensor:
        """Return the clipped, noised sums under every setting, float32 (s, m, d + 1), over one Poisson sample."""
        steps = [curator.ledger.spend(release) for curator in self.curators]
        bounds, _ = checked_clips(clips)
        limits = torch.tensor(bounds, dtype=torch.float64, device=self.task.device)
        draws = [curator.randomness.draws(release, curator.ledger.spent[release]) for curator in self.curators]
        lead = self.curators[0]
        sample = draws[0].sample(len(lead.rows), steps[0].sample_rate)
        exact = any(curator.sigma[release] > 0 for curator in self.curators)
        parts: list[Any] = []
        limit = rows_at_once(lead.rows, len(draws) * self.task.classes)
        for chunk in lead.rows.chunks(sample, draws[0].row_base(), limit, self.task.device):
            part = rows(chunk).integers(bounds) if exact else _clipped_sums(rows(chunk), limits)
            parts = [parts[0] + part] if parts else [part]
        if not exact:
            return torch.as_tensor(parts[0]).float() * self.weight
        stds = [curator.sigma[release] * clip for curator, clip in zip(self.curators, bounds, strict=True)]
        return noised(parts[0], np.array(stds).reshape(-1, 1, 1), SideBySide(draws)).mul_(self.weight)

    def map(self, transform: Callable[[Tensor], Tensor]) -> Stack:
        """Return the stack over the transformed rows, which all fits share; see `Curator.map`."""
        mapped = self.curators[0].map(transform)
        return self.over(dataclasses.replace(self, curators=(mapped,)))

    def over(self, other: Stack) -> Stack:
        """Return these fits over the rows of another stack, with buffers of their own: a fit may fail halfway."""
        rows, task = other.curators[0].rows, other.task
        rows = dataclasses.replace(rows, scratch=Scratch())
        curators = [dataclasses.replace(each, rows=rows, task=task) for each in self.curators]
        return dataclasses.replace(self, curators=tuple(curators))

    def take(self, places: Sequence[int]) -> Stack:
        """Return some of the fits."""
        return dataclasses.replace(self, curators=tuple(self.curators[place] for place in places))


def _clipped_sums(stacked: Stacked, bounds: Tensor) -> Tensor:
    """Return the float64 sums (s, m, d + 1) of rows scaled down to norm at most `bounds` (s,): for epsilon = inf."""
    norms, left = stacked.norms(), stacked.left
    broken = ~norms.isfinite()
    if bool(broken.any()):  # zero times NaN would be NaN, so both factors are emptied
        left = left.masked_fill(broken.unsqueeze(1), 0)
    right = torch.nn.functional.pad(floats(stacked.right).nan_to_num(0, 0, 0), (0, 1), value=1.0)
    weights = weights_for(norms, bounds.unsqueeze(1))  # (s, c)
    return ((left * weights.to(left.dtype).unsqueeze(1)) @ right).double()
