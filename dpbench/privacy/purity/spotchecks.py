"""Rows are evaluated again at moments that nobody can foresee: beside other neighbours, and in a chunk of other length.

At the same place of a chunk of the same length every kernel does the same arithmetic in the same order, so a row comes
out equal to the last bit whatever its neighbours are, or it reads them. Chunks of another length round otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Chunk
from dpbench.errors import NotPerExample
from dpbench.privacy.exact.quantised import Quantised
from dpbench.privacy.forms.blocks import blocks_of
from dpbench.privacy.forms.contributions import Contribution
from dpbench.privacy.rows import wipe

PICKED = 8  # rows of a chunk that are compared
ONE_ROW, MOST_ROWS = 1e-3, 1e-5  # of a row's norm: what rounding may change in one row, and in half of the rows
WEIGHED = 2**18  # numbers of whole contributions that are compared where rounding must be told from reading
QUESTIONS, MAPS = (1, 4, 8, 16, 32, 64, 128, 256), (1, 2, 4, 8)  # one chunk of so many is checked; the last goes on

Evaluate = Callable[[Chunk], Any]


class Moments:
    """Draws one chunk of every run of chunks; runs grow, so a short fit is checked too and a long one loses little."""

    def __init__(self, lengths: Sequence[int], generator: np.random.Generator) -> None:
        self.generator = generator
        self._due = _moments(chain(lengths, repeat(lengths[-1])), generator)

    def due(self) -> bool:
        """Say whether the next chunk is to be checked."""
        return next(self._due)


def _moments(lengths: Iterator[int], generator: np.random.Generator) -> Iterator[bool]:
    for length in lengths:
        drawn = int(generator.integers(length))
        yield from (place == drawn for place in range(length))


def set_aside(chunk: Chunk, clips: Sequence[float], generator: np.random.Generator) -> Probe | None:
    """Copy some rows, before a row function may write in them; None if there is nothing to compare them with."""
    if len(chunk) < 2:
        return None
    picks = torch.from_numpy(generator.permutation(len(chunk))[: min(PICKED, len(chunk) // 2)])
    return Probe(chunk, clips, picks.to(chunk.y.device))


class Probe:
    """Some rows of a chunk, and what they contributed."""

    def __init__(self, chunk: Chunk, clips: Sequence[float], picks: Tensor) -> None:
        self._length, self._clips, self._picks = len(chunk), clips, picks
        self._rows = chunk.take(picks)

    def keep(self, blocks: Sequence[Contribution]) -> None:
        """Copy what the picked rows contributed."""
        self._kept = _parts(blocks, self._picks)
        numbers = max(1, sum(block.take(self._picks[:1]).dense().numel() for block in blocks))
        self._few = self._picks[: max(2, WEIGHED // numbers)]
        pairs = zip(blocks, self._clips, strict=False)  # whoever asked says so if there is not one clip per block
        self._weighed = [(_dense(block, self._few), _sizes(block, self._few), clip) for block, clip in pairs]

    def compare(self, rows: Evaluate, what: str) -> None:
        """Evaluate the picked rows beside others and in fewer.

        Raises:
            NotPerExample: they contributed something else.
        """
        places = torch.zeros(self._length, dtype=torch.int64, device=self._picks.device)
        places[self._picks] = torch.arange(len(self._picks), device=places.device)
        beside, weighed = self._again(rows, places, self._picks)
        if not _equal(self._kept, beside):
            repeats = _equal(beside, self._again(rows, places, self._picks)[0])  # or a device sums in no fixed order
            self._expect(not repeats and self._near(weighed), what, "beside other rows")
        self._expect(self._near(self._fewer(rows)), what, "among fewer rows")

    def _fewer(self, rows: Evaluate) -> list[Tensor]:
        """Return the picked rows, last first and each beside copies of itself.

        A single row may take other paths than two do: of convolutions it does, and a ReLU at 0 turns their rounding
        into a jump.
        """
        count = 2 if 2 * len(self._picks) != self._length else 3
        turned = torch.arange(len(self._picks), device=self._picks.device).flip(0)
        return self._again(rows, turned.repeat_interleave(count), turned * count)[1]

    def _again(self, rows: Evaluate, places: Tensor, picks: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Evaluate copies of the picked rows at these places; return those at `picks`, and a few of them whole."""
        chunk = self._rows.take(places)
        try:
            blocks = blocks_of(rows(chunk))
            return _parts(blocks, picks), [_dense(block, picks[: len(self._few)]) for block in blocks]
        finally:
            wipe(chunk.rows, chunk.y, chunk.seeds)

    def _near(self, others: list[Tensor]) -> bool:
        pairs = zip(self._weighed, others, strict=True)
        return all(_near(kept, other, sizes, clip) for (kept, sizes, clip), other in pairs)

    def _expect(self, kept: bool, what: str, where: str) -> None:
        if not kept:
            raise NotPerExample(
                f"{what} gave a row that changed when it was evaluated {where}: it reads its neighbours, the chunk's "
                "length or a generator. Row i may depend on row i, seeds[i] and public values only."
            )


def _parts(blocks: Sequence[Contribution], places: Tensor) -> list[Tensor]:
    """Return copies of all that describes some rows' contributions: factors, not their products."""
    taken = [block.take(places) for block in blocks]
    return [part.clone() for block in taken for part in _tensors(block) if part.shape[:1] == places.shape]


def _tensors(thing: Any) -> Iterator[Tensor]:
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, Quantised):
        yield from (thing.q, thing.scale)
    elif isinstance(thing, (Contribution, tuple)):
        inner = thing if isinstance(thing, tuple) else vars(thing).values()
        for one in inner:
            yield from _tensors(one)


def _dense(block: Contribution, places: Tensor) -> Tensor:
    return block.take(places).dense().flatten(1).clone()


def _sizes(block: Contribution, places: Tensor) -> Tensor:
    """Return the norms; a residual may be nothing but rounding, which its norm covers."""
    norms = block.take(places).norms()
    dense = torch.linalg.vector_norm(_dense(block, places).nan_to_num(), dim=1, dtype=torch.float64)
    return torch.maximum(dense, norms.where(norms.isfinite(), 0))


def _equal(kept: list[Tensor], others: list[Tensor]) -> bool:
    """Say whether parts are equal to the last bit."""
    return len(kept) == len(others) and all(
        one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())
        for one, other in zip(kept, others, strict=True)
    )


def _near(kept: Tensor, other: Tensor, sizes: Tensor, clip: float) -> bool:
    """Say whether rows differ by rounding; far below the clip there is nothing to tell."""
    if kept.shape != other.shape or not torch.equal(kept.isfinite(), other.isfinite()):
        return False
    change = torch.linalg.vector_norm((kept - other).nan_to_num(0, 0, 0), dim=1, dtype=torch.float64)
    share = (change - 1e-6 * clip).clamp(min=0) / sizes.clamp(min=1e-300)
    return bool(share.max() <= ONE_ROW) and bool(share.median() <= MOST_ROWS)
