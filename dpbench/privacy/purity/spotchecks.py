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

from dpbench.errors import NotPerExample
from dpbench.privacy.core.chunk import Chunk
from dpbench.privacy.core.exact.quantised import QuantisedRows
from dpbench.privacy.core.forms.blocks import blocks_of
from dpbench.privacy.core.forms.contributions import Contribution
from dpbench.privacy.core.rows import wipe

FEW = 8  # rows of a chunk that are compared among fewer
MANY = 2**17  # numbers of the rows that are compared beside others: half of a chunk's, or as many as these are
ONE_ROW, MOST_ROWS = 1e-3, 1e-5  # of a row's norm: what rounding may change in one row, and in half of the rows
WEIGHED = 2**18  # numbers of whole contributions that are compared where rounding must be told from reading
QUESTIONS, MAPS = (1, 4, 8, 16, 32, 64, 128, 256), (1, 2, 4, 8)  # one chunk of so many is checked; the last goes on

Evaluate = Callable[[Chunk], Any]


class CheckSchedule:
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
    numbers = max(1, chunk.rows[:1].numel() if isinstance(chunk.rows, Tensor) else chunk.rows.parts[0][:1].numel())
    picks = torch.from_numpy(generator.permutation(len(chunk))[: _affordable(len(chunk) // 2, numbers)])
    return Probe(chunk, clips, picks.to(chunk.y.device))


def _affordable(count: int, numbers: int) -> int:
    """Return how many of `count` rows of so many numbers are compared."""
    return min(count, max(FEW, MANY // numbers))


class Probe:
    """Some rows of a chunk, and what they contributed."""

    def __init__(self, chunk: Chunk, clips: Sequence[float], picks: Tensor) -> None:
        self._length, self._clips, self._picks = len(chunk), clips, picks
        self._rows = chunk.take(picks)

    def keep(self, blocks: Sequence[Contribution]) -> None:
        """Copy what the picked rows contributed; of wide contributions those of fewer."""
        numbers = sum(part[:1].numel() for part in _factors(blocks))
        self._picks = self._picks[: _affordable(len(self._picks), max(1, numbers))]
        self._kept = [block.take(self._picks) for block in blocks]
        self._copies = [part.clone() for part in _described(self._kept)]  # a scale is shared, and may be written in

    def compare(self, rows: Evaluate, what: str) -> None:
        """Evaluate the picked rows beside others and in fewer.

        Raises:
            NotPerExample: they contributed something else.
        """
        places = torch.zeros(self._length, dtype=torch.int64, device=self._picks.device)
        places[self._picks] = torch.arange(len(self._picks), device=places.device)
        beside = self._again(rows, places, self._picks)
        if not _equal(self._kept, beside):
            repeats = _equal(beside, self._again(rows, places, self._picks))  # or a device sums in no fixed order
            self._expect(not repeats and self._near(self._kept, beside), what, "beside other rows")
        few = torch.arange(min(FEW, len(self._picks)), device=self._picks.device)
        kept = [block.take(few) for block in self._kept]
        self._expect(self._near(kept, self._fewer(rows, len(few))), what, "among fewer rows")

    def _fewer(self, rows: Evaluate, few: int) -> list[Contribution]:
        """Return the first of the picked rows, last first and each beside copies of itself.

        A single row may take other paths than two do: of convolutions it does, and a ReLU at 0 turns their rounding
        into a jump.
        """
        count = 2 if 2 * few != self._length else 3
        turned = torch.arange(few, device=self._picks.device).flip(0)
        return self._again(rows, turned.repeat_interleave(count), turned * count)

    def _again(self, rows: Evaluate, places: Tensor, picks: Tensor) -> list[Contribution]:
        """Evaluate copies of the picked rows at these places; return those at `picks`."""
        chunk = self._rows.take(places)
        try:
            return [block.take(picks) for block in blocks_of(rows(chunk))]
        finally:
            wipe(chunk.rows, chunk.y, chunk.seeds)

    def _near(self, ours: list[Contribution], others: list[Contribution]) -> bool:
        """Say whether rows are equal or differ by rounding; of wide rows, which are written out, in a few."""
        if not _same(self._copies, _described(self._kept)):
            return False
        if _same(ours, others):
            return True
        few = torch.arange(len(ours[0]), device=self._picks.device)
        numbers = max(1, sum(block.take(few[:1]).dense().numel() for block in ours))
        few = few[: max(2, WEIGHED // numbers)]
        triples = zip(ours, others, self._clips, strict=True)
        return all(_near(kept.take(few), other.take(few), clip) for kept, other, clip in triples)

    def _expect(self, kept: bool, what: str, where: str) -> None:
        if not kept:
            raise NotPerExample(
                f"{what} gave a row that changed when it was evaluated {where}: it reads its neighbours, the chunk's "
                "length or a generator. Row i may depend on row i, seeds[i] and public values only."
            )


def _tensors(thing: Any) -> Iterator[Tensor]:
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, QuantisedRows):
        yield from (thing.q, thing.scale)
    elif isinstance(thing, (Contribution, tuple)):
        inner = thing if isinstance(thing, tuple) else vars(thing).values()
        for one in inner:
            yield from _tensors(one)


def _described(blocks: Sequence[Contribution]) -> list[Tensor]:
    return [part for block in blocks for part in _tensors(block)]


def _equal(kept: Sequence[Contribution], others: Sequence[Contribution]) -> bool:
    """Say whether all that describes each row, its factors and not their product, is equal to the last bit."""
    return _same(_factors(kept), _factors(others))


def _factors(blocks: Sequence[Contribution]) -> list[Tensor]:
    return [part for block in blocks for part in _tensors(block) if part.shape[:1] == (len(block),)]


def _same(one: Any, other: Any) -> bool:
    """Say whether things hold the same to the last bit: contributions that do, public parts and all, have one sum."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())
    if type(one) is not type(other):
        return False
    if isinstance(one, QuantisedRows):
        return _same(one.q, other.q) and _same(one.scale, other.scale)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return _same([*vars(one).values()], [*vars(other).values()]) if isinstance(one, Contribution) else one is other


def _near(kept: Contribution, other: Contribution, clip: float) -> bool:
    """Say whether rows differ by rounding; far below the clip there is nothing to tell."""
    one, two = kept.dense().flatten(1), other.dense().flatten(1)
    if one.shape != two.shape or not torch.equal(one.isfinite(), two.isfinite()):
        return False
    norms = kept.norms()  # a residual may be nothing but rounding, which its norm covers
    whole = torch.linalg.vector_norm(one.nan_to_num(), dim=1, dtype=torch.float64)
    sizes = torch.maximum(whole, norms.where(norms.isfinite(), 0))
    change = torch.linalg.vector_norm((one - two).nan_to_num(0, 0, 0), dim=1, dtype=torch.float64)
    share = (change - 1e-6 * clip).clamp(min=0) / sizes.clamp(min=1e-300)
    return bool(share.max() <= ONE_ROW) and bool(share.median() <= MOST_ROWS)
