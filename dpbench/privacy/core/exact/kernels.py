"""The arithmetic of a linear head in compiled loops: products of 16-bit integers, and floats one operation at a time.

Every processor multiplies pairs of 16-bit integers and adds them up in 32 bits (`vpmaddwd`, `vpdpwssd`, `smlal`), and
LLVM finds these instructions in `_tile`, the one product here. Rows are int8, so at most 127; all other numbers are at
most `LEFT_LIMIT` = 127 * 2^7. int32 never holds more than `PART` products: 127 * 16,256 * 1,024 = 2,114,060,288, which
is below 2^31. Longer sums are taken in parts and added up in float64 (below 2^53) or int64. So no sum overflows, and
neither their order, nor the number of threads, nor the instructions can change a result.

Floats are rounded as in `elementwise` and `sums`, operation by operation: these modules say why, and the tests hold
both forms to the same bits. Nothing is fused or reordered, as no kernel asks for fast mathematics.

Threads call a kernel together and take blocks of rows from one counter. Each adds to a total of its own.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dpbench.privacy.core.exact.elementwise import LOWEST, POWERS, TINY
from dpbench.privacy.core.exact.quantised import ROW_LIMIT, SLICE, SMALLEST
from dpbench.privacy.core.exact.sums import ROOM, STEEPEST, WIDER
from dpbench.support.compiled import compile_kernels, compiled, kernel

PART = 1024  # products that int32 adds up
LANES, DEEP = 16, 6  # numbers by which a tile of a product is wide and high: 12 of the 16 registers of AVX2
BLOCK = 48  # rows that are multiplied at once, from the processor's cache; even, and a multiple of DEEP
SMALL = 2.0**-SLICE
i16, i32, i64, f4, f8 = np.int16, np.int32, np.int64, np.float32, np.float64
LOG2E, FIRST, *MIDDLE, LAST = map(np.float32, (1 / math.log(2), *POWERS))
P1, P2, P3, P4 = MIDDLE
FLOOR, SMALLEST_BITS = np.float32(LOWEST), np.float32(SMALLEST).view(np.int32)
LIMIT = ROW_LIMIT**2


@intrinsic
def _take(typing: Any, counter: Any) -> Any:  # numba passes its typing context
    """Return the number at an address and add one to it, as one operation among threads."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", place, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(types.intp), emit


@intrinsic
def _tile(typing: Any, a: Any, a_row: Any, b: Any, c: Any, c_row: Any, pairs: Any) -> Any:
    """Add a product to a tile of `DEEP` x `LANES` int32 numbers at `c`, over pairs of int16 numbers.

    Row m of `a` is a sequence of pairs, at `a` + m * `a_row` bytes. `b` holds `LANES` pairs side by side, a pair of `a`
    after another. Rows of `c` are `c_row` bytes apart.
    """
    word, half = ir.IntType(32), ir.IntType(16)
    narrow, wide = ir.VectorType(word, LANES), ir.VectorType(word, 2 * LANES)
    halves, nothing = ir.VectorType(half, 2 * LANES), ir.Constant(narrow, ir.Undefined)

    def choice(places: range | list[int]) -> Any:
        return ir.Constant(ir.VectorType(word, LANES), [*places])

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, a_row, b, c, c_row, pairs = arguments

        def at(base: Any, kind: Any, *steps: tuple[Any, int]) -> Any:
            for count, size in steps:
                base = builder.add(base, builder.mul(count, ir.Constant(pairs.type, size)))
            return builder.inttoptr(base, kind.as_pointer())

        def load(place: Any) -> Any:
            loaded = builder.load(place)
            loaded.align = 4
            return loaded

        sums = [cgutils.alloca_once(builder, narrow) for _ in range(DEEP)]
        for m, held in enumerate(sums):
            builder.store(load(at(c, narrow, (c_row, m))), held)
        with cgutils.for_range(builder, pairs) as loop:
            right = builder.sext(builder.bitcast(load(at(b, narrow, (loop.index, 4 * LANES))), halves), wide)
            for m, held in enumerate(sums):
                pair = builder.insert_element(nothing, load(at(a, word, (a_row, m), (loop.index, 4))), word(0))
                pair = builder.shuffle_vector(pair, nothing, choice([0] * LANES))
                products = builder.mul(right, builder.sext(builder.bitcast(pair, halves), wide))
                even, odd = (
                    builder.shuffle_vector(products, products, choice(range(first, 2 * LANES, 2))) for first in (0, 1)
                )
                builder.store(builder.add(builder.load(held), builder.add(even, odd)), held)
        for m, held in enumerate(sums):
            builder.store(builder.load(held), at(c, narrow, (c_row, m))).align = 4
        return context.get_dummy_value()

    return types.void(*[types.intp] * 6), emit


