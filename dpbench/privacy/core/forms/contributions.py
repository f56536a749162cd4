"""The closed set of forms in which one example may contribute to a noisy sum.

Each form computes its clipped sum from what it stores. So per-example gradients (c, m, d) of a linear head are never
held in memory, only their factors (c, m) and (c, d).

Dense rows are clipped according to `norms()`, which never under-estimates, rounding included (see `rounding`). Outer
products are clipped according to the norms of their 8-bit rows (`exact.sums`); their `norms()` serves only checks and
residuals.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench.errors import SpecError
from dpbench.privacy.core.exact.elementwise import TINY
from dpbench.privacy.core.exact.quantised import QuantisedRows, convert_to_float_rows, quantise, strip_subclass
from dpbench.privacy.core.forms.rounding import check_precision, combine_norms_of_parts, row_norms, unit_roundoff

if TYPE_CHECKING:
    from torch import Tensor

    from dpbench.privacy.core.exact.sums import IntegerSum

_SCALES = (1e-8, 1e8)


class Contribution(ABC):
    """Base class of the forms: one contribution to a sum per row of a chunk."""

    @abstractmethod
    def __len__(self) -> int:
        """Return c, the number of rows."""

    @abstractmethod
    def norms(self) -> Tensor:
        """Return (c,) float64: each row's L2 norm, never under-estimated."""

    @abstractmethod
    def clipped_sum(self, clip: float, shares: Tensor | None = None) -> IntegerSum:
        """Return the sum of the rows, each clipped to `clip` and rounded to a public grid before it is added.

        Sensitivity: adding or removing one row moves the sum by at most `clip`, in integer arithmetic: a row's integers
        depend only on this row, `clip` and public values, and their norm times the grid step is at most `clip`. A row
        that is not finite counts as zero. With `shares` (c,) float64 in (0, 1], row i is clipped to shares[i] * clip
        and its weight is at most shares[i]: the norm of its integers times the grid step is at most shares[i] * clip.
        """

    @abstractmethod
    def take(self, rows: Tensor) -> Contribution:
        """Return the contribution of the rows with these indices."""

    @abstractmethod
    def dense(self) -> Tensor:
        """Return the rows written out as a tensor (c, ...), for maps and checks, never for a sum."""


@dataclass(frozen=True)
class Rows(Contribution):
    """The plain form: row i contributes `rows[i]`. A row function may return the bare tensor instead."""

    rows: Tensor  # (c, ...)

    def __post_init__(self) -> None:
        """Refuse tensors with fewer than two axes (rows and entries) or of a type other than float32 and float64."""
        if self.rows.ndim < 2:
            raise SpecError(
                f"Expected one contribution per row, (c, ...) with two axes or more, got {tuple(self.rows.shape)}. "
                "For one number per row, return (c, 1)."
            )
        check_precision(self.rows)
        object.__setattr__(self, "rows", strip_subclass(self.rows))

    def __len__(self) -> int:
        return len(self.rows)

    def norms(self) -> Tensor:
        """Return (c,) float64: the rows' L2 norms over all other axes."""
        return row_norms(self.rows)

    def clipped_sum(self, clip: float, shares: Tensor | None = None) -> IntegerSum:
        """Return the sum, shaped like one row, on a grid with step clip * 2^-24."""
        from dpbench.privacy.core.exact.sums import IntegerSum, clipped_dense_sum

        found = clipped_dense_sum((self.rows,), self.norms(), clip, shares)
        return IntegerSum(found.total.reshape(self.rows.shape[1:]), found.grid)

    def take(self, rows: Tensor) -> Rows:
        """Return the rows with these indices."""
        return Rows(self.rows.index_select(0, rows))

    def dense(self) -> Tensor:
        """Return the rows."""
        return self.rows


