"""The types of a question: row functions, and the chunks that they receive. Imports no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from dpbench.privacy.core.exact.quantised import QuantisedRows
    from dpbench.privacy.core.forms.blocks import Blocks
    from dpbench.privacy.core.forms.contributions import Contribution


@dataclass(frozen=True)
class Chunk:
    """Part of one private sample. It exists only while a row function runs and is overwritten afterwards."""

    rows: Tensor | QuantisedRows  # (c, *example_shape) float32, or float16 as cached; in 8 bits once mapped; c may be 0
    y: Tensor  # (c,) int64
    seeds: Tensor  # (c,) int64: the only randomness row i may use (augmentation)

    def __len__(self) -> int:
        """Return c, the number of rows."""
        return self.y.shape[0]  # a third of the time of len, at every step

    @property
    def x(self) -> Tensor:
        """The rows as float32. Mapped rows are copied; `RankOne` and `exact_linear` accept `rows` without a copy."""
        return self.rows.float()

    def take(self, rows: Tensor) -> Chunk:
        """Return a copy of the rows with these indices."""
        return Chunk(self.rows.index_select(0, rows), self.y.index_select(0, rows), self.seeds.index_select(0, rows))


RowFn = Callable[[Chunk], "Tensor | Contribution | Blocks"]
"""A row function: maps a chunk to one contribution per row."""
Teacher = Callable[[Chunk, "Tensor"], "Tensor"]
"""A teacher: maps a shard and public queries (m, ...) to a label for each query, (m,) int64."""


class BaseCurator(ABC):
    """Base class of curators. The guard skips dpbench's own curators, because they change with every question."""

    __slots__ = ()

    @abstractmethod
    def answer(self, question: Any) -> Any:
        """Return the answer to a question, or raise an error to refuse it."""
