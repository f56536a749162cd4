"""The row function of a linear head's gradients, for learners that implement their own steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dpbench import Chunk, RankOne, exact_linear, residuals

if TYPE_CHECKING:
    from torch import Tensor


def make_gradient_rows(head: Tensor) -> Callable[[Chunk], RankOne]:
    """Return a row function: the gradient of each row's loss with respect to a linear head.

    The head has shape (classes, k + 1); its last column is the bias.
    """
    weight, bias = head[:, :-1].contiguous(), head[:, -1].contiguous()

    def rows(chunk: Chunk) -> RankOne:
        return RankOne(residuals(exact_linear(chunk.rows, weight, bias), chunk.y), chunk.rows, bias=True)

    return rows
