"""Floats one correctly rounded operation at a time: a row's bits depend on the row alone.

Library kernels may round a vector loop, its remainder and another split among threads in different ways, and fused
operations round once where two round twice. IEEE 754 fixes the result of one addition, multiplication, division or
square root, so sums here are folded by explicit additions and the exponential is a polynomial.
"""

from __future__ import annotations

import math
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


def folded(terms: Tensor, axis: int = 0) -> Tensor:
    """Return the sum along an axis, by halves: a term is rounded at most twice for each halving."""
    count = terms.shape[axis]
    if count == 0:
        return terms.sum(axis)
    while count > 1:
        half, odd = divmod(count, 2)
        total = terms.narrow(axis, 0, half) + terms.narrow(axis, half, half)
        if odd:
            total.narrow(axis, 0, 1).add_(terms.narrow(axis, count - 1, 1))
        terms, count = total, half
    return terms.squeeze(axis)


def roundings(terms: int) -> int:
    """Return how many times a term is rounded, at most, in `folded` over so many terms."""
    return 2 * max(1, terms).bit_length()


def exp_(x: Tensor) -> Tensor:
    """Return e^x of float32 `x` <= 0 in place, to a relative error of 1e-5 or, for x > -2, of 5e-7; NaN stays NaN."""
    import torch

    x.clamp_(min=LOWEST).mul_(1 / math.log(2))
    whole = x.round()
    x.sub_(whole)  # |x| <= 1/2
    power = x * POWERS[-1]
    for coefficient in POWERS[-2:0:-1]:
        power.add_(coefficient).mul_(x)
    power.add_(POWERS[0])
    return x.copy_(power.mul_(whole.to(torch.int32).add_(127).bitwise_left_shift_(23).view(torch.float32)))


def softmax_(logits: Tensor) -> Tensor:
    """Return the softmax of float32 (..., m, c) along m, in place: classes first, examples last."""
    import torch

    exp_(logits.sub_(logits.amax(-2, keepdim=True)))
    total = folded(logits, -2).unsqueeze(-2)
    return logits.mul_(torch.ones_like(total).div_(total))
