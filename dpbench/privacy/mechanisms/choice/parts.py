"""Choices in several parts: a row's losses count in one part only, so all parts together cost one choice.

Claim (add or remove one row, or one unit): let row i touch part p_i, or none, and lose l_ij in [0, 1] by candidate j of
that part. Part p becomes j with chance proportional to exp(-eps0 L_pj), where L_pj adds up l_ij over the rows that
touch p, and each part is drawn on its own. The answer, all parts together, costs what one choice of eps0 does.

Why:

- It is one choice. Of a combination v, which names a candidate v_p for each part, row i loses l_i(v) = l_ij with j the
  candidate that v names for p_i. The product over parts of exp(-eps0 L_{p v_p}) is exp(-eps0 sum_i l_i(v)), and a sum
  over all combinations of such products is the product of the sums by part. So drawing parts on their own draws v with
  the chance that the exponential mechanism over all combinations gives it, and each l_i(v) is in [0, 1]. Everything
  that `choice.choice_plan` shows of a choice holds, however many combinations there are: eps0, and what composes.
- In integers, a row's losses are whole steps from 0 to 2^20 (`loss_steps`), a function of that row alone, and are added
  to the totals of one part. Adding or removing the row moves the total of each v by the row's steps for it: by 0 to
  2^20, all in one direction, whatever the other rows are.
- Units: the rows of a unit may touch several parts, so what is bounded is what they add to a combination, and not to a
  part. Row i adds its steps times its share, rounded down. The shares of a unit add up to at most 1 (`rows.Units`), so
  its rows move the total of each v by at most 2^20 steps together, however they are spread over parts: one eps0 again.

The reason is not that parts hold disjoint rows. That argument would fail for a unit with rows in two parts, because
each part would count it whole. Nor does it cover a row that touches several parts; here every row names one part.
Replacing a row is not covered either, as everywhere in dpbench: it removes one and adds one.

The number of candidates of every part is that in the losses of an empty chunk; the number of parts is planned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dpbench.errors import SpecError
from dpbench.privacy.core.chunk import Chunk, RowFn
from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.privacy.core.forms.blocks import wrap_blocks
from dpbench.privacy.core.forms.contributions import Contribution, Rows
from dpbench.privacy.core.ledger_curator import LedgerCurator
from dpbench.privacy.mechanisms.choice.cells import check_whole_numbers, wrap_bytes
from dpbench.privacy.mechanisms.choice.choice_plan import Choice
from dpbench.privacy.mechanisms.choice.question import (
    ChoiceQuestion,
    check_losses,
    choose_parts,
    count_rows_per_chunk,
    single_block,
    sum_over_rows,
)
from dpbench.privacy.mechanisms.choice.steps import loss_grid, loss_steps


@dataclass(frozen=True)
class LeastLosses(ChoiceQuestion):
    """Asks for a candidate with a small total loss in each part; see `Curator.noisy_choices`.

    Rows are losses by each candidate of their part, (c, N); `part` is the part that each row touches, (c,) int64.
    """

    part: Callable[[Chunk], Tensor]

    def compute_answer(self, curator: LedgerCurator, spent: Sequence[Any]) -> Tensor:
        """Add up losses by part, and choose a candidate for each part."""
        choice: Choice = spent[0]
        draws, rows = curator.draws(self.release), wrap_parts(self.rows, self.part, choice)
        with closing(curator.empty_chunk()) as empty:  # no private row has a part in how many candidates there are
            block = single_block(curator.guard.blocks_of_empty_chunk(rows, next(empty), self.release), self.release)
        start = block.integers(1.0)
        limit = count_rows_per_chunk(start.total.numel() // choice.parts, self.chunk_size)
        lost = sum_over_rows(
            curator, rows, self.release, draws, lambda block, shares: block.integers(1.0, shares), limit, [start]
        )
        return choose_parts(curator, lost, choice.parts, choice, draws)

    @property
    def row_function(self) -> RowFn:
        """The row function of the losses, which puts the parts as bytes before them."""
        parts = wrap_bytes(self.part)
        return lambda chunk: torch.cat([parts(chunk), self.rows(chunk)], 1)  # type: ignore[list-item]

    def candidates(self, curator: LedgerCurator) -> int | None:
        """Return the number of candidates in the losses of an empty chunk."""
        with closing(curator.empty_chunk()) as empty:
            return int(self.rows(next(empty)).shape[1])  # type: ignore[union-attr]


@dataclass(frozen=True)
class PartLosses(Contribution):
    """Row i contributes its losses to part `part[i]`, or nothing if that number is not in [0, parts)."""

    part: Tensor  # (c,) int64
    rows: Rows  # losses (c, N)
    parts: int

    def __post_init__(self) -> None:
        """Refuse a number of parts that differs from the number of losses."""
        if len(self.part) != len(self.rows):
            raise SpecError(f"Expected a part for each of {len(self.rows)} rows of losses, got {len(self.part)}.")

    def __len__(self) -> int:
        return len(self.part)

    def norms(self) -> Tensor:
        """Return (c,) float64: the norm of the losses, 0 for a row in no part."""
        return self.rows.norms().where(self._inside(), 0)

    def integers(self, clip: float, shares: Tensor | None = None) -> IntegerSum:
        """Return the total losses, part after part, (parts * N,); the clip must be 1.

        Sensitivity: adding or removing one row moves the totals of one part, each by 0 to 2^20 steps; with `shares` by
        that share of them, rounded down.
        """
        if clip != 1:
            raise SpecError(f"Expected clip=1 of losses by parts, got {clip:g}: a loss is at most 1.")
        steps, inside = loss_steps(self.rows.rows, shares).double(), self._inside()
        total = torch.zeros(self.parts, steps.shape[1], dtype=torch.float64, device=steps.device)
        total.index_add_(0, self.part[inside], steps[inside])  # whole numbers below 2^53: in any order
        return IntegerSum(total.to(torch.int64).flatten(), loss_grid(total))

    def take(self, rows: Tensor) -> PartLosses:
        """Return the rows with these indices."""
        return PartLosses(self.part.index_select(0, rows), self.rows.take(rows), self.parts)

    def dense(self) -> Tensor:
        """Return losses by all candidates of all parts, (c, parts, N): of a few rows, for checks."""
        inside, lost = self._inside(), self.rows.rows
        found = lost.new_zeros(len(self), self.parts, lost.shape[1])
        found[inside, self.part[inside]] = lost[inside]
        return found

    def _inside(self) -> Tensor:
        return (self.part >= 0) & (self.part < self.parts)


def wrap_parts(rows: RowFn, part: Callable[[Chunk], Tensor], choice: Choice) -> Callable[[Chunk], PartLosses]:
    """Wrap a row function so that its losses are losses by the candidates of each row's part.

    Raises:
        SpecError: when called, if losses are not (c, N) with N as planned, or parts are not one whole number per row.
    """

    def make_part_losses(chunk: Chunk) -> PartLosses:
        lost = check_losses(single_block(wrap_blocks(rows(chunk)), choice.name), choice.candidates)
        return PartLosses(check_whole_numbers(part(chunk), "parts"), lost, choice.parts)

    return make_part_losses
