"""What a question needs of the guard around the functions that it calls; `purity.guard` provides it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from dpbench.privacy.core.chunk import Chunk

if TYPE_CHECKING:
    from torch import Tensor

    from dpbench.privacy.core.forms.contributions import Contribution


class RowGuard(Protocol):
    """Calls the row functions of a fit and returns what they contribute."""

    def remember_refusals(self) -> AbstractContextManager[None]:
        """Remember what is refused in here: a refusal is final."""

    def conclude(self) -> None:
        """Raise what was refused, if anything was."""

    def contributions(
        self, rows: Callable[[Chunk], Any], chunks: Iterable[Chunk], release: str, clips: Sequence[float]
    ) -> Iterator[tuple[Contribution, ...]]:
        """Yield the blocks that a row function makes of each chunk."""

    def over_none(self, rows: Callable[[Chunk], Any], none: Chunk, release: str) -> tuple[Contribution, ...]:
        """Return the blocks that a row function makes of a chunk of no rows."""

    def labels(
        self, teacher: Callable[[Chunk], Any], shards: Iterable[Chunk], release: str, checked: Callable[[Any], Tensor]
    ) -> Iterator[Tensor]:
        """Yield what a teacher says of each shard, as `checked` reads it."""

    def map_rows(
        self, transform: Callable[[Tensor], Tensor], chunks: Iterable[Chunk]
    ) -> Iterator[tuple[Contribution, ...]]:
        """Yield what a transform makes of each chunk's rows."""
