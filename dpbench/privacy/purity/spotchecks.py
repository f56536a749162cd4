"""Evaluate rows again at random moments: with other neighbours, and in a chunk of another length.

At the same position in a chunk of the same length, every kernel does the same arithmetic in the same order, so a
contribution has the same bits with any neighbours, unless it depends on them. Chunks of another length round
differently.
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
from dpbench.privacy.core.forms.blocks import wrap_blocks
from dpbench.privacy.core.forms.contributions import Contribution
from dpbench.privacy.core.rows import wipe

FEW_ROWS = 8  # rows of a chunk that are compared among fewer
MOST_NUMBERS = 2**17  # numbers of the rows that are compared beside others: half of a chunk's, or as many as these are
ROW_TOLERANCE, MEDIAN_TOLERANCE = (
    1e-3,
    1e-5,
)  # of a row's norm: what rounding may change in one row, and in half of the rows
MOST_WEIGHED_NUMBERS = (
    2**18
)  # numbers of whole contributions that are compared where rounding must be told from reading
QUESTION_INTERVALS, MAP_INTERVALS = (
    (1, 4, 8, 16, 32, 64, 128, 256),
    (1, 2, 4, 8),
)  # one chunk of so many is checked; the last goes on

Evaluate = Callable[[Chunk], Any]


class CheckSchedule:
    """Draws one chunk to check in each interval. Intervals grow: short fits are checked, long fits stay fast."""

    def __init__(self, lengths: Sequence[int], generator: np.random.Generator) -> None:
        self.generator = generator
        self._due = _draw_moments(chain(lengths, repeat(lengths[-1])), generator)

    def is_due(self) -> bool:
        """Return whether the next chunk must be checked."""
        return next(self._due)


def _draw_moments(lengths: Iterator[int], generator: np.random.Generator) -> Iterator[bool]:
    for length in lengths:
        drawn = int(generator.integers(length))
        yield from (place == drawn for place in range(length))


def make_spot_check(chunk: Chunk, clips: Sequence[float], generator: np.random.Generator) -> SpotCheck | None:
    """Copy some rows of a chunk before a row function can write to them; return None for fewer than two rows."""
    if len(chunk) < 2:
        return None
    numbers = max(1, chunk.rows[:1].numel() if isinstance(chunk.rows, Tensor) else chunk.rows.parts[0][:1].numel())
    picks = torch.from_numpy(generator.permutation(len(chunk))[: _count_rows_to_compare(len(chunk) // 2, numbers)])
    return SpotCheck(chunk, clips, picks.to(chunk.y.device))


def _count_rows_to_compare(count: int, numbers_per_row: int) -> int:
    """Return how many of `count` rows, with this many numbers each, are compared."""
    return min(count, max(FEW_ROWS, MOST_NUMBERS // numbers_per_row))


class SpotCheck:
    """Rows picked from a chunk and their contributions, to evaluate again and compare."""

    def __init__(self, chunk: Chunk, clips: Sequence[float], picks: Tensor) -> None:
        self._length, self._clips, self._picks = len(chunk), clips, picks
        self._rows = chunk.take(picks)

    def keep(self, blocks: Sequence[Contribution]) -> None:
        """Copy the contributions of the picked rows, or of fewer rows if contributions are wide."""
        numbers = sum(part[:1].numel() for part in _list_row_factors(blocks))
        self._picks = self._picks[: _count_rows_to_compare(len(self._picks), max(1, numbers))]
        self._kept = [block.take(self._picks) for block in blocks]
        self._copies = [
            part.clone() for part in _list_block_tensors(self._kept)
        ]  # a scale is shared, and may be written in

    def compare(self, rows: Evaluate, what: str) -> None:
        """Evaluate the picked rows again, with other neighbours and in a shorter chunk.

        Raises:
            NotPerExample: contributions differ by more than rounding.
        """
        places = torch.zeros(self._length, dtype=torch.int64, device=self._picks.device)
        places[self._picks] = torch.arange(len(self._picks), device=places.device)
        beside = self._evaluate_copies(rows, places, self._picks)
        if not _have_equal_factors(self._kept, beside):
            repeats = _have_equal_factors(
                beside, self._evaluate_copies(rows, places, self._picks)
            )  # or a device sums in no fixed order
            self._expect(not repeats and self._near(self._kept, beside), what, "beside other rows")
        few = torch.arange(min(FEW_ROWS, len(self._picks)), device=self._picks.device)
        kept = [block.take(few) for block in self._kept]
        self._expect(self._near(kept, self._evaluate_fewer(rows, len(few))), what, "among fewer rows")

    def _evaluate_fewer(self, rows: Evaluate, few: int) -> list[Contribution]:
        """Evaluate the first `few` picked rows in a shorter chunk, in reverse order, each next to copies of itself.

        Copies make chunks of at least two rows: kernels, such as convolutions, may treat a single row in another way,
        and a ReLU at 0 turns different rounding into a jump.
        """
        count = 2 if 2 * few != self._length else 3
        turned = torch.arange(few, device=self._picks.device).flip(0)
        return self._evaluate_copies(rows, turned.repeat_interleave(count), turned * count)

    def _evaluate_copies(self, rows: Evaluate, positions: Tensor, picks: Tensor) -> list[Contribution]:
        """Evaluate a chunk of the picked rows at `positions`, and return the contributions at positions `picks`."""
        chunk = self._rows.take(positions)
        try:
            return [block.take(picks) for block in wrap_blocks(rows(chunk))]
        finally:
            wipe(chunk.rows, chunk.y, chunk.seeds)

    def _near(self, ours: list[Contribution], others: list[Contribution]) -> bool:
        """Return whether rows are equal or differ only by rounding; of wide rows, only a few are compared."""
        if not _are_identical(self._copies, _list_block_tensors(self._kept)):
            return False
        if _are_identical(ours, others):
            return True
        few = torch.arange(len(ours[0]), device=self._picks.device)
        numbers = max(1, sum(block.take(few[:1]).dense().numel() for block in ours))
        few = few[: max(2, MOST_WEIGHED_NUMBERS // numbers)]
        triples = zip(ours, others, self._clips, strict=True)
        return all(_differ_at_most_by_rounding(kept.take(few), other.take(few), clip) for kept, other, clip in triples)

    def _expect(self, kept: bool, what: str, where: str) -> None:
        if not kept:
            raise NotPerExample(
                f"{what} gave a row that changed when it was evaluated {where}: it reads its neighbours, the chunk's "
                "length or a generator. Row i may depend on row i, seeds[i] and public values only."
            )


def _list_tensors(thing: Any) -> Iterator[Tensor]:
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, QuantisedRows):
        yield from (thing.q, thing.scale)
    elif isinstance(thing, (Contribution, tuple)):
        inner = thing if isinstance(thing, tuple) else vars(thing).values()
        for part in inner:
            yield from _list_tensors(part)


def _list_block_tensors(blocks: Sequence[Contribution]) -> list[Tensor]:
    return [part for block in blocks for part in _list_tensors(block)]


def _have_equal_factors(kept: Sequence[Contribution], others: Sequence[Contribution]) -> bool:
    """Return whether each row's factors, not only their product, are equal to the last bit."""
    return _are_identical(_list_row_factors(kept), _list_row_factors(others))