@dataclass(frozen=True)
class Joined(Contribution):
    """A row is several parts joined end to end, such as the gradients of all parameters, without a joint copy.

    One bound clips the whole row. The sum is one vector with the entries of all parts in order.
    """

    parts: tuple[Tensor, ...]  # each (c, ...)

    def __post_init__(self) -> None:
        """Refuse an empty tuple, and parts with fewer than two axes, different numbers of rows or mixed types."""
        shapes = [tuple(part.shape) for part in self.parts]
        if not shapes or min(map(len, shapes)) < 2 or len({shape[0] for shape in shapes}) > 1:
            raise SpecError(
                f"Expected parts (c, ...) of one length c, with two axes or more, in a Joined contribution, got "
                f"{', '.join(map(str, shapes)) or 'none'}."
            )
        check_precision(*self.parts)
        object.__setattr__(self, "parts", tuple(map(strip_subclass, self.parts)))

    def __len__(self) -> int:
        return len(self.parts[0])

    def norms(self) -> Tensor:
        """Return (c,) float64: the rows' L2 norms over all parts."""
        import torch

        return combine_norms_of_parts(torch.stack([row_norms(part) for part in self.parts]))

    def clipped_sum(self, clip: float, shares: Tensor | None = None) -> IntegerSum:
        """Return the sum (p,), part after part, on a grid with step clip * 2^-24."""
        from dpbench.privacy.core.exact.sums import clipped_dense_sum

        return clipped_dense_sum(self.parts, self.norms(), clip, shares)

    def take(self, rows: Tensor) -> Joined:
        """Return the rows with these indices."""
        return Joined(tuple(part.index_select(0, rows) for part in self.parts))

    def dense(self) -> Tensor:
        """Return the rows (c, p)."""
        import torch

        return torch.cat([part.flatten(1) for part in self.parts], 1)


@dataclass(frozen=True)
class RankOne(Contribution):
    """Row i contributes the outer product of `left[i]` and `right[i]`: the gradient of a linear layer.

    With `bias` the right factor gains a constant 1 as its last entry, without a copy of `right`. The sum uses the right
    factors rounded to 8 bits (`quantise`); rows of a mapped chunk are in 8 bits already.
    """

    left: Tensor  # (c, m)
    right: Tensor | QuantisedRows  # (c, d)
    bias: bool = False

    def __post_init__(self) -> None:
        """Refuse factors whose shapes do not match: broadcasting would add entries that the norms do not count."""
        if len(self.left.shape) != 2 or len(self.right.shape) != 2 or len(self.left) != len(self.right):
            raise SpecError(
                f"Expected factors (c, m) and (c, d) of a RankOne contribution, got {tuple(self.left.shape)} and "
                f"{tuple(self.right.shape)}."
            )
        object.__setattr__(self, "left", strip_subclass(self.left))
        if type(self.right) is QuantisedRows:
            check_precision(self.left)
        else:
            check_precision(self.left, strip_subclass(convert_to_float_rows(self.right)))
            object.__setattr__(self, "right", strip_subclass(convert_to_float_rows(self.right)))

    def __len__(self) -> int:
        return len(self.left)

    def norms(self) -> Tensor:
        """Return (c,) float64: |left_i| |right_i|."""
        return row_norms(self.left).mul_(self.right_norms())

    def clipped_sum(self, clip: float, shares: Tensor | None = None) -> IntegerSum:
        """Return the sum (m, d) or, with bias, (m, d + 1), computed as one integer product; see `exact.sums`."""
        from dpbench.privacy.core.exact.sums import IntegerSum, clipped_outer_product_sum

        found = clipped_outer_product_sum(self.columns(), self.quantised_right(), self.bias, (clip,), shares)
        return IntegerSum(found.total[0], found.grid[0])

    def take(self, rows: Tensor) -> RankOne:
        """Return the outer products with these indices."""
        return RankOne(self.left.index_select(0, rows), self.right.index_select(0, rows), self.bias)

    def dense(self) -> Tensor:
        """Return (c, m, d) or, with bias, (c, m, d + 1)."""
        return self.left.unsqueeze(2) * self.right_with_bias().unsqueeze(1)

    def columns(self) -> Tensor:
        """Return the left factors in float32, classes first: (1, m, c)."""
        return self.left.float().T.contiguous().unsqueeze(0)

    def quantised_right(self) -> QuantisedRows:
        """Return the right factors in 8 bits."""
        return self.right if isinstance(self.right, QuantisedRows) else quantise(self.right)

    def right_norms(self) -> Tensor:
        """Return (c,) float64: the norms of the right factors, including the bias's constant 1."""
        norms = row_norms(convert_to_float_rows(self.right))
        return norms.square_().add_(1).sqrt_().mul_(1 + 4 * unit_roundoff(norms)) if self.bias else norms

    def right_with_bias(self) -> Tensor:
        """Return the right factors as floats, (c, d) or, with the bias's constant 1 as last entry, (c, d + 1)."""
        import torch

        right = convert_to_float_rows(self.right)
        return torch.nn.functional.pad(right, (0, 1), value=1.0) if self.bias else right


