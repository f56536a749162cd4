"""Private rows as the harness holds them: never copied whole, read one sample at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Chunk
from dpbench.errors import NotPerExample
from dpbench.privacy.randomness import row_seeds

CHUNK_BYTES = 12 * 2**20


class Scratch:
    """One buffer for chunks, kept between steps: fresh pages at every step would cost more than the gather."""

    def __init__(self) -> None:
        self._buffer: Tensor | None = None
        self._lent = False

    @contextmanager
    def lend(self, count: int, shape: tuple[int, ...], device: torch.device) -> Iterator[Tensor]:
        """Lend (count, *shape) float32 for one question; whatever was read into it is gone afterwards.

        Raises:
            NotPerExample: it is lent already: a row function asked the curator, so rows would read other rows.
        """
        if self._lent:
            raise NotPerExample("A row function asked the curator a question of its own. Ask outside row functions.")
        buffer = self._rows(count, shape, device)  # first, as it may not fit into memory
        self._lent = True
        try:
            yield buffer
        finally:
            buffer.fill_(torch.nan)
            self._lent = False

    def _rows(self, count: int, shape: tuple[int, ...], device: torch.device) -> Tensor:
        held = self._buffer
        if held is None or len(held) < count or tuple(held.shape[1:]) != shape:
            held = self._buffer = torch.empty((count + count // 4, *shape), device=device)  # samples vary in size
        return held[:count]


@dataclass(frozen=True)
class PrivateRows:
    """Rows of a (memory-mapped) array, chosen by index."""

    x: Tensor  # (N, *example_shape) float32
    y: Tensor  # (n,) int64
    index: Tensor  # (n,) int64 into x, ascending
    scratch: Scratch = field(default_factory=Scratch, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def example_shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        return tuple(self.x.shape[1:])

    def chunks(self, sample: np.ndarray, base: int, limit: int | None, device: torch.device) -> Iterator[Chunk]:
        """Yield the sampled rows in chunks of at most `limit`, at least one chunk, all in one buffer.

        A chunk is a copy: nothing done to it reaches the data. The buffer is overwritten by the next chunk and filled
        with NaN after the last, so a chunk kept beyond its row function holds no private row.
        """
        size = min(limit or self._rows_per_chunk(), len(self))
        with self.scratch.lend(min(size, max(1, len(sample))), self.example_shape, device) as buffer:
            for start in range(0, max(1, len(sample)), size):
                rows = sample[start : start + size]
                local = torch.from_numpy(rows)
                x = self._gather(local, buffer[: len(rows)])
                yield Chunk(
                    x, self.y.index_select(0, local).to(device), torch.from_numpy(row_seeds(base, rows)).to(device)
                )

    def _gather(self, local: Tensor, into: Tensor) -> Tensor:
        rows = self.index.index_select(0, local)
        if into.device == self.x.device:
            return torch.index_select(self.x, 0, rows, out=into)
        return into.copy_(self.x[rows])

    def _rows_per_chunk(self) -> int:
        return max(1, CHUNK_BYTES // (4 * max(1, math.prod(self.example_shape))))
