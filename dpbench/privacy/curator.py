"""The curator: holds the private rows, spends the plan, answers with noise.

`LedgerCurator` is the harness's side, made by `binding.bind` alone. What a learner receives is its `handle()`: an
object whose attributes lead to no private row. Python cannot stop malice (a closure can be pried open); it can stop
accidents.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import torch
from torch import Tensor

from dpbench.api import Curator, RowFn, Task
from dpbench.errors import SpecError
from dpbench.privacy.exact.quantised import quantise
from dpbench.privacy.exact.surroundings import own_arithmetic
from dpbench.privacy.forms.contributions import Contribution
from dpbench.privacy.mechanisms import clipped_sum, noised
from dpbench.privacy.plan import Ledger
from dpbench.privacy.purity.guard import Guard
from dpbench.privacy.randomness import Randomness
from dpbench.privacy.rows import Gathering, PrivateRows
from dpbench.privacy.witness import NOBODY, Witness

CLIPS = (1e-9, 1e9)
MAPPED_BYTES = 2 * 2**20  # of a chunk that is mapped: what a map makes of it on the way is several times as large


@dataclasses.dataclass(frozen=True)
class LedgerCurator:
    """The private rows of one fit, with everything that may touch them; made by `binding.bind`, which see.

    Covered: every answer is a sum over a fresh Poisson sample of contributions clipped to `clip`, plus normal noise of
    std sigma[release] * clip * sqrt(blocks); no release gives more answers than planned. So all answers together have
    the (epsilon, delta) that the accountant states for the plan and sigma, under add-or-remove-one neighbours.
    Not covered: a learner that pries this object out of the handle's closures; timing; the size n, public by
    declaration.
    """

    rows: PrivateRows
    task: Task
    sigma: Mapping[str, float]
    ledger: Ledger
    randomness: Randomness
    guard: Guard
    witness: Witness = NOBODY

    def handle(self) -> Curator:
        """Return what a learner may hold."""
        return Handle(self.task, dict(self.sigma), self.noisy_sum, lambda map_: self.map(map_).handle())

    @own_arithmetic()
    def noisy_sum(
        self, rows: RowFn, *, release: str, clip: float | Sequence[float], chunk_size: int | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        """Spend, sample, clip, sum, noise; see `Curator.noisy_sum`. Spending first, a crash can only overcount."""
        if chunk_size is not None and chunk_size < 1:
            raise SpecError(f"Expected chunk_size={chunk_size} >= 1: how many rows are held at once.")
        step = self.ledger.spend(release)
        clips = checked_clips(clip)
        draws = self.randomness.draws(release, self.ledger.spent[release])
        whole = draws.sample(len(self.rows) + self.witness.members, step.sample_rate)
        sample, planted = self.witness.split(whole, len(self.rows))
        chunks = self.rows.chunks(sample, draws.row_base(), chunk_size, self.task.device)
        exact = self.sigma[release] > 0  # without noise there is nothing to guarantee
        totals: list[Any] = []
        with self.guard.judging(), closing(chunks):  # wiped at once, whatever a traceback holds
            for blocks in self.guard.contributions(rows, chunks, release, clips):
                paired = _paired(blocks, clips, release)
                sums = [block.integers(bound) if exact else clipped_sum(block, bound) for block, bound in paired]
                totals = [total + part for total, part in zip(totals, sums, strict=True)] if totals else sums
                del blocks, paired  # or two chunks of rows would be held at once
        spread = self.sigma[release] * math.sqrt(len(clips))
        if not exact:
            answers = tuple(total.float() for total in totals)
        else:
            if self.ledger.spent[release] == 1:
                draws.afford(sum(summed.total.numel() for summed in totals), step.steps)
            answers = tuple(noised(summed, spread * bound, draws) for summed, bound in zip(totals, clips, strict=True))
            stds = [(bound, spread * bound) for bound in clips]
            self.witness.answered(release, totals, stds, draws, len(sample), planted)
        return answers[0] if isinstance(clip, (int, float)) else answers

    @own_arithmetic()
    def map(self, transform: Callable[[Tensor], Tensor]) -> LedgerCurator:
        """Transform every row once, held to purity; see `Curator.map`."""
        sample = torch.arange(len(self.rows)).numpy()
        exact = any(self.sigma.values())
        gathering = Gathering(len(self.rows))
        chunks = self.rows.chunks(sample, 0, self.rows.per_chunk(MAPPED_BYTES), self.task.device)
        with closing(chunks):
            for (block,) in self.guard.mapped(transform, chunks):
                kept = block.dense().to(self.rows.held.device, torch.float32)
                gathering.add(quantise(kept) if exact else kept)
        x = gathering.rows()
        task = dataclasses.replace(self.task, example_shape=tuple(x.shape[1:]))
        rows = PrivateRows(x, self.rows.y, torch.arange(len(self.rows)))
        return dataclasses.replace(self, rows=rows, task=task)


class Handle(Curator):
    """The learner's side: no attribute of it leads to a private row."""

    __slots__ = ("_map", "_noisy_sum", "_sigma", "_task")

    def __init__(
        self,
        task: Task,
        sigma: Mapping[str, float],
        noisy_sum: Callable[..., Tensor | tuple[Tensor, ...]],
        mapped: Callable[[Callable[[Tensor], Tensor]], Curator],
    ) -> None:
        self._task, self._sigma, self._map = task, sigma, mapped

        def ask(rows: RowFn, **keywords: Any) -> Tensor | tuple[Tensor, ...]:  # a bound method would carry __self__
            return noisy_sum(rows, **keywords)

        self._noisy_sum = ask

    @property
    def task(self) -> Task:
        """What is public about the rows behind this handle."""
        return self._task

    @property
    def sigma(self) -> Mapping[str, float]:
        """The noise multiplier of each planned release."""
        return self._sigma

    def noisy_sum(
        self, rows: RowFn, *, release: str, clip: float | Sequence[float], chunk_size: int | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        """Ask the curator."""
        return self._noisy_sum(rows, release=release, clip=clip, chunk_size=chunk_size)

    def map(self, transform: Callable[[Tensor], Tensor]) -> Curator:
        """Return a handle on the transformed rows, on the same ledger."""
        return self._map(transform)


def checked_clips(clip: float | Sequence[float]) -> tuple[float, ...]:
    """Return the bounds, one a block, or refuse one that bounds nothing.

    Raises:
        SpecError: a clip that is not between the limits of `CLIPS`.
    """
    clips = (float(clip),) if isinstance(clip, (int, float)) else tuple(map(float, clip))
    for bound in clips:
        if not CLIPS[0] <= bound <= CLIPS[1]:
            raise SpecError(
                f"Expected clip={bound} in [{CLIPS[0]:g}, {CLIPS[1]:g}]: the L2 bound on one example's row."
            )
    return clips


def _paired(
    blocks: tuple[Contribution, ...], clips: tuple[float, ...], release: str
) -> list[tuple[Contribution, float]]:
    if len(blocks) != len(clips):
        raise SpecError(
            f"Release {release!r} contributed {len(blocks)} block(s) with {len(clips)} clip(s); "
            "expected one clip per block."
        )
    return list(zip(blocks, clips, strict=True))
