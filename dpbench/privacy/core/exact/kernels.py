"""A step of a linear head in compiled loops: scores, residuals, clip weights, rounding and the sum, block by block.

Integers are multiplied by `tiles`, and no sum of them overflows. Floats are rounded as in `elementwise` and `sums`,
operation by operation: these modules say why, and the tests hold both forms to the same bits. Nothing is fused or
reordered, as no kernel asks for fast mathematics. So neither the order of rows, nor the number of threads, nor the
instructions can change a result.

Threads call a kernel together and take blocks of rows from one counter. Each adds to a total of its own.

Loops over a block run to the length of an array: LLVM unrolls those of constant length before it could use vectors.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np

from dpbench.privacy.core.exact.elementwise import LOWEST, POWERS, TINY
from dpbench.privacy.core.exact.limits import ROOM, ROW_LIMIT, SLICE, SMALLEST, STEEPEST, WIDER
from dpbench.privacy.core.exact.tiles import (
    BLOCK,
    DEEP,
    LANES,
    PART,
    i16,
    i32,
    multiply,
    pack_numbers,
    padded_stride,
    pair_rows,
    read_rows,
    round_up_to_multiple,
    take_number,
)  # fmt: skip
from dpbench.support.compiled import compile_kernels, compiled, kernel

SMALL = 2.0**-SLICE
i64, f4, f8 = np.int64, np.float32, np.float64
LOG2E, FIRST, *MIDDLE, LAST = map(np.float32, (1 / math.log(2), *POWERS))
P1, P2, P3, P4 = MIDDLE
FLOOR, SMALLEST_BITS = np.float32(LOWEST), np.float32(SMALLEST).view(np.int32)
LIMIT = ROW_LIMIT**2


@compiled
def _write_scores(rows: np.ndarray, packed: np.ndarray, part: np.ndarray, total: np.ndarray) -> None:
    """Write the exact products of a block of rows with packed numbers to `total` (k, BLOCK) float64."""
    total[:], pairs = 0.0, packed.shape[1]
    for low in range(0, pairs, PART // 2):
        part[:] = 0
        multiply(rows, 2 * low, packed, low, min(PART // 2, pairs - low), part[: rows.shape[0]])
        for j in range(total.shape[0]):
            for i in range(total.shape[1]):
                total[j, i] += f8(part[i, j])


@compiled
def _move_to_total(part: np.ndarray, width: int, total: np.ndarray) -> None:
    """Add the first `width` columns of int32 sums to the int64 total, and reset the int32 sums to zero."""
    for j in range(total.shape[0]):
        for t in range(width):
            total[j, t] += i64(part[j, t])
    part[:] = 0


@compiled
def _add_rows(
    numbers: np.ndarray, rows: np.ndarray, pairs: np.ndarray, part: np.ndarray, since: int, width: int,
    total: np.ndarray,
) -> int:  # fmt: skip
    """Add numbers (k, BLOCK) @ rows to `part`, emptied into `total` before it overflows; return its rows."""
    if since + BLOCK > PART:
        _move_to_total(part, width, total)
        since = 0
    pair_rows(rows, pairs)
    multiply(numbers, 0, pairs, 0, rows.shape[0] // 2, part)
    return since + BLOCK


@compiled
def _fold(terms: np.ndarray) -> np.ndarray:
    """Return the sums of (k, BLOCK) along k, which are overwritten, in the order of `elementwise.folded`."""
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
    total: np.ndarray = terms[0]
    return total


@compiled
def _take_residuals(logits: np.ndarray, labels: np.ndarray, terms: np.ndarray) -> None:
    """Overwrite float32 logits (k, BLOCK) with softmax minus one-hot, as `elementwise.residuals_` does.

    A label that is none makes its row NaN, which counts as a row that is not finite.
    """
    count = logits.shape[0]
    top = logits[0].copy()
    for j in range(1, count):
        for i in range(logits.shape[1]):
            top[i] = logits[j, i] if logits[j, i] > top[i] else top[i]
    exponents = np.empty(BLOCK, i32)
    for j in range(count):
        x, power = logits[j], terms[j]
        for i in range(logits.shape[1]):
            v = x[i] - top[i]
            v = (FLOOR if v < FLOOR else v) * LOG2E  # NaN stays NaN
            whole = np.rint(v)
            v -= whole
            exponents[i] = i32(0) if np.isnan(whole) else i32(whole)
            power[i] = ((((v * LAST + P4) * v + P3) * v + P2) * v + P1) * v + FIRST
        bits = power.view(i32)
        for i in range(logits.shape[1]):
            bits[i] += exponents[i] << 23
        x[:] = power
    total = _fold(terms)
    for j in range(count):
        for i in range(logits.shape[1]):
            logits[j, i] /= total[i]
    for i in range(logits.shape[1]):
        if 0 <= labels[i] < count:
            logits[labels[i], i] -= f4(1)
        else:
            logits[0, i] = np.nan


@compiled
def _compute_factors(
    left: np.ndarray, scale: np.ndarray, length: np.ndarray, share: np.ndarray, limits: np.ndarray,
    terms: np.ndarray, factors: np.ndarray, column_factors: np.ndarray,
) -> None:  # fmt: skip
    """Write the factors that scale each row's left factors before rounding, the same as in `sums.outer_sum`.

    `limits` are `sums.outer_limits`. A row that is not finite is multiplied by zero.
    """
    clip, grid, column, move, column_move, least, slack = limits
    for j in range(left.shape[0]):
        for i in range(left.shape[1]):
            terms[j, i] = left[j, i] * left[j, i]
    squares = _fold(terms)
    bias = f8(1) if column > 0 else f8(0)
    for i in range(left.shape[1]):
        reach = max(length[i], least)
        room = clip * share[i] - (reach * move + column_move)
        spread = reach * f8(scale[i])
        norm = (math.sqrt(f8(squares[i])) * slack + TINY) * (math.sqrt(spread * spread + bias) * WIDER)
        weight = min(room / norm * ROOM, share[i])
        kept = norm <= LIMIT and weight > 0
        factors[i] = f4(min(weight * f8(scale[i]) / grid, STEEPEST)) if kept else f4(0)
        column_factors[i] = f4(min(weight / column, STEEPEST)) if kept and column > 0 else f4(0)


@compiled
def _round_left_factors(
    left: np.ndarray, factors: np.ndarray, column_factors: np.ndarray, numbers: np.ndarray, columns: np.ndarray
) -> None:
    """Round left factors (k, BLOCK) to grid steps in `numbers`, and add those of the bias column to `columns` (k,)."""
    for j in range(left.shape[0]):
        row, target = left[j], numbers[j]
        for i in range(left.shape[1]):
            target[i] = i16(np.rint(row[i] * factors[i]) if factors[i] > 0 else f4(0))
        total = i64(0)
        for i in range(left.shape[1]):
            total += i64(np.rint(row[i] * column_factors[i]) if column_factors[i] > 0 else f4(0))
        columns[j] += total


@kernel
def pack_head(head: np.ndarray, features: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a head (k, features [+ 1]) in 15 bits and packed, its unit (1,) and its bias; see `whole_numbers`.

    A head that is not finite has an infinite unit, so that no row has finite logits.
    """
    count, bits, largest = head.shape[0], head.view(i32), SMALLEST_BITS
    for j in range(count):
        for t in range(features):
            largest = max(largest, bits[j, t] & i32(0x7FFFFFFF))  # that of the absolute value, in the same order
    finite = largest < i32(0x7F800000)
    unit = np.full(1, largest & i32(0x7F800000), i32).view(f4) * f4(2.0**-5)
    numbers = np.zeros((count, round_up_to_multiple(features, LANES)), i16)
    if finite:
        for j in range(count):
            for t in range(features):
                numbers[j, t] = i16(np.rint(head[j, t] / unit[0] * f4(1 / SMALL)))
    bias = head[:, features].copy() if head.shape[1] > features else np.zeros(count, f4)
    return pack_numbers(numbers), unit, bias


