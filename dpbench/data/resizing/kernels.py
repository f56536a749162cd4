"""Resize an image by a weighted sum of pixels along each row, then along each column, in whole numbers as Pillow does.

Pillow computes a filter's weights in float64, normalises them to sum 1, rounds them to 22 bits after the point and adds
up integers, so its results follow from the order of a few operations on floats, which `_fill_filter_weights` repeats.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dpbench.data.resizing.instructions import (
    HALF,
    LOAD,
    PIXELS,
    PRECISION,
    ROWS,
    copy_bytes,
    read_64_bits,
    sum_colours,
    sum_greys,
    sum_rows,
)
from dpbench.support.compiled import compile_kernels, kernel, kernel_helper

LINEAR, CUBIC = 1, 2
"""Filters, named by half of their width in pixels."""
u8, f4 = np.uint8, np.float32
i16: Any = np.int16
i64: Any = np.int64
u64: Any = np.uint64  # of a place: numba looks for negative ones otherwise
ONE = float(1 << PRECISION)
SHARPNESS = -0.5  # of the cubic: its slope at a distance of one pixel


@kernel_helper
def _compute_filter_weight(distance: float, radius: int) -> float:
    """Return a filter's weight at a distance in pixels of the coarser image."""
    x = abs(distance)
    if radius == LINEAR:
        return 1.0 - x if x < 1.0 else 0.0
    if x < 1.0:
        return ((SHARPNESS + 2.0) * x - (SHARPNESS + 3.0)) * x * x + 1.0
    if x < 2.0:
        return (((x - 5.0) * x + 8.0) * x - 4.0) * SHARPNESS
    return 0.0


@kernel_helper
def _count_filter_terms(source_size: int, target_size: int, radius: int) -> int:
    """Return the most pixels of an axis that a pixel is a sum of, given the axis's source and target size."""
    return math.ceil(radius * max(source_size / target_size, 1.0)) * 2 + 1


@kernel_helper
def _fill_filter_weights(
    before: int, after: int, first: int, reach: int, starts: np.ndarray, weights: np.ndarray
) -> Any:  # fmt: skip
    """Write the first source pixel of each target pixel from `first` on, and its weights (n, terms) int64.

    Return the most terms that a target pixel has.
    """
    scale = before / after
    wide = max(scale, 1.0)
    shrink, half = 1.0 / wide, reach * wide
    held, most = np.empty(weights.shape[1]), i64(0)
    for place in range(starts.shape[0]):
        centre = (first + place + 0.5) * scale
        start = max(int(centre - half + 0.5), 0)
        count = min(int(centre + half + 0.5), before) - start
        total = 0.0
        for term in range(count):
            held[term] = _compute_filter_weight((term + start - centre + 0.5) * shrink, reach)
            total += held[term]
        starts[place], most = start, max(most, i64(count))
        for term in range(weights.shape[1]):
            share = (held[term] / total if total != 0.0 else held[term]) if term < count else 0.0
            weights[place, term] = i64(share * ONE - 0.5 if share < 0 else share * ONE + 0.5)
    return most


@kernel_helper
def _get_address(array: np.ndarray) -> Any:
    """Return the address of an array's first byte, signed, because numba adds unsigned and signed numbers as floats."""
    return i64(array.ctypes.data)


@kernel_helper
def _split(weight: int) -> tuple[int, int]:
    high = weight >> HALF
    return i16(high), i16(weight - (high << HALF))


@kernel_helper
def _pack_along_rows(weights: np.ndarray, channels: int) -> np.ndarray:
    """Arrange weights for `sum_colours` or `sum_greys`: (n, groups, 2, 16) int16."""
    each = PIXELS if channels == 3 else LOAD
    groups = (weights.shape[1] + each - 1) // each
    packed = np.zeros((weights.shape[0], groups, 2, LOAD), i16)
    for place in range(weights.shape[0]):
        for term in range(weights.shape[1]):
            group, within = term // each, term % each
            high, low = _split(weights[place, term])
            if channels == 3:
                for colour in range(3):
                    lane = within // 2 * 8 + colour * 2 + within % 2
                    packed[place, group, 0, lane], packed[place, group, 1, lane] = high, low
            else:
                packed[place, group, 0, within], packed[place, group, 1, within] = high, low
    return packed


