"""The interface of the guard, which checks the functions that questions call; `purity.guard` implements it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from dpbench.privacy.core.chunk import Chunk

if TYPE_CHECKING:
    from torch import Tensor

    from dpbench.privacy.core.forms.contributions import Contribution


class RowGuard(Protocol):
    """Calls the row functions, teachers and transforms of a fit, checks them, and yields their results."""

    def remember_refusals(self) -> AbstractContextManager[None]:
        """Return a context that raises an earlier refusal, if there is one, and remembers every refusal inside it."""

    def raise_earlier_refusal(self) -> None:
        """Raise the refusal of an earlier question, if any question was refused."""

    def contributions(
        self, rows: Callable[[Chunk], Any], chunks: Iterable[Chunk], release: str, clips: Sequence[float]
    ) -> Iterator[tuple[Contribution, ...]]:
        """Yield the blocks that a row function returns for each chunk of rows."""

    def blocks_of_empty_chunk(
        self, rows: Callable[[Chunk], Any], empty: Chunk, release: str
    ) -> tuple[Contribution, ...]:
        """Call a row function on an empty chunk and return its blocks."""

    def labels(
        self,
        teacher: Callable[[Chunk], Any],
        shards: Iterable[Chunk],
        release: str,
        check_labels: Callable[[Any], Tensor],
    ) -> Iterator[Tensor]:
        """Yield a teacher's labels for each shard, checked by `check_labels`."""

    def map_rows(
        self, transform: Callable[[Tensor], Tensor], chunks: Iterable[Chunk]
    ) -> Iterator[tuple[Contribution, ...]]:
        """Yield the blocks of each chunk's transformed rows."""
