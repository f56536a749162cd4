"""Matrix products of 16-bit numbers, with an instruction of every processor: multiply pairs and add them in 32 bits.

`_sum_products` describes this operation in LLVM's terms, on vectors of `LANES` sums, and LLVM selects the processor's
instruction: `vpmaddwd` with AVX2 or AVX-512, `vpdpwssd` with VNNI. Scores are inner products, so a lane sums its own
features, and lanes are added up at the end. In sums of rows a lane is a feature, so rows are interleaved in pairs.

An int32 never sums more than `PART` products of an int8 row and a number of at most `LEFT_LIMIT` = 127 * 2^7:
127 * 16,256 * 1,024 = 2,114,060,288, which is below 2^31. Callers split longer sums into parts, and add these up in
float64, which is exact below 2^53, or in int64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

from dpbench.support.compiled import has_avx512, kernel_helper, llvm_intrinsic

PART = 1024  # products that int32 adds up
LANES = 16 if has_avx512() else 8  # numbers of 32 bits in a vector
WIDE, DEEP = 2, 5  # vectors by which a tile of a sum is wide and high: 10 of AVX2's 16 registers, and 10 classes need 2
TALL = LANES // WIDE  # rows of a tile of scores, even: with WIDE numbers each, as many scores as a vector has lanes
BLOCK, BLOCK_OF_NARROW = 48, 96  # rows that are multiplied at once, in the processor's cache; multiples of TALL and 4
LINE = 64  # bytes of a cache line, which holds as many int8 features
NARROW = 1024  # features: loops over 96 rows fill vectors and leave none over, and this many still fit into the cache
ACROSS = WIDE * LANES  # columns of a tile of a sum
i16, i32 = np.int16, np.int32
WORD, HALVES = ir.IntType(32), ir.VectorType(ir.IntType(16), 2 * LANES)
Emitter = Callable[[int, Any], Any]  # emits the vector of pairs of a row or column of a tile, in a step


@llvm_intrinsic
def fetch_and_increment(typing: Any, counter: Any) -> Any:  # numba passes its typing context
    """Return the number at an address and increment it, as one atomic operation."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", place, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(types.intp), emit


@llvm_intrinsic
def add_to_exponent(typing: Any, number: Any, exponent: Any) -> Any:
    """Add an int32 to the exponent bits of a float32 number, and return the result."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        shifted = builder.shl(arguments[1], ir.Constant(word, 23))
        return builder.bitcast(builder.add(builder.bitcast(arguments[0], word), shifted), ir.FloatType())

    return types.float32(types.float32, types.int32), emit


@llvm_intrinsic
def clear_bytes(typing: Any, address: Any, size: Any) -> Any:
    """Set bytes at an address to zero."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        cgutils.memset(builder, place, arguments[1], 0)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), emit


