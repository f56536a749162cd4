"""The sum of residuals before noise: outer products minus V times all embeddings, rounded down once per sample."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from dpbench.privacy.core.exact.sums import IntegerSum, chunk_mismatch_error

if TYPE_CHECKING:
    from torch import Tensor

    from dpbench.privacy.core.forms.residual.bases import Basis


class ResidualSum(IntegerSum):
    """A sum of residuals that keeps its two parts apart until `total` is read.

    V times the embeddings is rounded down to the grid, once for the whole sample: removing a row then moves it by less
    than one step in each entry. If it were rounded in every chunk, a row could move it by one step per entry and chunk,
    because removing a row shifts all later rows into other chunks.
    """

    def __init__(self, outer: IntegerSum, along: Tensor, step: Tensor, basis: Basis) -> None:
        object.__setattr__(self, "grid", outer.grid)
        self.__dict__.update(_outer=outer, _along=along, _step=step, _basis=basis)

    _outer: IntegerSum
    _along: Tensor  # (k,) int64: the sum of the rows' embeddings
    _step: Tensor  # (d,) or, with bias, (d + 1,): their grid in steps of the columns' grids
    _basis: Basis

    @cached_property
    def total(self) -> Tensor:
        """The sum in whole steps of the grid."""
        self._basis.check()
        return self._outer.total - self._basis.expand_to_integers(self._along, self._step)

    def __add__(self, other: IntegerSum) -> ResidualSum:
        """Add the residuals of another part of the same sample.

        Raises:
            NotPerExample: the other sum holds no residuals, or has another basis, shape or grid.
        """
        if not isinstance(other, ResidualSum) or other._basis is not self._basis:
            raise chunk_mismatch_error()
        return ResidualSum(self._outer + other._outer, self._along + other._along, self._step, self._basis)
