"""Second moments of private rows, from a noisy sum of outer products; several learners share it. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dpbench import Chunk, Curator, RankOne

if TYPE_CHECKING:
    from torch import Tensor


def ask_second_moment(curator: Curator, release: str, weigh: Callable[[Chunk], Tensor] | None = None) -> Tensor:
    """Return the noisy sum of z z^T, symmetric (k + 1, k + 1) float64; z is a row of norm sqrt(k) with a 1 appended.

    `weigh` returns a factor in [0, 1] for the outer product of each row of a chunk; None means 1.

    Sensitivity: the outer product of a row has norm |z|^2, at most k + 1, and is clipped at k + 1.
    """
    import torch

    def outer_products(chunk: Chunk) -> RankOne:
        rows = torch.nn.functional.pad(chunk.x, (0, 1), value=1.0)
        return RankOne(rows if weigh is None else rows * weigh(chunk).unsqueeze(1), chunk.rows, bias=True)

    clip = float(curator.task.example_shape[0] + 1)
    noisy: Tensor = curator.noisy_sum(outer_products, release=release, clip=clip).double()
    return (noisy + noisy.T) / 2
