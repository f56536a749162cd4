"""Matrix products of 16-bit numbers, with an instruction of every processor: multiply pairs and add them in 32 bits.

`_tile` describes this operation in LLVM's terms, on vectors of 16 sums, and LLVM selects the processor's instruction:
`vpmaddwd` with AVX2 or AVX-512, `vpdpwssd` with VNNI. The loops around `_tile` arrange numbers in pairs.

An int32 never sums more than `PART` products of an int8 row and a number of at most `LEFT_LIMIT` = 127 * 2^7:
127 * 16,256 * 1,024 = 2,114,060,288, which is below 2^31. Callers split longer sums into parts, and add these up in
float64, which is exact below 2^53, or in int64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

from dpbench.support.compiled import kernel_helper, llvm_intrinsic

PART = 1024  # products that int32 adds up
LANES, DEEP = 16, 6  # numbers by which a tile of a product is wide and high, even: 12 of AVX2's 16 registers
BLOCK, BLOCK_OF_NARROW = 48, 96  # rows that are multiplied at once, in the processor's cache; multiples of DEEP and 4
LINE = 64  # int8 features that a cache line holds
NARROW = 1024  # features: loops over 96 rows fill vectors and leave none over, and this many still fit into the cache
i16, i32 = np.int16, np.int32


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


@llvm_intrinsic
def _multiply_tile(typing: Any, a: Any, a_row: Any, b: Any, c: Any, c_row: Any, pairs: Any) -> Any:
    """Add the product of `a` and `b`, over pairs of int16 numbers, to a tile of `DEEP` x `LANES` int32 numbers at `c`.

    Row m of `a` is a sequence of pairs, at `a` + m * `a_row` bytes. For each of these pairs, `b` holds `LANES` pairs
    side by side. Rows of `c` are `c_row` bytes apart.
    """
    word, half = ir.IntType(32), ir.IntType(16)
    narrow, wide = ir.VectorType(word, LANES), ir.VectorType(word, 2 * LANES)
    halves, nothing = ir.VectorType(half, 2 * LANES), ir.Constant(narrow, ir.Undefined)

    def lane_indices(indices: range | list[int]) -> Any:
        return ir.Constant(ir.VectorType(word, LANES), [*indices])

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, a_row, b, c, c_row, pairs = arguments

        def pointer_to(base: Any, kind: Any, *steps: tuple[Any, int]) -> Any:
            for count, size in steps:
                base = builder.add(base, builder.mul(count, ir.Constant(pairs.type, size)))
            return builder.inttoptr(base, kind.as_pointer())

        def load_unaligned(pointer: Any) -> Any:
            loaded = builder.load(pointer)
            loaded.align = 4
            return loaded

        sums = [cgutils.alloca_once(builder, narrow) for _ in range(DEEP)]  # type: ignore[no-untyped-call]
        for m, held in enumerate(sums):
            builder.store(load_unaligned(pointer_to(c, narrow, (c_row, m))), held)
        with cgutils.for_range(builder, pairs) as loop:
            right = builder.sext(
                builder.bitcast(load_unaligned(pointer_to(b, narrow, (loop.index, 4 * LANES))), halves), wide
            )
            for m, held in enumerate(sums):
                pair = builder.insert_element(
                    nothing, load_unaligned(pointer_to(a, word, (a_row, m), (loop.index, 4))), word(0)
                )
                pair = builder.shuffle_vector(pair, nothing, lane_indices([0] * LANES))
                products = builder.mul(right, builder.sext(builder.bitcast(pair, halves), wide))
                even, odd = (
                    builder.shuffle_vector(products, products, lane_indices(range(first, 2 * LANES, 2)))
                    for first in (0, 1)
                )
                builder.store(builder.add(builder.load(held), builder.add(even, odd)), held)
        for m, held in enumerate(sums):
            builder.store(builder.load(held), pointer_to(c, narrow, (c_row, m))).align = 4
        return context.get_dummy_value()

    return types.void(*[types.intp] * 6), emit


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
def multiply_block(a: np.ndarray, b: np.ndarray, low: int, pairs: int, c: np.ndarray, column: int) -> None:
    """Add a[:, 2 low : 2 (low + pairs)] @ b[:, low : low + pairs] to c[:, column : column + n LANES] int32.

    `a` is (m, ...) int16, with m a multiple of DEEP; `b` is (n, ..., LANES) int32, each a pair of int16 numbers from
    two rows of a matrix.
    """
    left, right, out = a.ctypes.data + 4 * low, b.ctypes.data + 4 * LANES * low, c.ctypes.data + 4 * column
    for n in range(b.shape[0]):
        for m in range(0, c.shape[0], DEEP):
            _multiply_tile(
                left + 2 * m * a.shape[1], 2 * a.shape[1], right + 4 * LANES * n * b.shape[1],
                out + 4 * (m * c.shape[1] + n * LANES), 4 * c.shape[1], pairs,
            )  # fmt: skip


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
def pack_number_pairs(numbers: np.ndarray) -> np.ndarray:
    """Pack int16 numbers (k, d), d a multiple of LANES, in pairs along d, for the right side of `multiply_block`."""
    pairs = numbers.view(i32)
    packed = np.zeros((round_up_to_multiple(numbers.shape[0], LANES) // LANES, pairs.shape[1], LANES), i32)
    for j in range(numbers.shape[0]):
        for t in range(pairs.shape[1]):
            packed[j // LANES, t, j % LANES] = pairs[j, t]
    return packed


@kernel_helper
def read_rows(q: np.ndarray, row_indices: np.ndarray, start: int, rows: np.ndarray) -> np.ndarray:
    """Copy a block of rows of q to `rows` (b, d) in 16 bits; return it, zero-padded to a multiple of DEEP rows."""
    count = min(rows.shape[0], row_indices.shape[0] - start)
    block: np.ndarray = rows[: round_up_to_multiple(count, DEEP)]
    for i in range(count):
        place = row_indices[start + i]
        for t in range(q.shape[1]):
            block[i, t] = i16(q[place, t])
    clear_bytes(block.ctypes.data + 2 * count * block.shape[1], 2 * (block.shape[0] - count) * block.shape[1])
    return block


@kernel_helper
def pack_row_pairs(rows: np.ndarray, column: int, pairs: np.ndarray) -> None:
    """Pack `LANES` columns of a block from `column` on in pairs (1, ..., LANES), the right side of `multiply_block`."""
    source, stride, target = rows.ctypes.data + 2 * column, 2 * rows.shape[1], pairs.ctypes.data
    for p in range(rows.shape[0] // 2):
        _interleave_as_pairs(source + 2 * p * stride, source + (2 * p + 1) * stride, target + 4 * LANES * p)


@kernel_helper
def prefetch_rows(q: np.ndarray, row_indices: np.ndarray, start: int, count: int, column: int) -> None:
    """Ask the processor to fetch one cache line, at this column, of each of `count` rows of a sample."""
    for i in range(start, min(start + count, row_indices.shape[0])):
        prefetch_cache_line(q.ctypes.data + row_indices[i] * q.shape[1] + column)