@intrinsic
def _zip(typing: Any, even: Any, odd: Any, target: Any) -> Any:
    """Write `LANES` pairs of int16 numbers: those at `even` with those at `odd`."""
    kind = ir.VectorType(ir.IntType(16), LANES)
    places = [lane // 2 + LANES * (lane % 2) for lane in range(2 * LANES)]

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers = [builder.load(builder.inttoptr(place, kind.as_pointer())) for place in arguments[:2]]
        for loaded in numbers:
            loaded.align = 2
        zipped = builder.shuffle_vector(*numbers, ir.Constant(ir.VectorType(ir.IntType(32), 2 * LANES), places))
        builder.store(zipped, builder.inttoptr(arguments[2], zipped.type.as_pointer())).align = 2
        return context.get_dummy_value()

    return types.void(*[types.intp] * 3), emit


@compiled
def _multiply(a: np.ndarray, low: int, b: np.ndarray, first: int, pairs: int, c: np.ndarray) -> None:
    """Add a[:, low : low + 2 pairs] @ b[:, first : first + pairs] to c (m, n) int32, with m a multiple of DEEP.

    `a` is (m, ...) int16; `b` is (n / LANES, ..., LANES) int32, each a pair of int16 numbers from two rows of a matrix.
    """
    left, right, out = a.ctypes.data + 2 * low, b.ctypes.data + 4 * LANES * first, c.ctypes.data
    for n in range(b.shape[0]):
        for m in range(0, c.shape[0], DEEP):
            _tile(
                left + 2 * m * a.shape[1], 2 * a.shape[1], right + 4 * LANES * n * b.shape[1],
                out + 4 * (m * c.shape[1] + n * LANES), 4 * c.shape[1], pairs,
            )  # fmt: skip


@compiled
def _padded(count: int, multiple: int) -> int:
    return (count + multiple - 1) // multiple * multiple


@compiled
def _pack_numbers(numbers: np.ndarray) -> np.ndarray:
    """Return (k, d) int16 numbers, d a multiple of LANES, as `_multiply` takes them on the right: pairs along d."""
    pairs = numbers.view(i32)
    packed = np.zeros((_padded(numbers.shape[0], LANES) // LANES, pairs.shape[1], LANES), i32)
    for j in range(numbers.shape[0]):
        for t in range(pairs.shape[1]):
            packed[j // LANES, t, j % LANES] = pairs[j, t]
    return packed


@compiled
def _read_rows(q: np.ndarray, places: np.ndarray, start: int, rows: np.ndarray) -> None:
    """Copy a block of rows to (BLOCK, d), widened to 16 bits; beyond the last row all is zero."""
    for i in range(BLOCK):
        if start + i < places.shape[0]:
            place = places[start + i]
            for t in range(q.shape[1]):
                rows[i, t] = i16(q[place, t])
        else:
            rows[i] = 0


@compiled
def _pair_rows(rows: np.ndarray, pairs: np.ndarray) -> None:
    """Pack a block of rows as `_multiply` takes it on the right, in pairs of rows."""
    for p in range(BLOCK // 2):
        for n in range(pairs.shape[0]):
            even, odd = rows[2 * p, n * LANES :], rows[2 * p + 1, n * LANES :]
            _zip(even.ctypes.data, odd.ctypes.data, pairs[n, p].ctypes.data)


@compiled
def _score(rows: np.ndarray, packed: np.ndarray, part: np.ndarray, total: np.ndarray) -> None:
    """Write the products of a block of rows with packed numbers to `total` (k, BLOCK) float64, which holds them."""
    total[:] = 0.0
    for low in range(0, rows.shape[1], PART):
        part[:] = 0
        _multiply(rows, low, packed, low // 2, min(PART, rows.shape[1] - low) // 2, part)
        for j in range(total.shape[0]):
            for i in range(BLOCK):
                total[j, i] += f8(part[i, j])


@compiled
def _flush(part: np.ndarray, total: np.ndarray) -> None:
    """Add int32 sums to int64 ones, and begin again."""
    for j in range(total.shape[0]):
        for t in range(total.shape[1]):
            total[j, t] += i64(part[j, t])
    part[:] = 0


@compiled
def _add_rows(
    numbers: np.ndarray, rows: np.ndarray, pairs: np.ndarray, part: np.ndarray, since: int, total: np.ndarray
) -> int:
    """Add numbers (k, BLOCK) @ rows to `part`, or first to `total` what `part` has; return how many rows it has now."""
    if since + BLOCK > PART:
        _flush(part, total)
        since = 0
    _pair_rows(rows, pairs)
    _multiply(numbers, 0, pairs, 0, BLOCK // 2, part)
    return since + BLOCK


@compiled
def _fold(terms: np.ndarray) -> np.ndarray:
    """Return the sums of (k, BLOCK) along k, which are overwritten, in the order of `elementwise.folded`."""
    count = terms.shape[0]
    while count > 1:
        half = count // 2
        for j in range(half):
            for i in range(BLOCK):
                terms[j, i] += terms[half + j, i]
        count = half
    count = terms.shape[0]
    while count > 1:
        if count % 2:
            for i in range(BLOCK):
                terms[0, i] += terms[count - 1, i]
        count //= 2
    return terms[0]


@compiled
def _take_residuals(logits: np.ndarray, labels: np.ndarray, terms: np.ndarray) -> None:
    """Overwrite float32 logits (k, BLOCK) with softmax minus one-hot, as `elementwise.residuals_` does.

    A label that is none makes its row NaN, which counts as a row that is not finite.
    """
    count = logits.shape[0]
    top = logits[0].copy()
    for j in range(1, count):
        for i in range(BLOCK):
            top[i] = logits[j, i] if logits[j, i] > top[i] else top[i]
    exponents = np.empty(BLOCK, i32)
    for j in range(count):
        x, power = logits[j], terms[j]
        for i in range(BLOCK):
            v = x[i] - top[i]
            v = (FLOOR if v < FLOOR else v) * LOG2E  # NaN stays NaN
            whole = np.rint(v)
            v -= whole
            exponents[i] = i32(0) if np.isnan(whole) else i32(whole)
            power[i] = ((((v * LAST + P4) * v + P3) * v + P2) * v + P1) * v + FIRST
        bits = power.view(i32)
        for i in range(BLOCK):
            bits[i] += exponents[i] << 23
        x[:] = power
    total = _fold(terms)
    for j in range(count):
        for i in range(BLOCK):
            logits[j, i] /= total[i]
    for i in range(BLOCK):
        if 0 <= labels[i] < count:
            logits[labels[i], i] -= f4(1)
        else:
            logits[0, i] = np.nan


@compiled
def _weigh(
    left: np.ndarray, scale: np.ndarray, length: np.ndarray, share: np.ndarray, limits: np.ndarray,
    terms: np.ndarray, factors: np.ndarray, column_factors: np.ndarray,
) -> None:  # fmt: skip
    """Write what rows of left factors (k, BLOCK) are multiplied by before they are rounded, as `sums.outer_sum` has it.

    `limits` are `sums.outer_limits`. A row that is not finite is multiplied by zero.
    """
    clip, grid, column, move, column_move, least, slack = limits
    for j in range(left.shape[0]):
        for i in range(BLOCK):
            terms[j, i] = left[j, i] * left[j, i]
    squares = _fold(terms)
    bias = f8(1) if column > 0 else f8(0)
    for i in range(BLOCK):
        reach = max(length[i], least)
        room = clip * share[i] - (reach * move + column_move)
        spread = reach * f8(scale[i])
        norm = (math.sqrt(f8(squares[i])) * slack + TINY) * (math.sqrt(spread * spread + bias) * WIDER)
        weight = min(room / norm * ROOM, share[i])
        kept = norm <= LIMIT and weight > 0
        factors[i] = f4(min(weight * f8(scale[i]) / grid, STEEPEST)) if kept else f4(0)
        column_factors[i] = f4(min(weight / column, STEEPEST)) if kept and column > 0 else f4(0)


@compiled
def _round(
    left: np.ndarray, factors: np.ndarray, column_factors: np.ndarray, numbers: np.ndarray, columns: np.ndarray
) -> None:
    """Write left factors (k, BLOCK) in grid steps to `numbers`, and add those of a bias to `columns` (k,)."""
    for j in range(left.shape[0]):
        row, target = left[j], numbers[j]
        for i in range(BLOCK):
            target[i] = i16(np.rint(row[i] * factors[i]) if factors[i] > 0 else f4(0))
        total = i64(0)
        for i in range(BLOCK):
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
    numbers = np.zeros((count, _padded(features, LANES)), i16)
    if finite:
        for j in range(count):
            for t in range(features):
                numbers[j, t] = i16(np.rint(head[j, t] / unit[0] * f4(1 / SMALL)))
    bias = head[:, features].copy() if head.shape[1] > features else np.zeros(count, f4)
    return _pack_numbers(numbers), unit, bias


@kernel
def score_rows(counter: np.ndarray, q: np.ndarray, numbers: np.ndarray, scores: np.ndarray) -> None:
    """Write numbers (k, d) @ q.T to `scores` (k, c), each rounded to float32 once."""
    everyone, count = np.arange(q.shape[0]), numbers.shape[0]
    padded = np.zeros((count, _padded(q.shape[1], LANES)), i16)
    padded[:, : q.shape[1]] = numbers
    packed, rows = _pack_numbers(padded), np.zeros((BLOCK, padded.shape[1]), i16)
    part, exact = np.empty((BLOCK, packed.shape[0] * LANES), i32), np.empty((count, BLOCK), f8)
    while True:
        start = _take(counter.ctypes.data) * BLOCK
        if start >= q.shape[0]:
            break
        _read_rows(q, everyone, start, rows)
        _score(rows, packed, part, exact)
        for j in range(count):
            for i in range(min(BLOCK, q.shape[0] - start)):
                scores[j, start + i] = f4(exact[j, i])
    rows[:] = 0


@kernel
def sum_rows(counter: np.ndarray, q: np.ndarray, numbers: np.ndarray, total: np.ndarray) -> None:
    """Add numbers (k, c) @ q to `total` (k, d) int64."""
    everyone, width, since = np.arange(q.shape[0]), _padded(q.shape[1], LANES), 0
    part = np.zeros((_padded(numbers.shape[0], DEEP), width), i32)
    rows, pairs = np.zeros((BLOCK, width), i16), np.empty((width // LANES, BLOCK // 2, LANES), i32)
    held = np.zeros((part.shape[0], BLOCK), i16)
    while True:
        start = _take(counter.ctypes.data) * BLOCK
        if start >= q.shape[0]:
            break
        for j in range(numbers.shape[0]):
            for i in range(BLOCK):
                held[j, i] = numbers[j, start + i] if start + i < q.shape[0] else i16(0)
        _read_rows(q, everyone, start, rows)
        since = _add_rows(held, rows, pairs, part, since, total)
    _flush(part, total)
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
    width, since = _padded(features, LANES), 0
    part = np.zeros((_padded(count, DEEP), width), i32)
    rows, pairs = np.zeros((BLOCK, width), i16), np.empty((width // LANES, BLOCK // 2, LANES), i32)
    products, exact = np.empty((BLOCK, packed.shape[0] * LANES), i32), np.empty((count, BLOCK), f8)
    left, terms = np.empty((count, BLOCK), f4), np.empty((count, BLOCK), f4)
    numbers, columns, labels = np.zeros((part.shape[0], BLOCK), i16), np.zeros(count, i64), np.empty(BLOCK, i64)
    scales, lengths, share = np.empty(BLOCK, f4), np.empty(BLOCK, f8), np.ones(BLOCK, f8)
    factors, column_factors = np.empty(BLOCK, f4), np.empty(BLOCK, f4)
    while True:
        start = _take(counter.ctypes.data) * BLOCK
        if start >= sample.shape[0]:
            break
        scales[:], lengths[:], labels[:] = np.nan, 0.0, 0  # as of a row that is not finite, beyond the last
        for i in range(min(BLOCK, sample.shape[0] - start)):
            place = places[start + i]
            scales[i], lengths[i], labels[i] = scale[place], length[place], y[sample[start + i]]
            if shares.shape[0]:
                share[i] = shares[start + i]
        _read_rows(q, places, start, rows)
        _score(rows, packed, products, exact)
        for j in range(count):
            for i in range(BLOCK):
                left[j, i] = f4(exact[j, i]) * f4(SMALL) * (unit[0] * scales[i]) + bias[j]
        _take_residuals(left, labels, terms)
        _weigh(left, scales, lengths, share, limits, terms, factors, column_factors)
        _round(left, factors, column_factors, numbers, columns)
        since = _add_rows(numbers, rows, pairs, part, since, total[:, :features])
    _flush(part, total[:, :features])
    if total.shape[1] > features:
        total[:, features] += columns
    rows[:], pairs[:], numbers[:], left[:], terms[:] = 0, 0, 0, 0, 0


@cache
def compile_all() -> None:
    """Compile the kernels, or read them from the disk. It is called before private rows are bound."""
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
