"""Norms that rounding never under-estimates.

Clipping is safe only if no norm is under-estimated. A sum of t non-negative terms, each rounded at most r times, is at
least (1 - u)^r of the true sum, u = 2^-24 in float32 (Higham, Accuracy and Stability of Numerical Algorithms, section
3.1), so each norm is multiplied by 1 + (r + 8) u, which also covers the square root, the division by the norm and
the two roundings of a weighted product. Squares below 2^-126 may vanish; `elementwise.TINY` covers them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpbench.errors import SpecError
from dpbench.privacy.core.exact.limits import ROW_LIMIT

if TYPE_CHECKING:
    from torch import Tensor


def check_precision(*factors: Tensor) -> None:
    """Check that the bounds of this module cover the number types of all factors.

    Raises:
        SpecError: they are not all float32, or all float64.
    """
    import torch

    kinds = {factor.dtype for factor in factors}
    if kinds not in ({torch.float32}, {torch.float64}):
        raise SpecError(
            f"Expected contributions in float32 or float64, got {', '.join(sorted(map(str, kinds)))}. The bounds on "
            "rounding hold for these two types only. Call .float()."
        )


def row_norms(rows: Tensor) -> Tensor:
    """Return (c,) float64: each row's L2 norm, never under-estimated, and to the last bit a function of that row."""
    from dpbench.privacy.core.exact.sums import lengths

    return _mark_infinite(lengths(rows.flatten(1)))


def joined_norms(norms: Tensor) -> Tensor:
    """Return (c,) float64: upper bounds on norms of rows whose parts have at most the norms (parts, c)."""
    from dpbench.privacy.core.exact.sums import lengths

    return _mark_infinite(lengths(norms, 0))


def _mark_infinite(norms: Tensor) -> Tensor:
    """Replace by infinity the norms of rows that count as not finite."""
    return norms.masked_fill_(~(norms <= ROW_LIMIT), math.inf)


def unit_roundoff(values: Tensor) -> float:
    """Return u, half the distance from 1 to the next number of the same type."""
    import torch

    return torch.finfo(values.dtype).eps / 2
