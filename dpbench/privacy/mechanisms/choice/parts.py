"""Choices in several parts: a row's losses count in one part only, so all parts together cost as much as one choice.

Claim (add or remove one row, or one unit): let row i count in part p_i, or in none, with loss l_ij in [0, 1] for
candidate j of that part. In part p, candidate j is chosen with chance proportional to exp(-eps0 L_pj), where L_pj is
the sum of l_ij over the rows that count in p; parts are drawn independently. The answer, all parts together, costs as
much as one choice of eps0.

Why:

- It is one choice. Let a combination v name a candidate v_p for each part. Row i's loss for v is l_i(v) = l_ij, with j
  the candidate that v names for p_i. The product over parts of exp(-eps0 L_{p v_p}) is exp(-eps0 sum_i l_i(v)), and the
  sum of such products over all combinations is the product of the sums by part. So drawing each part independently
  draws v with the chance that the exponential mechanism over all combinations gives it, and each l_i(v) is in [0, 1].
  Everything that `choice.choice_plan` shows about a choice holds, however many combinations there are: its eps0 and its
  composition.
- In integers, a row's losses are whole steps from 0 to 2^20 (`loss_steps`), which depend on that row alone and are
  added to the totals of one part. Adding or removing the row moves the total of each v by the row's steps for v: by 0
  to 2^20, all in one direction, whatever the other rows are.
- Units: the rows of a unit may count in several parts, so the bound is on their effect on a combination, not on a part.
  Row i adds its steps times its share, rounded down. The shares of a unit add up to at most 1 (`rows.Units`), so its
  rows together move the total of each v by at most 2^20 steps, however they are spread over parts: again one eps0.

The reason is not that parts hold disjoint rows: that argument would fail for a unit with rows in two parts, because
each part would count the whole unit. The claim does not cover a row that counts in several parts; here, every row names
one. As elsewhere in dpbench, it does not cover replacing a row either, which removes one row and adds another.

The losses of an empty chunk determine the number of candidates of every part; the plan fixes the number of parts.
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
from dpbench.privacy.mechanisms.choice.cells import check_whole_numbers, wrap_to_return_bytes
from dpbench.privacy.mechanisms.choice.choice_plan import Choice
from dpbench.privacy.mechanisms.choice.question import (
    ChoiceQuestion,
    check_losses,
    choose_for_each_part,
    count_rows_per_chunk,
    require_single_block,
    sum_over_all_rows,
)
from dpbench.privacy.mechanisms.choice.steps import loss_step_size, loss_steps


@dataclass(frozen=True)
class LeastLossChoiceByPart(ChoiceQuestion):
    """Asks for a candidate with a small total loss in each part; see `Curator.noisy_choices`.

    `rows` returns each row's loss for each candidate of its part, (c, N); `part` returns the row's part, (c,) int64.
    """

    part: Callable[[Chunk], Tensor]

    def compute_answer(self, curator: LedgerCurator, spent: Sequence[Any]) -> Tensor:
        """Add up the losses by part, and choose a candidate for each part."""
        choice: Choice = spent[0]
        draws, rows = curator.draws(self.release), combine_losses_with_parts(self.rows, self.part, choice)
        with closing(curator.empty_chunk()) as empty:  # no private row has a part in how many candidates there are
            block = require_single_block(
                curator.guard.blocks_of_empty_chunk(rows, next(empty), self.release), self.release
            )
        start = block.clipped_sum(1.0)
        limit = count_rows_per_chunk(start.total.numel() // choice.parts, self.chunk_size)
        lost = sum_over_all_rows(
            curator, rows, self.release, draws, lambda block, shares: block.clipped_sum(1.0, shares), limit, [start]
        )
        return choose_for_each_part(curator, lost, choice.parts, choice, draws)

    @property
    def row_function(self) -> RowFn:
        """A row function that returns each row's part, as bytes, followed by its losses."""
        parts = wrap_to_return_bytes(self.part)
        return lambda chunk: torch.cat([parts(chunk), self.rows(chunk)], 1)  # type: ignore[list-item]

    def candidates(self, curator: LedgerCurator) -> int | None:
        """Return the number of candidates in the losses of an empty chunk."""
        with closing(curator.empty_chunk()) as empty:
            return int(self.rows(next(empty)).shape[1])  # type: ignore[union-attr]


@dataclass(frozen=True)
class PartLosses(Contribution):
    """Row i contributes its losses to part `part[i]`, or nothing if `part[i]` is not in [0, parts)."""

    part: Tensor  # (c,) int64
    rows: Rows  # losses (c, N)
    parts: int

    def __post_init__(self) -> None:
        """Check that there is one part per row of losses."""
        if len(self.part) != len(self.rows):
            raise SpecError(f"Expected a part for each of {len(self.rows)} rows of losses, got {len(self.part)}.")

    def __len__(self) -> int:
        return len(self.part)

    def norms(self) -> Tensor:
        """Return (c,) float64: the norm of each row's losses; 0 for a row in no part."""
        return self.rows.norms().where(self._inside(), 0)

    def clipped_sum(self, clip: float, shares: Tensor | None = None) -> IntegerSum:
        """Return the total losses, part after part, (parts * N,); the clip must be 1.

        Sensitivity: adding or removing one row moves the totals of at most one part, each by 0 to 2^20 steps or, with
        `shares` (c,), by the row's share of these, rounded down.
        """
        if clip != 1:
            raise SpecError(f"Expected clip=1 of losses by parts, got {clip:g}: a loss is at most 1.")
        steps, inside = loss_steps(self.rows.rows, shares).double(), self._inside()
        total = torch.zeros(self.parts, steps.shape[1], dtype=torch.float64, device=steps.device)
        total.index_add_(0, self.part[inside], steps[inside])  # whole numbers below 2^53: in any order
        return IntegerSum(total.to(torch.int64).flatten(), loss_step_size(total))

    def take(self, rows: Tensor) -> PartLosses:
        """Return the rows with these indices."""
        return PartLosses(self.part.index_select(0, rows), self.rows.take(rows), self.parts)

    def dense(self) -> Tensor:
        """Return the losses for all candidates of all parts, (c, parts, N), for checks of a few rows."""
        inside, lost = self._inside(), self.rows.rows
        found = lost.new_zeros(len(self), self.parts, lost.shape[1])
        found[inside, self.part[inside]] = lost[inside]
        return found

    def _inside(self) -> Tensor:
        return (self.part >= 0) & (self.part < self.parts)


def combine_losses_with_parts(
    rows: RowFn, part: Callable[[Chunk], Tensor], choice: Choice
) -> Callable[[Chunk], PartLosses]:
    """Combine a row function that returns losses with one that returns parts into one that returns `PartLosses`.

    Raises:
        SpecError: when called, if losses are not (c, N) with N from 1 to the planned number of candidates, or parts are
            not one whole number per row.
    """

    def make_part_losses(chunk: Chunk) -> PartLosses:
        lost = check_losses(require_single_block(wrap_blocks(rows(chunk)), choice.name), choice.candidates)
        return PartLosses(check_whole_numbers(part(chunk), "parts"), lost, choice.parts)

    return make_part_losses
