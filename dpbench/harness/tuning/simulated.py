"""A curator over public stand-ins that answers as one over the private rows would."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from dpbench.api import Curator, RowFn, Teacher
from dpbench.harness.stated import Stated
from dpbench.privacy.core.curator import LedgerCurator


class SimulatedCurator(Stated):
    """Each public row counts `weight` times, so that sums have the size of the real run, and noise its share of them.

    The learner sees its real task, sigma and plan. Nothing private is behind it.

    Args:
        curator: over the stand-ins, bound with the real sigma divided by `weight`: multiplied by it, its answers have
            the noise of the real run.
        sigma: the real noise multipliers.
        weight: private examples that one row stands for.
    """

    def __init__(self, curator: LedgerCurator, sigma: Mapping[str, float], weight: float) -> None:
        super().__init__(curator.task, sigma)
        self._curator, self._weight = curator, weight

    def noisy_sum(
        self, rows: RowFn, *, release: str, clip: float | Sequence[float], chunk_size: int | None = None
    ) -> Any:
        """Answer for the stand-ins, each counted `weight` times."""
        answer = self._curator.noisy_sum(rows, release=release, clip=clip, chunk_size=chunk_size)
        return tuple(part * self._weight for part in answer) if isinstance(answer, tuple) else answer * self._weight

    def noisy_choice(
        self, losses: RowFn, *, release: str, project: Tensor | None = None, chunk_size: int | None = None
    ) -> int:
        """Choose by the stand-ins' losses: a share of sigma makes eps0 as much larger as totals are smaller."""
        return self._curator.noisy_choice(losses, release=release, project=project, chunk_size=chunk_size)

    def noisy_choices(self, votes: RowFn, *, release: str, chunk_size: int | None = None) -> Tensor:
        """Choose by the stand-ins' votes, as `noisy_choice` does."""
        return self._curator.noisy_choices(votes, release=release, chunk_size=chunk_size)

    def noisy_votes(
        self, teacher: Teacher, queries: Tensor, *, release: str, shards: int, confident: str | None = None,
        threshold: float = 0.0,
    ) -> Tensor:  # fmt: skip
        """Have as many fewer teachers vote, over shards of the real size, and count each `weight` times."""
        fewer = max(1, round(shards / self._weight))
        return self._weight * self._curator.noisy_votes(
            teacher, queries, release=release, shards=fewer, confident=confident, threshold=threshold / self._weight
        )

    def map(self, transform: Callable[[Tensor], Tensor]) -> Curator:
        """Map the stand-ins."""
        return SimulatedCurator(self._curator.map(transform), self._sigma, self._weight)