@dataclass(frozen=True)
class Scaled(Contribution):
    """Row i contributes an outer product divided elementwise by a public `scale` (a diagonal preconditioner).

    Norm: sqrt(left^2 @ (1 / scale^2) . right^2).
    Entries of `scale` must lie in [1e-8, 1e8]: outside, float32 squares would vanish and norms be under-estimated.
    """

    outer: RankOne
    scale: Tensor  # (m, d), or (m, d + 1) with bias

    def __post_init__(self) -> None:
        """Refuse a scale that is not shaped like a row, or whose entries are outside [1e-8, 1e8]."""
        expected = (self.outer.left.shape[1], self.outer.right.shape[1] + self.outer.bias)
        if tuple(self.scale.shape) != expected:
            raise SpecError(
                f"Expected the scale of a Scaled contribution to be {expected}, like one row, got "
                f"{tuple(self.scale.shape)}."
            )
        low, high = _SCALES
        if self.scale.numel() and not (float(self.scale.min()) >= low and float(self.scale.max()) <= high):
            raise SpecError(
                f"Expected every entry of a Scaled contribution's scale in [{low:g}, {high:g}]. This message does not "
                "show the scale, because it may depend on private rows. Normalise it to mean 1."
            )
        object.__setattr__(self, "scale", strip_subclass(self.scale))

    def __len__(self) -> int:
        return len(self.outer)

    def norms(self) -> Tensor:
        """Return (c,) float64: the norms after division by the scale."""
        left_norms, inverse = row_norms(self.outer.left), 1 / self.scale
        largest = float(inverse.max())
        left = (self.outer.left / left_norms.to(inverse.dtype).unsqueeze(1)).square()  # (c, m), at most 1
        shares = (inverse / largest).square()  # (m, d [+ 1]), at most 1
        squared = (left * (self.outer.right_with_bias().square() @ shares.T)).sum(1)  # (c,)
        terms = sum(self.scale.shape)
        # Squares and products that vanish were below 2^-126 each: twice TINY covers them, before the largest factor.
        bound = squared.double().sqrt() * (1 + (terms + 24) * unit_roundoff(squared)) + 2 * TINY
        return bound.mul_(left_norms).mul_(largest * (1 + 8 * unit_roundoff(inverse)))

    def clipped_sum(self, clip: float, shares: Tensor | None = None) -> IntegerSum:
        """Return the sum of the scaled outer products; the grid step of each entry is divided by the entry's scale."""
        from dpbench.privacy.core.exact.sums import clipped_scaled_sum

        return clipped_scaled_sum(
            self.outer.columns(), self.outer.quantised_right(), self.outer.bias, self.scale, clip, shares
        )

    def take(self, rows: Tensor) -> Scaled:
        """Return the scaled products with these indices."""
        return Scaled(self.outer.take(rows), self.scale)

    def dense(self) -> Tensor:
        """Return (c, m, d) or, with bias, (c, m, d + 1)."""
        return self.outer.dense() / self.scale