@kernel_helper
def _pack_along_columns(weights: np.ndarray) -> np.ndarray:
    """Arrange weights for `sum_rows`: (n, pairs, 2, 2) int16."""
    packed = np.zeros((weights.shape[0], (weights.shape[1] + 1) // 2, 2, 2), i16)
    for place in range(weights.shape[0]):
        for term in range(weights.shape[1]):
            high, low = _split(weights[place, term])
            packed[place, term // 2, 0, term % 2], packed[place, term // 2, 1, term % 2] = high, low
    return packed


@kernel
def resize(  # noqa: PLR0913  # an image, what it is resized to, and where it goes
    pixels: int, columns: int, rows: int, width: int, height: int, left: int, top: int, reach: int,
    values: np.ndarray, found: np.ndarray,
) -> None:  # fmt: skip
    """Write a crop of the resized image to `found` (channels, h, w), each 8-bit number replaced by its value.

    Args:
        pixels: the address of the image: one byte a pixel if it has one channel, four bytes if it has three.
        columns: columns of the image.
        rows: rows of the image.
        width: columns of the resized image.
        height: rows of the resized image.
        left: the first column of the crop.
        top: the first row of the crop.
        reach: the filter, `LINEAR` or `CUBIC`.
        values: (channels, 256) float32, the value of each 8-bit number.
        found: where the crop is written, contiguous.
    """
    channels = found.shape[0]
    step = 4 if channels == 3 else 1  # bytes of a pixel
    starts, row_starts = np.empty(found.shape[2], i64), np.empty(found.shape[1], i64)
    weights = np.empty((starts.shape[0], _count_filter_terms(columns, width, reach)), i64)
    row_weights = np.empty((row_starts.shape[0], _count_filter_terms(rows, height, reach)), i64)
    weights = weights[:, : _fill_filter_weights(columns, width, left, reach, starts, weights)]
    row_weights = row_weights[:, : _fill_filter_weights(rows, height, top, reach, row_starts, row_weights)]
    along_rows, along_columns = _pack_along_rows(weights, channels), _pack_along_columns(row_weights)
    groups, pairs = along_rows.shape[1], along_columns.shape[1]

    begin = row_starts[0]
    end = min(row_starts[-1] + row_weights.shape[1], rows)
    stride = (step * found.shape[2] + LOAD - 1) // LOAD * LOAD
    between = np.zeros((end - begin + 2 * pairs + ROWS, stride), u8)  # rows beyond the image have weight zero
    size = columns * step
    margin = LOAD * groups  # bytes beyond a row that may be read
    tail = np.zeros(ROWS * size + margin, u8)  # a copy of the last rows, beyond which nothing is read
    for row in range(begin, end, ROWS):
        source = pixels + row * size
        if (row + ROWS) * size + margin > rows * size:
            copy_bytes(source, _get_address(tail), min(ROWS, rows - row) * size)
            source = _get_address(tail)
        target = _get_address(between) + (row - begin) * stride
        for place in range(starts.shape[0]):
            at, weighed = source + step * starts[place], _get_address(along_rows) + 4 * LOAD * groups * place
            if channels == 3:
                sum_colours(at, size, weighed, groups, target + step * place, stride)
            else:
                sum_greys(at, size, weighed, groups, target + step * place, stride)

    line = np.empty(stride, u8)
    for row in range(found.shape[1]):
        source = _get_address(between) + (row_starts[row] - begin) * stride
        for place in range(0, stride, LOAD):
            weighed = _get_address(along_columns) + 8 * pairs * row
            sum_rows(source + place, stride, weighed, pairs, _get_address(line) + place)
        for channel in range(channels):
            stored, target_row = values[channel], found[channel, row]
            for place in range(found.shape[2]):
                target_row[place] = stored[line[u64(step * place + channel)]]


@kernel
def find_buffer(array: int, pixels: int, channels: int) -> Any:
    """Return the address of the bytes of an Arrow array, given the address of its struct; 0 if it has another form.

    An Arrow array is a struct of 64-bit words: its length, number of nulls, offset, numbers of buffers and of children,
    and the addresses of the tables of both. Grey pixels are an array of bytes, colours one of lists of four bytes.
    """
    if read_64_bits(array) != pixels or read_64_bits(array + 16) != 0:
        return i64(0)
    if channels == 3:
        if read_64_bits(array + 32) != 1:
            return i64(0)
        array = read_64_bits(read_64_bits(array + 48))
        if read_64_bits(array) != 4 * pixels or read_64_bits(array + 16) != 0:
            return i64(0)
    return read_64_bits(read_64_bits(array + 40) + 8) if read_64_bits(array + 24) == 2 else i64(0)


@cache
def compile_resize_kernel() -> None:
    """Compile the kernel, or load it from disk. Call it before a private image is read."""
    pixels, values, found = np.zeros(7, i64), np.zeros((1, 256), f4), np.zeros((1, 1, 1), f4)

    def call_kernels() -> None:
        find_buffer(pixels.ctypes.data, 1, 1)
        resize(pixels.ctypes.data, 1, 1, 1, 1, 0, 0, LINEAR, values, found)

    compile_kernels([find_buffer, resize], Path(__file__).parent, call_kernels, "Images are resized")
