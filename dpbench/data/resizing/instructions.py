"""Weighted sums of pixels in LLVM's terms: products of 16-bit numbers, of which pairs are added in 32 bits.

A weight is a whole number of up to 24 bits, as Pillow rounds weights to `PRECISION` bits after the point. It is stored
in two halves of 16 bits, `HALF` bits apart, and both sums are exact: 8-bit pixels times halves of at most 2^13 leave
room for 2^10 terms. LLVM turns each product into one instruction of the processor, such as `vpmaddwd`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from dpbench.support.compiled import llvm_intrinsic

PRECISION = 22  # bits of a weight after the point
HALF = 11  # bits of its lower half
LOAD = 16  # bytes that are read at once
ROWS = 4  # that are summed at once
PIXELS = 4  # of a colour image in these bytes: Pillow keeps them in four bytes each
BYTE, SHORT, WORD = ir.IntType(8), ir.IntType(16), ir.IntType(32)
COLOURS = [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]
"""The order in which bytes of colour pixels are paired: red with the red of the next pixel, and so on."""


def _make_vector_type(kind: Any, size: int) -> Any:
    return ir.VectorType(kind, size)


def _make_shuffle_mask(indices: Any) -> Any:
    indices = [*indices]
    return ir.Constant(_make_vector_type(WORD, len(indices)), indices)


def _load_unaligned(builder: Any, address: Any, kind: Any) -> Any:
    loaded = builder.load(builder.inttoptr(address, kind.as_pointer()))
    loaded.align = 1
    return loaded


def _advance_address(builder: Any, address: Any, steps: Any, step_bytes: Any) -> Any:
    return builder.add(address, builder.mul(steps, step_bytes))


def _multiply_pairs(builder: Any, pixels: Any, weights: Any) -> Any:
    """Multiply bytes (2 n) with 16-bit numbers and add neighbours: n sums of 32 bits."""
    size = pixels.type.count
    wide = _make_vector_type(WORD, size)
    products = builder.mul(builder.zext(pixels, wide), builder.sext(weights, wide))
    even, odd = (
        builder.shuffle_vector(products, products, _make_shuffle_mask(range(first, size, 2))) for first in (0, 1)
    )
    return builder.add(even, odd)


def _round_to_byte(builder: Any, high: Any, low: Any) -> Any:
    """Round sums of both halves to bytes: below zero becomes 0, above 255 becomes 255."""

    def repeat_in_every_lane(value: int) -> Any:
        return ir.Constant(high.type, [value] * high.type.count)

    total = builder.add(
        builder.add(builder.shl(high, repeat_in_every_lane(HALF)), low), repeat_in_every_lane(1 << (PRECISION - 1))
    )
    total = builder.ashr(total, repeat_in_every_lane(PRECISION))
    total = builder.select(builder.icmp_signed("<", total, repeat_in_every_lane(0)), repeat_in_every_lane(0), total)
    total = builder.select(builder.icmp_signed(">", total, repeat_in_every_lane(255)), repeat_in_every_lane(255), total)
    return builder.trunc(total, _make_vector_type(BYTE, high.type.count))


def _sum_products(builder: Any, steps: Any, lanes: int, vectors: int, products: Any) -> list[Any]:
    """Add up the vectors of 32-bit numbers that `products` emits at each step."""
    zero = ir.Constant(_make_vector_type(WORD, lanes), [0] * lanes)
    held = [cgutils.alloca_once_value(builder, zero) for _ in range(vectors)]  # type: ignore[no-untyped-call]
    with cgutils.for_range(builder, steps) as loop:
        for place, found in zip(held, products(loop.index), strict=True):
            builder.store(builder.add(builder.load(place), found), place)
    return [builder.load(place) for place in held]


def _add_vector_halves(builder: Any, vectors: Sequence[Any], size: int) -> Any:
    """Join two vectors of parts of `size` sums each, and add the second half of each part to its first half."""
    lanes = range(2 * vectors[0].type.count)
    halves = ([lane for lane in lanes if lane % size // (size // 2) == half] for half in (0, 1))
    return builder.add(*(builder.shuffle_vector(*vectors, _make_shuffle_mask(half)) for half in halves))


def _finish_colour_sums(builder: Any, *vectors: Any) -> Any:
    return _add_vector_halves(builder, vectors, LOAD // 2)


def _finish_grey_sums(builder: Any, *vectors: Any) -> Any:
    found = _add_vector_halves(builder, vectors, LOAD // 2)
    for size in (4, 2):
        found = _add_vector_halves(builder, (found, found), size)
        found = builder.shuffle_vector(found, found, _make_shuffle_mask(range(found.type.count // 2)))
    return found


def _make_sum_emitter(order: Sequence[int], finish: Callable[..., Any]) -> Callable[..., Any]:
    """Return what emits weighted sums along `ROWS` rows at once; `finish` adds the partial sums of a pixel."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pixels, stride, weights, groups, target, target_stride = arguments

        def emit_products(index: Any) -> Any:
            place = _advance_address(builder, weights, index, pixels.type(4 * LOAD))
            weighed = [
                _load_unaligned(builder, builder.add(place, pixels.type(half)), _make_vector_type(SHORT, LOAD))
                for half in (0, 2 * LOAD)
            ]
            halves = [builder.shuffle_vector(half, half, _make_shuffle_mask([*range(LOAD)] * 2)) for half in weighed]
            first = _advance_address(builder, pixels, index, pixels.type(LOAD))
            for row in range(0, ROWS, 2):
                loaded = [
                    _load_unaligned(
                        builder,
                        _advance_address(builder, first, pixels.type(row + each), stride),
                        _make_vector_type(BYTE, LOAD),
                    )
                    for each in (0, 1)
                ]
                paired = builder.shuffle_vector(
                    *loaded, _make_shuffle_mask([*order, *(place + LOAD for place in order)])
                )
                yield from (_multiply_pairs(builder, paired, half) for half in halves)

        found = _sum_products(builder, groups, LOAD, ROWS, emit_products)
        rounded = _round_to_byte(builder, finish(builder, *found[::2]), finish(builder, *found[1::2]))
        kind = ir.IntType(8 * rounded.type.count // ROWS)
        rounded = builder.bitcast(rounded, _make_vector_type(kind, ROWS))
        for row in range(ROWS):
            place = builder.inttoptr(
                _advance_address(builder, target, pixels.type(row), target_stride), kind.as_pointer()
            )
            builder.store(builder.extract_element(rounded, WORD(row)), place).align = 1
        return context.get_dummy_value()

    return emit


@llvm_intrinsic
def sum_colours(
    typing: Any, pixels: Any, stride: Any, weights: Any, groups: Any, target: Any, target_stride: Any
) -> Any:
    """Write one pixel of four bytes for each of `ROWS` rows: the weighted sum of `PIXELS` * `groups` colour pixels.

    Rows are `stride` bytes apart, and those of the target `target_stride`. `weights` has, for each group, 16 high and
    then 16 low halves in the order of `COLOURS`. The last group reads `LOAD` bytes.
    """
    return types.void(*[types.intp] * 6), _make_sum_emitter(COLOURS, _finish_colour_sums)


@llvm_intrinsic
def sum_greys(typing: Any, pixels: Any, stride: Any, weights: Any, groups: Any, target: Any, target_stride: Any) -> Any:
    """Write the weighted sum of `LOAD` * `groups` grey pixels (one byte each) to one byte, in `ROWS` rows.

    `weights` has, for each group, 16 high and then 16 low halves.
    """
    return types.void(*[types.intp] * 6), _make_sum_emitter(range(LOAD), _finish_grey_sums)


@llvm_intrinsic
def sum_rows(typing: Any, pixels: Any, stride: Any, weights: Any, pairs: Any, target: Any) -> Any:
    """Write the weighted sums of 2 * `pairs` rows, `stride` bytes apart, to `LOAD` bytes at `target`.

    `weights` has two high and two low halves for each pair of rows.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pixels, stride, weights, pairs, target = arguments
        zipped = [lane // 2 + LOAD * (lane % 2) for lane in range(2 * LOAD)]

        def emit_products(index: Any) -> Any:
            first = _advance_address(builder, pixels, builder.mul(index, pixels.type(2)), stride)
            rows = [
                _load_unaligned(builder, place, _make_vector_type(BYTE, LOAD))
                for place in (first, builder.add(first, stride))
            ]
            paired = builder.shuffle_vector(*rows, _make_shuffle_mask(zipped))
            place = _advance_address(builder, weights, index, pixels.type(8))
            for half in (0, 4):
                pair = _load_unaligned(builder, builder.add(place, pixels.type(half)), WORD)
                single = builder.insert_element(ir.Constant(_make_vector_type(WORD, LOAD), ir.Undefined), pair, WORD(0))
                spread = builder.shuffle_vector(single, single, _make_shuffle_mask([0] * LOAD))
                yield _multiply_pairs(builder, paired, builder.bitcast(spread, _make_vector_type(SHORT, 2 * LOAD)))

        found = _round_to_byte(builder, *_sum_products(builder, pairs, LOAD, 2, emit_products))
        builder.store(found, builder.inttoptr(target, found.type.as_pointer())).align = 1
        return context.get_dummy_value()

    return types.void(*[types.intp] * 5), emit


@llvm_intrinsic
def copy_bytes(typing: Any, source: Any, target: Any, size: Any) -> Any:
    """Copy bytes from one address to another."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = (builder.inttoptr(place, BYTE.as_pointer()) for place in arguments[:2])
        cgutils.raw_memcpy(builder, target, source, arguments[2], 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(*[types.intp] * 3), emit


@llvm_intrinsic
def read_64_bits(typing: Any, address: Any) -> Any:
    """Return the 64-bit number at an address."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _load_unaligned(builder, arguments[0], ir.IntType(64))

    return types.int64(types.intp), emit