def _list_row_factors(blocks: Sequence[Contribution]) -> list[Tensor]:
    return [part for block in blocks for part in _list_tensors(block) if part.shape[:1] == (len(block),)]


def _are_identical(value: Any, other: Any) -> bool:
    """Return whether contributions (or their parts) are equal to the last bit, public parts included."""
    if isinstance(value, Tensor) and isinstance(other, Tensor):
        return value.shape == other.shape and bool(((value == other) | (value.isnan() & other.isnan())).all())
    if type(value) is not type(other):
        return False
    if isinstance(value, QuantisedRows):
        return _are_identical(value.q, other.q) and _are_identical(value.scale, other.scale)
    if isinstance(value, (list, tuple)):
        return len(value) == len(other) and all(map(_are_identical, value, other))
    return (
        _are_identical([*vars(value).values()], [*vars(other).values()])
        if isinstance(value, Contribution)
        else value is other
    )


def _differ_at_most_by_rounding(kept: Contribution, other: Contribution, clip: float) -> bool:
    """Return whether rows differ only by rounding; differences below 1e-6 of the clip are ignored."""
    rows, other_rows = kept.dense().flatten(1), other.dense().flatten(1)
    if rows.shape != other_rows.shape or not torch.equal(rows.isfinite(), other_rows.isfinite()):
        return False
    norms = kept.norms()  # a residual may be nothing but rounding, which its norm covers
    whole = torch.linalg.vector_norm(rows.nan_to_num(), dim=1, dtype=torch.float64)
    sizes = torch.maximum(whole, norms.where(norms.isfinite(), 0))
    change = torch.linalg.vector_norm((rows - other_rows).nan_to_num(0, 0, 0), dim=1, dtype=torch.float64)
    share = (change - 1e-6 * clip).clamp(min=0) / sizes.clamp(min=1e-300)
    return bool(share.max() <= ROW_TOLERANCE) and bool(share.median() <= MEDIAN_TOLERANCE)
