"""Several settings of one learner fitted at once over the same rows: one sample, one gather, one product a step.

It serves searches alone: `public-validation`, where public rows stand in for the private ones and nothing private is
read, and `private-unaccounted`, which is never ranked. No fit that a result states an epsilon for goes through it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dpbench.api import Chunk, Task
from dpbench.privacy.curator import LedgerCurator, checked_clips
from dpbench.privacy.forms.rounding import TINY, row_norms, unit_roundoff, weights_for
from dpbench.privacy.mechanisms import noised


@dataclass(frozen=True)
class Stacked:
    """Under setting j of s, row i contributes the outer product of left[j, :, i] and right[i].

    The right factor ends with a constant 1, the bias, which is not stored.
    """

    left: Tensor  # (s, m, c)
    right: Tensor  # (c, d)

    def norms(self) -> Tensor:
        """Return (s, c) float64: each row's norm under each setting, never under-estimated (see `rounding`)."""
        left: Tensor = torch.linalg.vector_norm(self.left, dim=1)
        guard = 1 + (self.left.shape[1] + 8) * unit_roundoff(left)
        right = row_norms(self.right).square_().add_(1).sqrt_().mul_(1 + 4 * unit_roundoff(torch.empty(0)))
        return left.double().mul_(guard).add_(TINY).mul_(right)


@dataclass(frozen=True)
class Stack:
    """The curators of several fits over the same rows, each made by `binding.bind`, asked together.

    All see the Poisson samples that the first one draws; each has its own sigma, clip, noise stream and ledger.

    Covered: each answer is what that fit's own curator would give for this sample, up to the rounding of a product, so
    each fit alone has the guarantee of its own plan and sigma. A row that is not finite under a setting counts as zero
    under that setting.
    Not covered: the fits together. They are several mechanisms on the same data: publishing more than one, or choosing
    by what they give, composes.
    """

    curators: tuple[LedgerCurator, ...]
    weight: float = 1.0  # what a row counts for: not 1 only where public rows stand in for the private ones

    @property
    def task(self) -> Task:
        """What is public about the rows, the same for all."""
        return self.curators[0].task

    @torch.no_grad()
    def noisy_sums(self, rows: Callable[[Chunk], Stacked], *, release: str, clips: Sequence[float]) -> Tensor:
        """Return the clipped, noised sums under every setting, float32 (s, m, d + 1), over one Poisson sample."""
        steps = [curator.ledger.spend(release) for curator in self.curators]
        bounds = torch.tensor(checked_clips(clips), dtype=torch.float64, device=self.task.device)
        draws = [curator.randomness.draws(release, curator.ledger.spent[release]) for curator in self.curators]
        lead = self.curators[0]
        sample = draws[0].sample(len(lead.rows), steps[0].sample_rate)
        total: Tensor | None = None
        for chunk in lead.rows.chunks(sample, draws[0].row_base(), None, self.task.device):
            part = _clipped_sums(rows(chunk), bounds)
            total = part if total is None else total.add_(part)
        assert total is not None  # there is at least one chunk, even of an empty sample
        return torch.stack(
            [
                noised(total[place], curator.sigma[release] * clips[place], draws[place]).mul_(self.weight)
                for place, curator in enumerate(self.curators)
            ]
        )

    def map(self, transform: Callable[[Tensor], Tensor]) -> Stack:
        """Return the stack over the transformed rows, which all fits share; see `Curator.map`."""
        mapped = self.curators[0].map(transform)
        curators = [dataclasses.replace(each, rows=mapped.rows, task=mapped.task) for each in self.curators]
        return dataclasses.replace(self, curators=tuple(curators))


def _clipped_sums(stacked: Stacked, bounds: Tensor) -> Tensor:
    """Return the float64 sums (s, m, d + 1) of rows scaled down to norm at most `bounds` (s,)."""
    left, right = stacked.left, stacked.right
    (settings, outputs, _), features = left.shape, right.shape[1]
    norms = stacked.norms()
    finite = norms.isfinite()
    if not bool(finite.all()):  # zero times NaN would be NaN, so both factors are emptied
        left = torch.where(finite.unsqueeze(1), left, 0)
        right = torch.where(right.isfinite().all(1, keepdim=True), right, 0)
    weights = weights_for(norms, bounds.unsqueeze(1))  # (s, c)
    weighted = (left * weights.to(left.dtype).unsqueeze(1)).flatten(0, 1)  # (s m, c)
    total = torch.empty(settings * outputs, features + 1, dtype=torch.float64, device=left.device)
    total[:, :-1] = weighted @ right
    total[:, -1] = weighted.sum(1)
    return total.reshape(settings, outputs, features + 1)