@llvm_intrinsic
def prefetch_cache_line(typing: Any, address: Any) -> Any:
    """Ask the processor to fetch the cache line at an address; the address need not be valid."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")  # type: ignore[no-untyped-call]
        settings = [ir.Constant(word, value) for value in (0, 3, 1)]  # to be read, to be kept near, data
        builder.call(hint, [builder.inttoptr(arguments[0], byte), *settings])
        return context.get_dummy_value()

    return types.void(types.intp), emit


def _locate(builder: Any, kind: Any, base: Any, *offsets: tuple[Any, int]) -> Any:
    """Return a pointer to what lies at `base`, a number of bytes, plus the products of all offsets."""
    for count, size in offsets:
        base = builder.add(base, builder.mul(count, ir.Constant(base.type, size)))
    return builder.inttoptr(base, kind.as_pointer())


def _load(builder: Any, *place: Any) -> Any:
    loaded = builder.load(_locate(builder, *place))
    loaded.align = 2
    return loaded


def _shuffle(builder: Any, one: Any, other: Any, lanes: Iterable[int]) -> Any:
    indices = [*lanes]
    return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(WORD, len(indices)), indices))


def _fold_lanes(builder: Any, one: Any, other: Any, distance: int) -> Any:
    """Add up the lanes of each vector that lie `distance`, a power of two, apart.

    Lanes whose index lacks this bit return sums of the first vector, the others sums of the second.
    """
    lanes = range(one.type.count)
    own = [lane + (len(lanes) if lane & distance else 0) for lane in lanes]
    return builder.add(*(_shuffle(builder, one, other, [lane ^ apart for lane in own]) for apart in (0, distance)))


def _sum_products(builder: Any, count: Any, high: int, left: Emitter, right: Emitter) -> list[list[Any]]:
    """Emit a loop that multiplies vectors of pairs; return `high` x WIDE vectors of `LANES` int32 sums.

    In step i of `count`, `left(m, i)` and `right(n, i)` emit the pairs to multiply.
    """
    wide, sums = ir.VectorType(WORD, 2 * LANES), ir.VectorType(WORD, LANES)
    held = [[cgutils.alloca_once_value(builder, ir.Constant(sums, None)) for _ in range(WIDE)] for _ in range(high)]  # type: ignore[no-untyped-call]
    with cgutils.for_range(builder, count) as loop:
        others = [builder.sext(right(n, loop.index), wide) for n in range(WIDE)]
        for m, row in enumerate(held):
            pairs = builder.sext(left(m, loop.index), wide)
            for place, other in zip(row, others, strict=True):
                products = builder.mul(other, pairs)
                even, odd = (_shuffle(builder, products, products, range(first, 2 * LANES, 2)) for first in (0, 1))
                builder.store(builder.add(builder.load(place), builder.add(even, odd)), place)
    return [[builder.load(place) for place in row] for row in held]


@llvm_intrinsic
def _add_tile_of_sums(typing: Any, a: Any, a_row: Any, b: Any, c: Any, c_row: Any, pairs: Any) -> Any:
    """Add the product of `a` and `b`, over pairs of int16 numbers, to a tile of `DEEP` x `ACROSS` int32 numbers at `c`.

    Row m of `a` is a sequence of pairs, at `a` + m * `a_row` bytes. For each of these pairs, `b` holds `ACROSS` pairs
    side by side. Rows of `c` are `c_row` bytes apart.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, a_row, b, c, c_row, pairs = arguments

        def spread_pair(m: int, step: Any) -> Any:
            first = builder.insert_element(
                ir.Constant(ir.VectorType(WORD, LANES), ir.Undefined),
                _load(builder, WORD, a, (a_row, m), (step, 4)),
                WORD(0),
            )
            return builder.bitcast(_shuffle(builder, first, first, [0] * LANES), HALVES)

        def load_pairs(n: int, step: Any) -> Any:
            return _load(builder, HALVES, b, (step, 4 * ACROSS), (step.type(n), 4 * LANES))

        for m, row in enumerate(_sum_products(builder, pairs, DEEP, spread_pair, load_pairs)):
            for n, found in enumerate(row):
                place = found.type, c, (c_row, m), (c.type(n), 4 * LANES)
                builder.store(builder.add(_load(builder, *place), found), _locate(builder, *place)).align = 4
        return context.get_dummy_value()

    return types.void(*[types.intp] * 6), emit


