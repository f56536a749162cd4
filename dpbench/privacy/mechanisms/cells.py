"""Rows that each stand in one cell of a public partition: what choices over cells and parts are counted from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench.errors import SpecError
from dpbench.privacy.core.forms.contributions import Contribution

if TYPE_CHECKING:
    from torch import Tensor

    from dpbench.privacy.core.exact.sums import IntegerSum


@dataclass(frozen=True)
class Cells(Contribution):
    """Row i contributes the unit vector of its cell, or nothing where its index is not in [0, count)."""

    index: Tensor  # (c,) int64
    count: int

    def __len__(self) -> int:
        return len(self.index)

    def norms(self) -> Tensor:
        """Return (c,) float64: 1 for a row in a cell, else 0."""
        return self._inside().double()

    def integers(self, clip: float) -> IntegerSum:
        """Return how many rows are in each cell, (count,): whole numbers, whatever the clip, which must be 1.

        Sensitivity: adding or removing one row moves one cell by 1.
        """
        import torch

        from dpbench.privacy.core.exact.sums import IntegerSum

        _expect_unit(clip)
        total = torch.bincount(self.index[self._inside()], minlength=self.count)
        return IntegerSum(total, torch.ones((), dtype=torch.float64, device=total.device))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the weights of the rows in each cell added up, (count,)."""
        import torch

        inside = self._inside()
        return torch.bincount(self.index[inside], weights=weights[inside].double(), minlength=self.count)

    def take(self, rows: Tensor) -> Cells:
        """Return the rows with these indices."""
        return Cells(self.index.index_select(0, rows), self.count)

    def dense(self) -> Tensor:
        """Return the unit vectors, (c, count): of a few rows, for checks."""
        import torch

        inside = self._inside()
        units = torch.zeros(len(self), self.count, device=self.index.device)
        units[inside, self.index[inside]] = 1
        return units

    def _inside(self) -> Tensor:
        return (self.index >= 0) & (self.index < self.count)


def _expect_unit(clip: float) -> None:
    if clip != 1:
        raise SpecError(f"Expected clip=1 of rows in cells, got {clip:g}: each counts once.")
