"""A step of a linear head in compiled loops: scores, residuals, clip weights, rounding and the sum, block by block.

The functions of `tiles` multiply integers, and no sum of integers overflows. Floats are rounded as in `elementwise` and
`sums`, operation by operation: these modules explain why, and tests check that both forms give the same bits. No
operation is fused or reordered, because no kernel enables fast mathematics. So neither the order of rows, nor the
number of threads, nor the processor's instructions can change a result.

Several threads call a kernel at once, take blocks of rows from a shared counter and add to a total of their own.

Loops over a block run to the length of an array: LLVM would unroll loops of constant length before vectorising them.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dpbench.privacy.core.exact.elementwise import LOWEST, POWERS, TINY
from dpbench.privacy.core.exact.limits import ROOM, ROW_LIMIT, SLICE, SMALLEST, STEEPEST, WIDER
from dpbench.privacy.core.exact.tiles import (
    ACROSS,
    DEEP,
    LANES,
    LINE,
    PART,
    WIDE,
    add_sums,
    add_to_exponent,
    choose_block_size,
    clear_bytes,
    fetch_and_increment,
    i16,
    i32,
    make_aligned_zeros,
    pack_row_pairs,
    padded_stride,
    prefetch_rows,
    read_rows,
    round_up_to_multiple,
    write_scores,
)  # fmt: skip
from dpbench.support.compiled import compile_kernels, kernel, kernel_helper

SMALL = 2.0**-SLICE
i64: Any = np.int64  # of a constant: numba compiles a function once more for each literal that it is given
f4, f8 = np.float32, np.float64
LOG2E, FIRST, *MIDDLE, LAST = map(np.float32, (1 / math.log(2), *POWERS))
P1, P2, P3, P4 = MIDDLE
FLOOR, SMALLEST_BITS = np.float32(LOWEST), np.float32(SMALLEST).view(np.int32)
LIMIT = ROW_LIMIT**2


@kernel_helper
def _write_rounded_scores(
    rows: np.ndarray, numbers: np.ndarray, features: int, part: np.ndarray, total: np.ndarray, scores: np.ndarray
) -> None:
    """Write the products of numbers (k, ...) and a block of rows (b, ...) to `scores` (k, b), rounded once."""
    width = round_up_to_multiple(features, 2 * LANES)
    if width <= PART:
        write_scores(rows, numbers, i64(0), width, part)
        for j in range(scores.shape[0]):
            for i in range(scores.shape[1]):
                scores[j, i] = f4(part[j, i])
        return
    clear_bytes(total.ctypes.data, total.nbytes)
    for low in range(0, width, PART):
        write_scores(rows, numbers, low, min(PART, width - low), part)
        for j in range(total.shape[0]):
            for i in range(total.shape[1]):
                total[j, i] += f8(part[j, i])
    for j in range(total.shape[0]):
        for i in range(total.shape[1]):
            scores[j, i] = f4(total[j, i])


@kernel_helper
def _add_to_total_and_reset(part: np.ndarray, width: int, total: np.ndarray) -> None:
    """Add the first `width` columns of int32 sums to the int64 total, and reset the int32 sums to zero."""
    for j in range(total.shape[0]):
        for t in range(width):
            total[j, t] += i64(part[j, t])
    clear_bytes(part.ctypes.data, part.nbytes)


@kernel_helper
def _add_rows(  # noqa: PLR0913  # what a kernel holds, and where its next rows lie
    numbers: np.ndarray, rows: np.ndarray, pairs: np.ndarray, part: np.ndarray, since: int, total: np.ndarray,
    q: np.ndarray, places: np.ndarray, upcoming: int,
) -> int:  # fmt: skip
    """Add numbers (k, b) @ rows to `part`, and first move `part` to `total` if it could overflow.

    Return the number of rows that `part` then sums. Prefetch the rows of q at places[upcoming:], which are read next.
    """
    if since + numbers.shape[1] > PART:
        _add_to_total_and_reset(part, q.shape[1], total)
        since = i64(0)
    few = numbers.shape[1] * ACROSS // LINE  # so many rows at each step: the processor fetches only so many at once
    for column in range(0, q.shape[1], ACROSS):
        line, step = column // LINE * LINE, column % LINE // ACROSS
        prefetch_rows(q, places, upcoming + step * few, few, line)
        add_sums(numbers, pack_row_pairs(rows, column, pairs), part, column)
    gathered: int = since + numbers.shape[1]
    return gathered


@kernel_helper
def _sum_into_first_row(terms: np.ndarray) -> None:
    """Sum (k, b) along k into the first row, in the order of `elementwise.folded`; the other rows are overwritten."""
    count = terms.shape[0]
    while count > 1:
        half = count // 2
        for j in range(half):
            for i in range(terms.shape[1]):
                terms[j, i] += terms[half + j, i]
        count = half
    count = terms.shape[0]
    while count > 1:
        if count % 2:
            for i in range(terms.shape[1]):
                terms[0, i] += terms[count - 1, i]
        count //= 2


@kernel_helper
def _compute_residuals(logits: np.ndarray, labels: np.ndarray, terms: np.ndarray, top: np.ndarray) -> None:
    """Overwrite float32 logits (k, b) with softmax minus one-hot, as `elementwise.residuals_` does.

    An invalid label makes its row NaN, so that the row counts as not finite.
    """
    count, rows = logits.shape
    for i in range(rows):
        top[i] = logits[0, i]
    for j in range(1, count):
        for i in range(rows):
            top[i] = logits[j, i] if logits[j, i] > top[i] else top[i]
    for j in range(count):
        for i in range(rows):
            v = logits[j, i] - top[i]
            v = (FLOOR if v < FLOOR else v) * LOG2E  # NaN stays NaN
            whole = np.rint(v)
            v -= whole
            power = ((((v * LAST + P4) * v + P3) * v + P2) * v + P1) * v + FIRST
            logits[j, i] = terms[j, i] = add_to_exponent(power, i32(0) if np.isnan(whole) else i32(whole))
    _sum_into_first_row(terms)
    for j in range(count):
        for i in range(rows):
            logits[j, i] /= terms[0, i]
    for i in range(rows):
        if 0 <= labels[i] < count:
            logits[labels[i], i] -= f4(1)
        else:
            logits[0, i] = np.nan


@kernel_helper
def _compute_factors(
    left: np.ndarray, scale: np.ndarray, length: np.ndarray, share: np.ndarray, limits: np.ndarray,
    terms: np.ndarray, factors: np.ndarray, column_factors: np.ndarray,
) -> None:  # fmt: skip
    """Write the factors of each row's left factors before rounding, as in `sums.clipped_outer_product_sum`.

    `limits` is the return value of `sums.outer_product_sum_constants`. A row that is not finite gets zero.
    """
    clip, grid, column, move, column_move, least, slack = limits
    for j in range(left.shape[0]):
        for i in range(left.shape[1]):
            terms[j, i] = left[j, i] * left[j, i]
    _sum_into_first_row(terms)
    bias = f8(1) if column > 0 else f8(0)
    for i in range(left.shape[1]):
        reach = max(length[i], least)
        room = clip * share[i] - (reach * move + column_move)
        spread = reach * f8(scale[i])
        norm = (math.sqrt(f8(terms[0, i])) * slack + TINY) * (math.sqrt(spread * spread + bias) * WIDER)
        weight = min(room / norm * ROOM, share[i])
        kept = norm <= LIMIT and weight > 0
        factors[i] = f4(min(weight * f8(scale[i]) / grid, STEEPEST)) if kept else f4(0)
        column_factors[i] = f4(min(weight / column, STEEPEST)) if kept and column > 0 else f4(0)


@kernel_helper
def _round_left_factors(
    left: np.ndarray, factors: np.ndarray, column_factors: np.ndarray, numbers: np.ndarray, columns: np.ndarray
) -> None:
    """Write left factors (k, b) in whole grid steps to `numbers`; add their sums in bias steps to `columns` (k,).

    A clipped left factor has at most 2^`BIAS_BITS` = 2^20 bias steps, so int32 holds the sum of a block.
    """
    for j in range(left.shape[0]):
        total = i32(0)
        for i in range(left.shape[1]):
            numbers[j, i] = i16(i32(np.rint(left[j, i] * factors[i]) if factors[i] > 0 else f4(0)))
        for i in range(left.shape[1]):
            total += i32(np.rint(left[j, i] * column_factors[i]) if column_factors[i] > 0 else f4(0))
        columns[j] += total


@kernel_helper
def _make_numbers(count: int, features: int) -> np.ndarray:
    """Return zeros (k, ...) int16 for the numbers of scores, with room for what `write_scores` reads beyond them."""
    numbers: np.ndarray = make_aligned_zeros(round_up_to_multiple(count, WIDE), padded_stride(features) // 2).view(i16)
    return numbers


@kernel
def pack_head(head: np.ndarray, features: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Round a head (k, features [+ 1]) to 15 bits; return it, its unit (1,) and its bias (k,); see `round_to_integers`.

    A head that is not finite has an infinite unit, so that no row has finite logits.
    """
    count, bits, largest = head.shape[0], head.view(i32), SMALLEST_BITS
    for j in range(count):
        for t in range(features):
            largest = max(largest, bits[j, t] & i32(0x7FFFFFFF))  # that of the absolute value, in the same order
    finite, unit, bias = largest < i32(0x7F800000), np.zeros(1, f4), np.zeros(count, f4)
    unit.view(i32)[0] = largest & i32(0x7F800000)
    unit[0] *= f4(2.0**-5)
    numbers = _make_numbers(count, features)
    for j in range(count):
        for t in range(features):
            numbers[j, t] = i16(np.rint(head[j, t] / unit[0] * f4(1 / SMALL)) if finite else f4(0))
        if head.shape[1] > features:
            bias[j] = head[j, features]
    return numbers, unit, bias


