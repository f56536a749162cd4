"""The gradients of a linear head as rows for a curator, shared by learners with steps of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dpbench import Chunk, RankOne, exact_linear, residuals

if TYPE_CHECKING:
    from torch import Tensor


def make_gradient_rows(head: Tensor) -> Callable[[Chunk], RankOne]:
    """Return the function from a chunk of mapped rows to their gradients by a head (classes, k + 1), bias last."""
    weight, bias = head[:, :-1].contiguous(), head[:, -1].contiguous()

    def rows(chunk: Chunk) -> RankOne:
        return RankOne(residuals(exact_linear(chunk.rows, weight, bias), chunk.y), chunk.rows, bias=True)

    return rows
