"""A curator whose answers lack clipping or noise, on purpose. No guarantee: what it answers is for an explanation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dpbench.api import Chunk, Curator, RowFn, Teacher
from dpbench.errors import SpecError
from dpbench.harness.stated import Stated
from dpbench.privacy.core.curator import CLIPS, checked_clips
from dpbench.privacy.core.forms.blocks import Blocks, blocks_of
from dpbench.privacy.core.forms.rounding import weights_for


@dataclass(frozen=True)
class Kept:
    """What is kept of privacy when a learner asks."""

    noise: bool
    clipping: bool


class Lifted(Stated):
    """Asks a curator without noise, and says of sigma what the private run's did: a learner cannot tell them apart.

    Without clipping, rows are scaled by one factor for all of them, the mean of those that clipping would give each.
    So a sum keeps about the length that steps and learning rates were made for, and loses what clipping bends: that
    long rows count for less.

    Not covered: anything. Noise, where it is kept, is added in floating point to a sum that is exact for no neighbour.
    """

    __slots__ = ("_curator", "_kept", "_noise")

    def __init__(self, curator: Curator, sigma: Mapping[str, float], kept: Kept, noise: torch.Generator) -> None:
        super().__init__(curator.task, sigma)
        self._curator, self._kept, self._noise = curator, kept, noise

    def noisy_sum(
        self, rows: RowFn, *, release: str, clip: float | Sequence[float], chunk_size: int | None = None
    ) -> Any:
        """Ask for the sum, with what is kept; see `Curator.noisy_sum`."""
        clips, single = checked_clips(clip)
        ask = self._clipped if self._kept.clipping else self._scaled
        answers = ask(rows, release, clips, chunk_size)
        if self._kept.noise:
            spread = self._sigma[release] * len(clips) ** 0.5
            answers = [one + self._normal(one) * spread * bound for one, bound in zip(answers, clips, strict=True)]
        return answers[0] if single else tuple(answers)

    def noisy_choice(
        self, losses: RowFn, *, release: str, project: Tensor | None = None, chunk_size: int | None = None
    ) -> int:
        """Refuse."""
        raise only_sums(release)

    def noisy_choices(self, votes: RowFn, *, release: str, chunk_size: int | None = None) -> Tensor:
        """Refuse."""
        raise only_sums(release)

    def noisy_votes(
        self, teacher: Teacher, queries: Tensor, *, release: str, shards: int, confident: str | None = None,
        threshold: float = 0.0,
    ) -> Tensor:  # fmt: skip
        """Refuse."""
        raise only_sums(release)

    def map(self, transform: Callable[[Tensor], Tensor]) -> Curator:
        """Return a curator over the transformed rows, with the same things lifted."""
        return Lifted(self._curator.map(transform), self._sigma, self._kept, self._noise)

    def _clipped(self, rows: RowFn, release: str, clips: tuple[float, ...], chunk_size: int | None) -> list[Tensor]:
        return list(self._curator.noisy_sum(rows, release=release, clip=clips, chunk_size=chunk_size))

    def _scaled(self, rows: RowFn, release: str, clips: tuple[float, ...], chunk_size: int | None) -> list[Tensor]:
        def beside(chunk: Chunk) -> Blocks:
            blocks = blocks_of(rows(chunk))
            factors = [weights_for(block.norms(), bound) for block, bound in zip(blocks, clips, strict=True)]
            return Blocks((*blocks, torch.stack([*factors, torch.ones_like(factors[0])], 1)))  # (c, blocks + 1)

        free = (CLIPS[1],) * (len(clips) + 1)
        *sums, factors = self._curator.noisy_sum(beside, release=release, clip=free, chunk_size=chunk_size)
        count = float(factors[-1])
        return [total * (float(factor) / count if count else 1.0) for total, factor in zip(sums, factors, strict=False)]

    def _normal(self, like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=self._noise).to(like.device)


def only_sums(release: str) -> SpecError:
    """Return the refusal of a release that asks for something else."""
    return SpecError(
        f"Expected release {release!r} to ask for sums: what noise costs a choice or a vote is not explained. Compare "
        "runs at several epsilons, as in --epsilon 0.1,1,8,inf."
    )
