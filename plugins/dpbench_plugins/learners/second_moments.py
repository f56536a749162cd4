"""Second moments of private rows, from a noisy sum of outer products; several learners share it. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dpbench import Chunk, Curator, RankOne

if TYPE_CHECKING:
    from torch import Tensor


def ask_second_moment(private: Curator, release: str, weigh: Callable[[Chunk], Tensor] | None = None) -> Tensor:
    """Return the noisy sum of z z^T (k + 1, k + 1), float64 and symmetric, where z is a row of norm sqrt(k) and a 1.

    `weigh` returns a weight in [0, 1] for each row of a chunk, which its outer product is multiplied by.

    Sensitivity: the outer product of a row has norm |z|^2 = k + 1 or less, and is clipped at that.
    """
    import torch

    def outer(chunk: Chunk) -> RankOne:
        rows = torch.nn.functional.pad(chunk.x, (0, 1), value=1.0)
        return RankOne(rows if weigh is None else rows * weigh(chunk).unsqueeze(1), chunk.rows, bias=True)

    clip = float(private.task.example_shape[0] + 1)
    noisy: Tensor = private.noisy_sum(outer, release=release, clip=clip).double()
    return (noisy + noisy.T) / 2