@kernel
def score_rows(counter: np.ndarray, q: np.ndarray, places: np.ndarray, numbers: np.ndarray, scores: np.ndarray) -> None:
    """Write the product numbers (k, d) @ q[places].T to `scores` (k, c), rounded once."""
    (count, features), block = numbers.shape, choose_block_size(q.shape[1])
    whole, rows = _make_numbers(count, features), make_aligned_zeros(block, padded_stride(features) // 2).view(i16)
    part, exact = np.empty((whole.shape[0], block), i32), np.empty((count, block), f8)
    rounded = np.empty((count, block), f4)
    for j in range(count):
        for t in range(features):
            whole[j, t] = numbers[j, t]
    while True:
        start = fetch_and_increment(counter.ctypes.data) * block
        if start >= places.shape[0]:
            break
        _write_rounded_scores(read_rows(q, places, start, rows), whole, features, part, exact, rounded)
        for j in range(count):
            for i in range(min(block, places.shape[0] - start)):
                scores[j, start + i] = rounded[j, i]
    clear_bytes(rows.ctypes.data, rows.nbytes)


@kernel
def sum_rows(counter: np.ndarray, q: np.ndarray, places: np.ndarray, numbers: np.ndarray, total: np.ndarray) -> None:
    """Add numbers (k, c) @ q[places] to `total` (k, d) int64."""
    width, block, since = padded_stride(q.shape[1]), choose_block_size(q.shape[1]), i64(0)
    part = make_aligned_zeros(round_up_to_multiple(numbers.shape[0], DEEP), width)
    rows, pairs = make_aligned_zeros(block, width // 2).view(i16), make_aligned_zeros(block // 2, ACROSS)
    held, start = np.zeros((part.shape[0], block), i16), fetch_and_increment(counter.ctypes.data) * block
    while start < places.shape[0]:
        upcoming = fetch_and_increment(counter.ctypes.data) * block
        for j in range(numbers.shape[0]):
            for i in range(block):
                held[j, i] = numbers[j, start + i] if start + i < places.shape[0] else i16(0)
        since = _add_rows(held, read_rows(q, places, start, rows), pairs, part, since, total, q, places, upcoming)
        start = upcoming
    _add_to_total_and_reset(part, q.shape[1], total)
    clear_bytes(rows.ctypes.data, rows.nbytes)
    clear_bytes(pairs.ctypes.data, pairs.nbytes)


@kernel
def sum_gradients(  # noqa: PLR0913  # one call a step, for all that a step needs
    counter: np.ndarray, q: np.ndarray, scale: np.ndarray, length: np.ndarray, y: np.ndarray, sample: np.ndarray,
    places: np.ndarray, shares: np.ndarray, packed: np.ndarray, unit: np.ndarray, bias: np.ndarray,
    limits: np.ndarray, total: np.ndarray,
) -> None:  # fmt: skip
    """Add the clipped gradients of a packed head, rounded to integers, to `total` (k, d [+ 1]) int64, the bias last.

    Row i of the sample is q[places[i]], with label y[sample[i]]. Its share of its unit is shares[i], or 1 if `shares`
    is empty. `limits` is the return value of `sums.outer_product_sum_constants`. Copies of rows are wiped at the end.
    """
    count, features, block = total.shape[0], q.shape[1], choose_block_size(q.shape[1])
    width, since = padded_stride(features), i64(0)
    part = make_aligned_zeros(round_up_to_multiple(count, DEEP), width)
    rows, pairs = make_aligned_zeros(block, width // 2).view(i16), make_aligned_zeros(block // 2, ACROSS)
    products, exact = np.empty((packed.shape[0], block), i32), np.empty((count, block), f8)
    left, terms = np.empty((count, block), f4), np.empty((count, block), f4)
    numbers, columns, labels = np.zeros((part.shape[0], block), i16), np.zeros(count, i64), np.empty(block, i64)
    scales, lengths, share, top = np.empty(block, f4), np.empty(block, f8), np.ones(block), np.empty(block, f4)
    factors, column_factors = np.empty(block, f4), np.empty(block, f4)
    start = fetch_and_increment(counter.ctypes.data) * block
    while start < sample.shape[0]:
        upcoming = fetch_and_increment(counter.ctypes.data) * block
        size = min(block, sample.shape[0] - start)
        for i in range(size):
            place = places[start + i]
            scales[i], lengths[i], labels[i] = scale[place], length[place], y[sample[start + i]]
        for i in range(min(size, shares.shape[0])):
            share[i] = shares[start + i]
        for i in range(size, block):  # as of a row that is not finite
            scales[i], lengths[i], labels[i] = f4(np.nan), 0.0, 0
        held = read_rows(q, places, start, rows)
        _write_rounded_scores(held, packed, features, products, exact, left)
        for j in range(count):
            for i in range(block):
                left[j, i] = left[j, i] * f4(SMALL) * (unit[0] * scales[i]) + bias[j]
        _compute_residuals(left, labels, terms, top)
        _compute_factors(left, scales, lengths, share, limits, terms, factors, column_factors)
        _round_left_factors(left, factors, column_factors, numbers, columns)
        since = _add_rows(numbers, held, pairs, part, since, total, q, places, upcoming)
        start = upcoming
    _add_to_total_and_reset(part, features, total)
    if total.shape[1] > features:
        for j in range(count):
            total[j, features] += columns[j]
    clear_bytes(rows.ctypes.data, rows.nbytes)
    clear_bytes(pairs.ctypes.data, pairs.nbytes)
    for j in range(count):
        for i in range(block):
            numbers[j, i], left[j, i], terms[j, i] = 0, 0, 0


@cache
def compile_all_kernels() -> None:
    """Compile the kernels, or load them from disk. Call it before private rows are bound."""
    integers, q = np.zeros(1, i64), np.zeros((1, 1), np.int8)
    head = np.zeros((1, 1), f4)

    def call_each_kernel() -> None:
        packed = pack_head(head, 1)
        score_rows(integers, q, integers, np.zeros((1, 1), i16), head)
        sum_rows(integers, q, integers, np.zeros((1, 1), i16), np.zeros((1, 1), i64))
        sum_gradients(
            integers, q, np.zeros(1, f4), np.zeros(1), integers, integers, integers, np.zeros(0), *packed, np.ones(7),
            np.zeros((1, 1), i64),
        )  # fmt: skip

    compile_kernels(
        [pack_head, score_rows, sum_rows, sum_gradients],
        Path(__file__).parent,
        call_each_kernel,
        "Linear heads are fitted",
    )