@llvm_intrinsic
def _write_tile_of_scores(typing: Any, a: Any, a_row: Any, b: Any, b_row: Any, c: Any, c_row: Any, steps: Any) -> Any:
    """Write the inner products of `TALL` rows at `a` and WIDE rows at `b`, int32, to WIDE rows at `c`.

    Rows are `a_row`, `b_row` and `c_row` bytes apart; those of `a` and `b` have `steps` times 2 LANES int16 numbers.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, a_row, b, b_row, c, c_row, steps = arguments

        def reader(base: Any, stride: Any) -> Emitter:
            return lambda m, step: _load(builder, HALVES, base, (stride, m), (step, 4 * LANES))

        found = _sum_products(builder, steps, TALL, reader(a, a_row), reader(b, b_row))
        vectors = [row[n] for n in range(WIDE) for row in found]
        while len(vectors) > 1:
            distance = LANES // len(vectors)
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [_fold_lanes(builder, *pair, distance) for pair in pairs]
        for n in range(WIDE):
            scores = _shuffle(builder, vectors[0], vectors[0], range(n * TALL, (n + 1) * TALL))
            builder.store(scores, _locate(builder, scores.type, c, (c_row, n))).align = 4
        return context.get_dummy_value()

    return types.void(*[types.intp] * 7), emit


@llvm_intrinsic
def _interleave_as_pairs(typing: Any, even: Any, odd: Any, target: Any) -> Any:
    """Interleave `LANES` int16 numbers at `even` with those at `odd`, as pairs."""
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


@kernel_helper
def write_scores(rows: np.ndarray, numbers: np.ndarray, low: int, width: int, scores: np.ndarray) -> None:
    """Write numbers[:, low : low + width] @ rows[:, low : low + width].T to `scores` int32.

    `rows` (c, ...) and `numbers` (k, ...) are int16, with c a multiple of TALL, k one of WIDE, `width` one of 2 LANES.
    """
    a, a_row, b, b_row = (
        rows.ctypes.data + 2 * low,
        2 * rows.shape[1],
        numbers.ctypes.data + 2 * low,
        2 * numbers.shape[1],
    )
    for i in range(0, rows.shape[0], TALL):
        for j in range(0, numbers.shape[0], WIDE):
            c = scores.ctypes.data + 4 * (j * scores.shape[1] + i)
            _write_tile_of_scores(
                a + i * a_row, a_row, b + j * b_row, b_row, c, 4 * scores.shape[1], width // (2 * LANES)
            )


@kernel_helper
def add_sums(numbers: np.ndarray, pairs: np.ndarray, sums: np.ndarray, column: int) -> None:
    """Add numbers @ rows to sums[:, column : column + ACROSS] int32, given these columns of the rows in pairs.

    `numbers` (m, ...) is int16, with m a multiple of DEEP; `pairs` is the result of `pack_row_pairs`.
    """
    a, a_row, c, c_row = numbers.ctypes.data, 2 * numbers.shape[1], sums.ctypes.data + 4 * column, 4 * sums.shape[1]
    for m in range(0, sums.shape[0], DEEP):
        _add_tile_of_sums(a + m * a_row, a_row, pairs.ctypes.data, c + m * c_row, c_row, pairs.shape[0])


@kernel_helper
def make_aligned_zeros(count: int, width: int) -> np.ndarray:
    """Return zeros (count, width) int32 that start with a cache line, because vectors in two lines load slowly."""
    flat = np.zeros(count * width + LINE // 4, i32)
    first = -flat.ctypes.data % LINE // 4
    zeros: np.ndarray = flat[first : first + count * width].reshape(count, width)
    return zeros


@kernel_helper
def round_up_to_multiple(count: int, multiple: int) -> int:
    """Round `count` up to a multiple of `multiple`."""
    return (count + multiple - 1) // multiple * multiple


@kernel_helper
def padded_stride(width: int) -> int:
    """Round a row width up so that the entries of a column do not map to the same set of the processor's cache."""
    return round_up_to_multiple(width, 64) + 32


@kernel_helper
def choose_block_size(features: int) -> int:
    """Return how many rows are multiplied at once, given their number of features."""
    return BLOCK_OF_NARROW if features <= NARROW else BLOCK


@kernel_helper
def read_rows(q: np.ndarray, row_indices: np.ndarray, start: int, rows: np.ndarray) -> np.ndarray:
    """Copy a block of rows of q to `rows` (b, d) in 16 bits; return it, zero-padded to a multiple of TALL rows."""
    count = min(rows.shape[0], row_indices.shape[0] - start)
    block: np.ndarray = rows[: round_up_to_multiple(count, TALL)]
    for i in range(count):
        place = row_indices[start + i]
        for t in range(q.shape[1]):
            block[i, t] = i16(q[place, t])
    clear_bytes(block.ctypes.data + 2 * count * block.shape[1], 2 * (block.shape[0] - count) * block.shape[1])
    return block


@kernel_helper
def pack_row_pairs(rows: np.ndarray, column: int, pairs: np.ndarray) -> np.ndarray:
    """Pack `ACROSS` columns of a block (b, ...) from `column` on in pairs of rows; return pairs[: b / 2]."""
    packed: np.ndarray = pairs[: rows.shape[0] // 2]
    for p in range(packed.shape[0]):
        source, target = rows.ctypes.data + 2 * (2 * p * rows.shape[1] + column), packed.ctypes.data + 4 * ACROSS * p
        for lane in range(0, ACROSS, LANES):
            even = source + 2 * lane
            _interleave_as_pairs(even, even + 2 * rows.shape[1], target + 4 * lane)
    return packed


@kernel_helper
def prefetch_rows(q: np.ndarray, row_indices: np.ndarray, start: int, count: int, column: int) -> None:
    """Ask the processor to fetch one cache line, at this column, of each of `count` rows of a sample."""
    for i in range(start, min(start + count, row_indices.shape[0])):
        prefetch_cache_line(q.ctypes.data + row_indices[i] * q.shape[1] + column)
