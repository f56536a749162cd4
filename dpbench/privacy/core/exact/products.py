"""Exact products of whole numbers: the same bits for any order of summation, threads or processor instructions.

On a CPU, compiled loops (`kernels`) multiply numbers of up to 15 bits with int8 rows; a GPU multiplies two slices of 8
bits instead. No sum overflows on either. Longer numbers are multiplied in float64, which holds all integers up to 2^53.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from dpbench.privacy.core.exact.limits import SLICE
from dpbench.support import threads

LONGEST = 2**17 - 8  # products that int32 adds up on a GPU: 2^14 each, at most; a multiple of 8
DEEPEST = 2**13  # products below 2^40 that float64 adds up
WIDE = 2**16  # numbers that are held in float64 at once, to stay in the cache
WORTH = 2**22  # products that are worth a second thread
Found = TypeVar("Found")


def uses_compiled_loops(device: torch.device) -> bool:
    """Return whether products on this device are computed in compiled loops (CPU) rather than by torch (GPU)."""
    return device.type == "cpu"


def exact_matmul_transposed(numbers: Tensor, q: Tensor) -> Tensor:
    """Return numbers @ q.T, (k, c) float32, rounded once.

    `numbers` (k, d) holds whole numbers of at most 127 * 2^7; `q` (c, d) is int8.
    """
    if not uses_compiled_loops(q.device):
        return _multiply_in_slices(numbers, q.T).float()
    from dpbench.privacy.core.exact import kernels

    found = np.empty((len(numbers), len(q)), np.float32)
    whole, rows, places = _to_int16(numbers), q.contiguous().numpy(), np.arange(len(q))
    run_over_threads(lambda counter: kernels.score_rows(counter, rows, places, whole, found), found.size * q.shape[1])
    return torch.from_numpy(found)


def exact_matmul(numbers: Tensor, q: Tensor) -> Tensor:
    """Return numbers @ q, (k, d) int64.

    `numbers` (k, c) holds whole numbers of at most 127 * 2^7; `q` (c, d) is int8.
    """
    if not uses_compiled_loops(q.device):
        return _multiply_in_slices(numbers, q)
    from dpbench.privacy.core.exact import kernels

    whole, rows, places = _to_int16(numbers), q.contiguous().numpy(), np.arange(len(q))

    def add_products(counter: np.ndarray, to: np.ndarray) -> None:
        kernels.sum_rows(counter, rows, places, whole, to)

    return torch.from_numpy(sum_over_threads(add_products, (len(numbers), q.shape[1]), numbers.numel()))


def sum_over_threads(add: Callable[[np.ndarray, np.ndarray], None], shape: tuple[int, int], count: int) -> np.ndarray:
    """Run `add` in several threads that share one counter, each with its own int64 total; return the sum of the totals.

    `count` times the width of the total is the number of products, which determines the number of threads.
    """

    def sum_own_blocks(counter: np.ndarray) -> np.ndarray:
        found = np.zeros(shape, np.int64)
        add(counter, found)
        return found

    first, *others = run_over_threads(sum_own_blocks, count * shape[1])
    for other in others:
        first += other
    return first


def run_over_threads(work: Callable[[np.ndarray], Found], product_count: int) -> list[Found]:
    """Run `work` in as many threads as the number of products justifies, with a shared counter; return all results."""
    from dpbench.privacy.core.exact import kernels

    kernels.compile_all_kernels()
    counter = np.zeros(1, np.int64)
    return threads.run_in_threads(lambda: work(counter), torch.get_num_threads() if product_count >= WORTH else 1)


def _to_int16(numbers: Tensor) -> np.ndarray:
    whole: np.ndarray = numbers.to(torch.int16).contiguous().numpy()
    return whole


def _multiply_in_slices(numbers: Tensor, matrix: Tensor) -> Tensor:
    """Return numbers @ matrix, int64, computed with the int8 instructions of a GPU."""
    if numbers.shape[1] > LONGEST:
        parts = zip(torch.split(numbers, LONGEST, 1), torch.split(matrix, LONGEST), strict=True)
        return torch.stack([_multiply_in_slices(*part) for part in parts]).sum(0)
    high = (numbers * 2.0**-SLICE).round_()
    slices = torch.cat([high, numbers.sub(high, alpha=2**SLICE)]).to(torch.int8)
    (rows, inner), columns = slices.shape, matrix.shape[1]
    if not slices.numel() or not columns:
        return torch.zeros(len(numbers), columns, dtype=torch.int64, device=matrix.device)
    pad, along = torch.nn.functional.pad, -inner % 8  # cuBLAS: 17 rows or more, and multiples of 8
    wide = torch._int_mm(pad(slices, (0, along, 0, max(0, 17 - rows))), pad(matrix, (0, -columns % 8, 0, along)))
    first, second = wide[:rows, :columns].chunk(2)
    return torch.add(second, first.long(), alpha=2**SLICE)


def multiply_long_numbers(a: Tensor, b: Tensor) -> Tensor:
    """Return a @ b.T, (k, c) float64, for integers (k, d) and (c, d) whose products are below 2^40.

    Above `DEEPEST` columns, the exact sums of `DEEPEST` products each are added in order, so an entry's bits depend on
    its two rows alone.
    """
    left = a.double()
    found = torch.zeros(len(a), len(b), dtype=torch.float64, device=a.device)
    for first in range(0, len(b), step := max(1, WIDE // max(1, b.shape[1]))):
        right = b[first : first + step].double()
        for low in range(0, b.shape[1], DEEPEST):
            found[:, first : first + step] += left[:, low : low + DEEPEST] @ right[:, low : low + DEEPEST].T
    return found
