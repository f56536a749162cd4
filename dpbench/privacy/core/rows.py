"""Private rows in the harness: they are read one sample at a time and never copied as a whole."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from dpbench.errors import NotPerExample, SpecError
from dpbench.privacy.core.chunk import Chunk
from dpbench.privacy.core.exact.quantised import QuantisedRows, assemble_rows
from dpbench.privacy.core.randomness import row_seeds

CHUNK_BYTES = 12 * 2**20


class RowGatherer:
    """Copies rows that arrive in parts into arrays of the final size, without a second copy of them all."""

    def __init__(self, count: int) -> None:
        self._count, self.filled = count, 0
        self._arrays: tuple[Tensor, ...] = ()

    def add(self, rows: Tensor | QuantisedRows) -> None:
        """Copy the next rows to their final place."""
        parts = rows.parts if isinstance(rows, QuantisedRows) else (rows,)
        self._arrays = self._arrays or tuple(part.new_empty(self._count, *part.shape[1:]) for part in parts)
        for part, array in zip(parts, self._arrays, strict=True):
            array[self.filled : self.filled + len(part)] = part
        self.filled += len(rows)

    def rows(self) -> Tensor | QuantisedRows:
        """Return all gathered rows."""
        return assemble_rows(*self._arrays) if self._arrays[1:] else self._arrays[0]


def wipe(*tensors: Tensor | QuantisedRows) -> None:
    """Overwrite tensors of rows, labels or seeds, so that they hold no private value any more."""
    for tensor in tensors:
        for part in tensor.parts if isinstance(tensor, QuantisedRows) else (tensor,):
            part.fill_(torch.nan if part.is_floating_point() else 0)


class ChunkBuffers:
    """Buffers for chunks, reused between steps: allocating memory at every step would cost more than copying rows."""

    def __init__(self) -> None:
        self._buffers: tuple[Tensor, ...] = ()
        self._kinds: list[tuple[torch.Size, torch.dtype]] = []
        self._lent = False

    @contextmanager
    def lend_buffers(
        self, count: int, example_tensors: tuple[Tensor, ...], device: torch.device
    ) -> Iterator[tuple[Tensor, ...]]:
        """Lend buffers of `count` rows like these tensors for one question, and wipe them afterwards.

        Raises:
            NotPerExample: the buffers are already lent, because a row function asked the curator a question.
        """
        if self._lent:
            raise NotPerExample("A row function asked the curator a question. Ask questions outside row functions.")
        buffers = self._rows(count, example_tensors, device)  # first, as they may not fit into memory
        self._lent = True
        try:
            yield buffers
        finally:
            wipe(*buffers)
            self._lent = False

    def _rows(self, count: int, example_tensors: tuple[Tensor, ...], device: torch.device) -> tuple[Tensor, ...]:
        kinds = [(tensor.shape[1:], tensor.dtype) for tensor in example_tensors]
        if kinds != self._kinds or self._buffers[0].shape[0] < count:
            # Samples vary in size. Fresh memory may hold what other tensors left in it.
            wide = count + count // 4
            with torch.inference_mode(False):  # a later question may write to them outside
                self._buffers = tuple(torch.empty((wide, *shape), dtype=kind, device=device) for shape, kind in kinds)
            self._kinds = kinds
            wipe(*self._buffers)
        return tuple(held[:count] for held in self._buffers)


class PrivacyUnits:
    """The unit of each row, such as its patient or lesion. Epsilon is stated per unit, so whole units are sampled.

    The number of units is public by declaration; the number of rows in a unit is not.

    Raises:
        SpecError: `of` is not one whole number per row, counted from 0 without gaps.
    """

    def __init__(self, of: np.ndarray) -> None:
        sizes = (
            np.bincount(of) if of.dtype == np.int64 and of.ndim == 1 and len(of) and of.min() >= 0 else np.zeros(1, int)
        )
        if not sizes.all():
            raise SpecError("Expected one whole number per row as its unit, counted from 0 without gaps.")
        self.of, self.count = of, len(sizes)
        self._order = np.argsort(of, kind="stable")  # rows, unit by unit
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        exact = sizes & (sizes - 1) == 0  # powers of two; others are rounded down: the shares of a unit add up to <= 1
        self.shares = torch.from_numpy(np.where(exact, 1 / sizes, np.nextafter(1 / sizes, 0))[of])  # (n,) float64

    def rows(self, sample: np.ndarray) -> np.ndarray:
        """Return the rows of these units, ascending."""
        if len(sample) == self.count:
            return np.arange(len(self.of))
        sizes = self._starts[sample + 1] - self._starts[sample]
        before = np.repeat(self._starts[sample] - (np.cumsum(sizes) - sizes), sizes)
        return np.sort(self._order[before + np.arange(len(before))])


@dataclass(frozen=True)
class PrivateRows:
    """Private rows: an array, often memory-mapped, and the indices of rows in use. `MapQuestion` makes 8-bit rows."""

    held: Tensor | QuantisedRows  # (N, *example_shape), float32, float16 as cached, or in 8 bits
    y: Tensor  # (n,) int64: y[i] belongs to held[index[i]]
    index: Tensor  # (n,) int64, rows of `held`, ascending
    units: PrivacyUnits | None = None  # whose each of the n rows is; None where each is a unit of its own
    scratch: ChunkBuffers = field(default_factory=ChunkBuffers, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def count(self) -> int:
        """Number of units, each of which is sampled independently."""
        return self.units.count if self.units else len(self)

    def expand_units(self, sample: np.ndarray, device: torch.device) -> tuple[np.ndarray, Tensor | None]:
        """Return the rows of a sample's units, ascending, and each row's share of its unit, on `device`.

        A row's share of a unit with m rows is 1 / m, rounded down. If each row is a unit of its own, return None in
        place of the shares.
        """
        if self.units is None:
            return sample, None
        rows = self.units.rows(sample)
        return rows, self.units.shares[torch.from_numpy(rows)].to(device)

    @property
    def x(self) -> Tensor:
        """All rows of the array, as float32, including rows that `index` does not select."""
        return self.held.float()

    @property
    def example_shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        return tuple(self.held.shape[1:])

    def chunks(
        self, sample: np.ndarray, base: int | None, limit: int | None, device: torch.device
    ) -> Generator[Chunk, None, None]:
        """Yield sampled rows in chunks of at most `limit`, in a reused buffer; an empty sample yields an empty chunk.

        If `limit` is None or 0, a chunk has as many rows as fit into `CHUNK_BYTES`. Row seeds are derived from `base`;
        if it is None, for functions that do not read seeds, they are all 0.

        A chunk is a copy: writing to it does not change the data. The next chunk overwrites the buffer; if it is
        shorter, the rest is wiped, and after the last chunk the whole buffer is wiped. So a row function that keeps a
        chunk keeps no private row, and the memory around a chunk holds no row of another chunk. Labels and seeds are
        wiped after each chunk.
        """
        size = min(limit or self.count_rows_per_chunk(CHUNK_BYTES), len(self))
        with self.scratch.lend_buffers(min(size, max(1, len(sample))), self._parts, device) as buffers:
            for start in range(0, max(1, len(sample)), size):
                rows = sample[start : start + size]
                held = buffers
                if len(rows) < buffers[0].shape[0]:
                    held = tuple(buffer[: len(rows)] for buffer in buffers)
                    wipe(*(buffer[len(rows) :] for buffer in buffers))
                x, y = self._copy_into_buffers(rows, held), self.y.index_select(0, torch.from_numpy(rows)).to(device)
                seeds = torch.zeros_like(y) if base is None else torch.from_numpy(row_seeds(base, rows)).to(device)
                try:
                    yield Chunk(x, y, seeds)
                finally:
                    wipe(y, seeds)

    @property
    def _parts(self) -> tuple[Tensor, ...]:
        return self.held.parts if isinstance(self.held, QuantisedRows) else (self.held,)

    def places(self, sample: np.ndarray) -> np.ndarray:
        """Return the array positions of the rows in a sample."""
        found: np.ndarray = sample if self._holds_all_rows else self.index.numpy()[sample]
        return found

    def _copy_into_buffers(self, local: np.ndarray, into: tuple[Tensor, ...]) -> Tensor | QuantisedRows:
        places = self.places(local)
        first, last = (places[0], places[-1]) if len(places) else (0, 0)
        run = last - first == len(places) - 1  # neighbours are copied as they lie
        rows = torch.from_numpy(places)
        for part, buffer in zip(self._parts, into, strict=True):
            if run:
                buffer.copy_(part[first : last + 1])
            elif buffer.device == part.device:
                torch.index_select(part, 0, rows, out=buffer)
            else:
                buffer.copy_(part[rows])
        return assemble_rows(*into) if isinstance(self.held, QuantisedRows) else into[0]

    def count_rows_per_chunk(self, size: int) -> int:
        """Return the number of rows that fit into a chunk of `size` bytes, at least one."""
        return max(1, size // max(1, self._row_bytes))

    @cached_property
    def _holds_all_rows(self) -> bool:
        return torch.equal(self.index, torch.arange(len(self.held)))

    @cached_property
    def _row_bytes(self) -> int:
        return sum(part.element_size() * math.prod(part.shape[1:]) for part in self._parts)
