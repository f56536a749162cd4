"""Private rows as the harness holds them: never copied whole, read one sample at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Chunk
from dpbench.privacy.randomness import row_seeds

CHUNK_BYTES = 12 * 2**20


class Scratch:
    """One buffer for chunks, kept between steps: fresh pages at every step would cost more than the gather."""

    def __init__(self) -> None:
        self._buffer: Tensor | None = None

    def rows(self, count: int, shape: tuple[int, ...], device: torch.device) -> Tensor:
        """Return (count, *shape) float32, whatever it held before."""
        held = self._buffer
        if held is None or len(held) < count or tuple(held.shape[1:]) != shape:
            held = self._buffer = torch.empty((count, *shape), device=device)
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
        buffer = self.scratch.rows(size, self.example_shape, device)
        try:
            for start in range(0, max(1, len(sample)), size):
                rows = sample[start : start + size]
                local = torch.from_numpy(rows)
                x = self._gather(local, buffer[: len(rows)])
                yield Chunk(x, self.y[local].to(device), torch.from_numpy(row_seeds(base, rows)).to(device))
        finally:
            buffer[: len(sample)].fill_(torch.nan)

    def _gather(self, local: Tensor, into: Tensor) -> Tensor:
        rows = self.index[local]
        if into.device == self.x.device:
            return torch.index_select(self.x, 0, rows, out=into)
        return into.copy_(self.x[rows])

    def _rows_per_chunk(self) -> int:
        return max(1, CHUNK_BYTES // (4 * max(1, math.prod(self.example_shape))))