@kernel
def score_rows(counter: np.ndarray, q: np.ndarray, numbers: np.ndarray, scores: np.ndarray) -> None:
    """Write numbers (k, d) @ q.T to `scores` (k, c), each rounded to float32 once."""
    everyone, count = np.arange(q.shape[0]), numbers.shape[0]
    whole = np.zeros((count, round_up_to_multiple(q.shape[1], LANES)), i16)
    whole[:, : q.shape[1]] = numbers
    packed, rows = pack_numbers(whole), np.zeros((BLOCK, padded_stride(q.shape[1])), i16)
    part, exact = np.empty((BLOCK, packed.shape[0] * LANES), i32), np.empty((count, BLOCK), f8)
    while True:
        start = take_number(counter.ctypes.data) * BLOCK
        if start >= q.shape[0]:
            break
        _write_scores(read_rows(q, everyone, start, rows), packed, part, exact)
        for j in range(count):
            for i in range(min(BLOCK, q.shape[0] - start)):
                scores[j, start + i] = f4(exact[j, i])
    rows[:] = 0


@kernel
def sum_rows(counter: np.ndarray, q: np.ndarray, numbers: np.ndarray, total: np.ndarray) -> None:
    """Add numbers (k, c) @ q to `total` (k, d) int64."""
    everyone, width, since = np.arange(q.shape[0]), round_up_to_multiple(q.shape[1], LANES), 0
    part = np.zeros((round_up_to_multiple(numbers.shape[0], DEEP), padded_stride(width)), i32)
    rows, pairs = np.zeros((BLOCK, padded_stride(width)), i16), np.empty((width // LANES, BLOCK // 2, LANES), i32)
    held = np.zeros((part.shape[0], BLOCK), i16)
    while True:
        start = take_number(counter.ctypes.data) * BLOCK
        if start >= q.shape[0]:
            break
        for j in range(numbers.shape[0]):
            for i in range(BLOCK):
                held[j, i] = numbers[j, start + i] if start + i < q.shape[0] else i16(0)
        since = _add_rows(held, read_rows(q, everyone, start, rows), pairs, part, since, q.shape[1], total)
    _move_to_total(part, q.shape[1], total)
    rows[:], pairs[:] = 0, 0


@kernel
def sum_gradients(  # noqa: PLR0913  # one call a step, for all that a step needs
    counter: np.ndarray, q: np.ndarray, scale: np.ndarray, length: np.ndarray, y: np.ndarray, sample: np.ndarray,
    places: np.ndarray, shares: np.ndarray, packed: np.ndarray, unit: np.ndarray, bias: np.ndarray,
    limits: np.ndarray, total: np.ndarray,
) -> None:  # fmt: skip
    """Add the clipped gradients of a packed head, rounded to integers, to `total` (k, d [+ 1]) int64, the bias last.

    Row i of the sample is q[places[i]], with the label y[sample[i]] and a share of its unit, unless `shares` is empty.
    `limits` are `sums.outer_limits`. What is kept of rows while it runs is wiped.
    """
    count, features = total.shape[0], q.shape[1]
    width, since = round_up_to_multiple(features, LANES), 0
    part = np.zeros((round_up_to_multiple(count, DEEP), padded_stride(width)), i32)
    rows, pairs = np.zeros((BLOCK, padded_stride(width)), i16), np.empty((width // LANES, BLOCK // 2, LANES), i32)
    products, exact = np.empty((BLOCK, packed.shape[0] * LANES), i32), np.empty((count, BLOCK), f8)
    left, terms = np.empty((count, BLOCK), f4), np.empty((count, BLOCK), f4)
    numbers, columns, labels = np.zeros((part.shape[0], BLOCK), i16), np.zeros(count, i64), np.empty(BLOCK, i64)
    scales, lengths, share = np.empty(BLOCK, f4), np.empty(BLOCK, f8), np.ones(BLOCK, f8)
    factors, column_factors = np.empty(BLOCK, f4), np.empty(BLOCK, f4)
    while True:
        start = take_number(counter.ctypes.data) * BLOCK
        if start >= sample.shape[0]:
            break
        scales[:], lengths[:], labels[:] = np.nan, 0.0, 0  # as of a row that is not finite, beyond the last
        for i in range(min(BLOCK, sample.shape[0] - start)):
            place = places[start + i]
            scales[i], lengths[i], labels[i] = scale[place], length[place], y[sample[start + i]]
            if shares.shape[0]:
                share[i] = shares[start + i]
        block = read_rows(q, places, start, rows)
        _write_scores(block, packed, products, exact)
        for j in range(count):
            for i in range(left.shape[1]):
                left[j, i] = f4(exact[j, i]) * f4(SMALL) * (unit[0] * scales[i]) + bias[j]
        _take_residuals(left, labels, terms)
        _compute_factors(left, scales, lengths, share, limits, terms, factors, column_factors)
        _round_left_factors(left, factors, column_factors, numbers, columns)
        since = _add_rows(numbers, block, pairs, part, since, features, total)
    _move_to_total(part, features, total)
    if total.shape[1] > features:
        total[:, features] += columns
    rows[:], pairs[:], numbers[:], left[:], terms[:] = 0, 0, 0, 0, 0


@cache
def compile_all() -> None:
    """Compile the kernels, or load them from disk. Call it before private rows are bound."""
    integers, q = np.zeros(1, i64), np.zeros((1, 1), np.int8)
    head = np.zeros((1, 1), f4)

    def call() -> None:
        packed = pack_head(head, 1)
        score_rows(integers, q, np.zeros((1, 1), i16), head)
        sum_rows(integers, q, np.zeros((1, 1), i16), np.zeros((1, 1), i64))
        sum_gradients(
            integers, q, np.zeros(1, f4), np.zeros(1), integers, integers, integers, np.zeros(0), *packed, np.ones(7),
            np.zeros((1, 1), i64),
        )  # fmt: skip

    compile_kernels([pack_head, score_rows, sum_rows, sum_gradients], Path(__file__).parent, call)
