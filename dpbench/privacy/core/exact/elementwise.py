"""Float arithmetic in single, correctly rounded operations: a row's bits depend on the row alone.

Library kernels may round differently in a vector loop, in its remainder and under another split among threads, and a
fused operation rounds once where two separate ones round twice. IEEE 754 fixes the result of one addition,
multiplication, division or square root, so sums here are folded by explicit additions and the exponential is a
polynomial.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

# 2^f = sum of POWERS[i] f^i for |f| <= 1/2, to a relative error of 7.5e-8 (minimax).
POWERS = (
    1.0000000716554334,
    0.6931469670620393,
    0.24022119720072815,
    0.05550713276097182,
    0.009675541540187266,
    0.0013276471736416925,
)
TINY = 1e-15  # above sqrt(t) 2^-63, what squares below 2^-126 may add up to, for every t up to 2^26
LOWEST = -80.0  # exp of less is taken for exp(-80) = 2e-35


@cache
def get_cached_scalar_tensor(value: float) -> Tensor:
    """Return a number as a cached float32 tensor on the CPU; otherwise torch would create one at every operation."""
    import torch

    with torch.inference_mode(False):  # whoever asks first decides nothing for those who ask later
        return torch.tensor(value, dtype=torch.float32, device="cpu")


def folded(terms: Tensor, axis: int = 0, *, keepdim: bool = False) -> Tensor:
    """Sum along an axis by halving it repeatedly and adding the halves; a term is rounded at most twice per halving."""
    if terms.shape[axis] == 0:
        return terms.sum(axis, keepdim=keepdim)
    last: list[Tensor] = []  # the odd ones out
    while (half := terms.shape[axis] // 2) > 0:
        one, other, *odd = terms.split_with_sizes([half, half, 1][: 2 + terms.shape[axis] % 2], axis)
        terms = one + other
        last += odd
    for odd_one in last:
        terms.add_(odd_one)
    return terms if keepdim else terms.squeeze(axis)


def count_roundings(terms: int) -> int:
    """Return an upper bound on how often `folded` rounds each of this many terms."""
    return 2 * max(1, terms).bit_length()


def exp_(x: Tensor) -> Tensor:
    """Return e^x for float32 `x` <= 0, and overwrite `x`. The relative error is at most 1e-5, and 5e-7 for x > -2.

    `x` below -80 counts as -80. NaN stays NaN.
    """
    import torch

    x.clamp_(min=LOWEST).mul_(get_cached_scalar_tensor(1 / math.log(2)))
    whole = x.round()
    x.sub_(whole)  # |x| <= 1/2
    power = x * get_cached_scalar_tensor(POWERS[-1])
    for coefficient in POWERS[-2:0:-1]:
        power.add_(get_cached_scalar_tensor(coefficient)).mul_(x)
    power.add_(get_cached_scalar_tensor(POWERS[0]))
    power.view(torch.int32).add_(whole.to(torch.int32), alpha=2**23)  # adds to the exponent
    return power


def softmax_(logits: Tensor) -> Tensor:
    """Compute the softmax of float32 logits (..., m, c) along m, in place: m classes, c examples."""
    shares = exp_(logits.sub_(logits.amax(-2, keepdim=True)))
    return shares.div_(folded(shares, -2, keepdim=True))


def residuals_(logits: Tensor, y: Tensor) -> Tensor:
    """Compute softmax minus one-hot of float32 logits (..., k, c), in place: k classes, c examples."""
    return softmax_(logits).scatter_(-2, y.expand(*logits.shape[:-2], 1, -1), -1.0, reduce="add")
