"""Norms that rounding never under-estimates.

Clipping is safe only if no norm is under-estimated. A sum of t non-negative terms, each rounded at most r times, is at
least (1 - u)^r times the true sum, with u = 2^-24 in float32 (Higham, Accuracy and Stability of Numerical Algorithms,
section 3.1). So each norm is multiplied by 1 + (r + 8) u, which also covers the square root, the division by the norm
and the two roundings of a weighted product. Squares below 2^-126 may vanish; `elementwise.TINY` covers them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpbench.errors import SpecError
from dpbench.privacy.core.exact.limits import ROW_LIMIT

if TYPE_CHECKING:
    from torch import Tensor


def check_precision(*factors: Tensor) -> None:
    """Check that all factors are float32, or all float64: the bounds of this module cover no other types.

    Raises:
        SpecError: the factors are neither all float32 nor all float64.
    """
    import torch

    kinds = {factor.dtype for factor in factors}
    if kinds not in ({torch.float32}, {torch.float64}):
        raise SpecError(
            f"Expected contributions in float32 or float64, got {', '.join(sorted(map(str, kinds)))}. The bounds on "
            "rounding hold for these two types only. Call .float()."
        )


def row_norms(rows: Tensor) -> Tensor:
    """Return (c,) float64: each row's L2 norm, never under-estimated; its bits depend on this row alone."""
    from dpbench.privacy.core.exact.sums import measure_lengths

    return _replace_large_norms_by_infinity(measure_lengths(rows.flatten(1)))


def combine_norms_of_parts(norms: Tensor) -> Tensor:
    """Return (c,) float64: upper bounds on the norms of whole rows, given upper bounds (parts, c) on those of parts."""
    from dpbench.privacy.core.exact.sums import measure_lengths

    return _replace_large_norms_by_infinity(measure_lengths(norms, 0))


def _replace_large_norms_by_infinity(norms: Tensor) -> Tensor:
    """Replace norms above `ROW_LIMIT`, and NaN, by infinity: such rows count as not finite."""
    return norms.masked_fill_(~(norms <= ROW_LIMIT), math.inf)


def unit_roundoff(values: Tensor) -> float:
    """Return the unit roundoff u of the values' type: half the distance from 1 to the next number."""
    import torch

    return torch.finfo(values.dtype).eps / 2
