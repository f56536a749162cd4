"""Products of int8 matrices, exact: by int8 instructions where they are right, else by float32 products of integers.

A sum of t products of int8 numbers is at most 2^14 t, so int32 holds 2^17 - 1 of them and float32, whose integers are
exact up to 2^24, holds 2^10. Neither the order of a sum nor the number of threads can change an exact result.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

LONGEST = 2**17 - 8  # products that int32 adds up: 2^14 each, at most; a multiple of 8
BLOCK = 2**9  # products that float32 adds up
NARROW = 64  # two products of a number below 2^8 and one up to this fit into 16 bits

ProductFunction = Callable[[Tensor, Tensor], Tensor]


def exact_int8_product(a: Tensor, b: Tensor) -> Tensor:
    """Return the exact product of int8 (p, c) and (c, d): int32, or int64 where c is above `LONGEST`."""
    if a.shape[1] > LONGEST:
        total = torch.zeros(len(a), b.shape[1], dtype=torch.int64, device=a.device)
        for left, right in zip(torch.split(a, LONGEST, 1), torch.split(b, LONGEST), strict=True):
            total += exact_int8_product(left, right)
        return total
    if not a.numel() or not b.numel():
        return torch.zeros(len(a), b.shape[1], dtype=torch.int32, device=a.device)
    return choose_product_function(a.device.type)(a, b)


def multiply_by_int8(a: Tensor, b: Tensor) -> Tensor:
    """Return the product by the processor's own int8 instructions."""
    if a.device.type == "cpu":
        return torch._int_mm(a, b)
    (rows, inner), columns = a.shape, b.shape[1]  # cuBLAS: 17 rows or more, and multiples of 8
    pad, along = torch.nn.functional.pad, -inner % 8
    wide = torch._int_mm(pad(a, (0, along, 0, max(0, 17 - rows))), pad(b, (0, -columns % 8, 0, along)))
    return wide[:rows, :columns]


def multiply_by_narrow_int8(a: Tensor, b: Tensor) -> Tensor:
    """Return the product by the int8 instructions of processors before VNNI, which add pairs of products in 16 bits.

    They take the first matrix as unsigned, 128 added, so pairs fit if the second holds numbers up to 64: slices do, and
    larger numbers are taken in halves. Of a vector and a matrix either may be the first one: vectors are taken twice.
    """
    if len(a) == 1:
        return multiply_by_narrow_int8(a.expand(2, -1).contiguous(), b)[:1]
    if b.shape[1] == 1:
        return multiply_by_narrow_int8(a, b.expand(-1, 2).contiguous())[:, :1]
    if int(a.amax()) <= NARROW and int(a.amin()) >= -NARROW:
        return torch._int_mm(b.T, a.T).T
    half = a >> 1
    one, other = torch._int_mm(b.T, torch.cat([half, a - half]).T).T.chunk(2)
    return one + other


def multiply_by_float(a: Tensor, b: Tensor) -> Tensor:
    """Return the product by float32 products of at most `BLOCK` terms, each exact, joined as integers.

    At about the price of a float32 product of as many numbers.
    """
    total = torch.zeros(len(a), b.shape[1], dtype=torch.int32, device=a.device)
    for left, right in zip(torch.split(a, BLOCK, 1), torch.split(b, BLOCK), strict=True):
        total += (left.float() @ right.float()).to(torch.int32)
    return total


@cache
def choose_product_function(device: str) -> ProductFunction:
    """Return how to take products on this kind of device: by its int8 instructions, if they are right and quick."""
    ways: tuple[ProductFunction, ...] = (multiply_by_int8, multiply_by_narrow_int8)
    return next(
        (way for way in ways if is_product_right(way, device) and _is_product_quick(way, device)), multiply_by_float
    )


def is_product_right(function: ProductFunction, device: str) -> bool:
    """Return whether products come out right on this kind of device, from the extremes of int8 at several shapes.

    Processors before VNNI multiply unsigned by signed bytes and add pairs in 16 bits, which saturate.
    """
    shapes = ((1, 1, 1), (2, 9, 5), (20, 64, 40), (20, 1000, 33), (3, 4096, 2), (2, 1000, 300), (130, 70, 200))
    vectors = ((1, 700, 90), (90, 700, 1), (1, 700, 1))
    try:
        return all(_is_right_at_shape(function, shape, device) for shape in (*shapes, *vectors))
    except (RuntimeError, NotImplementedError, AttributeError):
        return False


def _is_right_at_shape(function: ProductFunction, shape: tuple[int, int, int], device: str) -> bool:
    rows, inner, columns = shape
    draw = torch.Generator().manual_seed(inner)
    for low, high in ((-127, -126), (127, 128), (-127, 128), (-128, 128), (-128, -127), (-64, 65), (64, 65)):
        a = torch.randint(low, high, (rows, inner), generator=draw, dtype=torch.int8)
        b = torch.randint(2 * low, 2 * high - 1, (columns, inner), generator=draw).clamp(-128, 127).to(torch.int8).T
        for left, right in ((a, b), (-a.clamp(min=-127), b), (a, b.contiguous())):
            found = function(left.to(device), right.to(device)).cpu()
            if not torch.equal(found.double(), left.double() @ right.double()):  # far below 2^53: exact
                return False
    return True


def _is_product_quick(function: ProductFunction, device: str) -> bool:
    """Return whether it takes less than twice as long as floats: without instructions for it, a library loops."""
    return device != "cpu" or _measure_seconds(function) < 2 * _measure_seconds(multiply_by_float)


def _measure_seconds(function: ProductFunction) -> float:
    a, b = torch.ones(20, 512, dtype=torch.int8), torch.ones(512, 512, dtype=torch.int8)
    times = []
    for _ in range(4):
        begin = time.perf_counter()
        function(a, b)
        times.append(time.perf_counter() - begin)
    return min(times)
