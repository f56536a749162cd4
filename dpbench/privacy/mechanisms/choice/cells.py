"""Rows that each count in at most one cell: votes, and losses looked up in a public matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dpbench.errors import SpecError
from dpbench.privacy.core.chunk import Chunk, RowFn
from dpbench.privacy.core.exact.quantised import strip_subclass
from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.privacy.core.forms.contributions import Contribution
from dpbench.privacy.mechanisms.choice.steps import BITS, loss_step_size


@dataclass(frozen=True)
class CellContribution(Contribution):
    """Row i contributes the unit vector of its cell, or zero if its index is not in [0, count)."""

    index: Tensor  # (c,) int64
    count: int

    def __len__(self) -> int:
        return len(self.index)

    def norms(self) -> Tensor:
        """Return (c,) float64: 1 for a row in a cell, else 0."""
        return self._inside().double()

    def clipped_sum(self, clip: float, shares: Tensor | None = None) -> IntegerSum:
        """Count the rows in each cell, (count,), in whole numbers; the clip must be 1.

        Sensitivity: adding or removing one row moves at most one cell, by 1. With `shares` (c,) a row adds its share of
        2^20 steps of 2^-20, rounded down, instead of 1.
        """
        if clip != 1:
            raise SpecError(f"Expected clip=1 of rows in cells, got {clip:g}: each counts once.")
        inside = self._inside()
        if shares is None:
            total = torch.bincount(self.index[inside], minlength=self.count)
            return IntegerSum(total, torch.ones((), dtype=torch.float64, device=total.device))
        steps = (shares * 2.0**BITS).floor_()[inside]
        total = torch.bincount(self.index[inside], steps, minlength=self.count).to(torch.int64)
        return IntegerSum(total, loss_step_size(total))

    def take(self, rows: Tensor) -> CellContribution:
        """Return the rows with these indices."""
        return CellContribution(self.index.index_select(0, rows), self.count)

    def dense(self) -> Tensor:
        """Return the unit vectors (c, count), for checks of a few rows."""
        inside = self._inside()
        units = torch.zeros(len(self), self.count, device=self.index.device)
        units[inside, self.index[inside]] = 1
        return units

    def _inside(self) -> Tensor:
        return (self.index >= 0) & (self.index < self.count)


def count_rows_in_cells(block: Contribution, shares: Tensor | None = None) -> IntegerSum:
    """Count the rows of a chunk in each cell.

    Sensitivity: adding or removing one row moves at most one count, by 1 or, with `shares` (c,), by the row's share of
    its unit, rounded down.
    """
    return block.clipped_sum(1.0, shares)


def wrap_as_cells(rows: RowFn, count: int) -> Callable[[Chunk], CellContribution]:
    """Wrap a row function that returns each row's cell number, so that it returns `CellContribution`.

    Raises:
        SpecError: when called, if the row function returns anything but one int64 number per row.
    """

    def make_cell_contribution(chunk: Chunk) -> CellContribution:
        return CellContribution(check_whole_numbers(rows(chunk), "cells"), count)

    return make_cell_contribution


def check_whole_numbers(index: object, description: str) -> Tensor:
    """Check that a row function returned one cell or part per row, and return them as a plain tensor.

    Raises:
        SpecError: it returned anything but one int64 number per row.
    """
    if not isinstance(index, Tensor) or index.dtype != torch.int64 or index.ndim != 1:
        kind = f"{index.dtype} {tuple(index.shape)}" if isinstance(index, Tensor) else type(index).__name__
        raise SpecError(
            f"Expected one whole number a row, int64 (c,), from a row function over {description}, got {kind}."
        )
    return strip_subclass(index)


def wrap_to_return_bytes(rows: RowFn) -> RowFn:
    """Wrap a row function to return its integers as bytes (c, 8), which a comparison with a tolerance tells apart."""

    def return_bytes(chunk: Chunk) -> Tensor:
        index: Any = rows(chunk)
        return index.long().contiguous().view(torch.uint8).reshape(len(index), 8).float()  # type: ignore[no-any-return]

    return return_bytes
