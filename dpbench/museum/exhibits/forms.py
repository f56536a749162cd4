"""Learners that ask too often, or contribute what a norm does not bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpbench import Blocks, Chunk, Curator, DenseBasis, Predict, PublicData, RankOne, Residual
from dpbench.museum.exhibits.honest_learners import HonestLearner, gradients

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class MoreStepsThanPlanned(HonestLearner):
    """Goes on after the steps that the noise was made for.

    Source: a generator whose noise is calibrated to one step a batch, and whose loop takes several (AiDotNet, review of
    pull request 1318).
    """

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch

        head = torch.zeros(curator.task.classes, *curator.task.example_shape)
        while float(head.norm()) < 1e6:
            head -= self.noisy_gradient(curator, head, 0) / curator.task.size
        return lambda x: x @ head.T


@dataclass(frozen=True)
class AlternatingRows(HonestLearner):
    """Walks through the data in batches: at each step only the rows whose turn it is contribute.

    Source: shuffled batches accounted as Poisson samples, in the code of GEP (Yu et al. 2021), of Tramèr and Boneh
    (2021) and of many others (Opacus, issue 80; private-transformers, issue 7).
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        import torch

        turn = torch.arange(len(chunk)) % self.steps == step
        return gradients(chunk, head, turn.unsqueeze(1))


@dataclass(frozen=True)
class ViewsCountedAsExamples(HonestLearner):
    """Contributes two rows an example, the image and its mirror: each is clipped, together they move twice the clip.

    Source: made for the museum. De et al. (2022) average over views before they clip.
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        import torch

        found = gradients(chunk, head).dense()
        return torch.cat([found, found.flip(2)])


@dataclass(frozen=True)
class SkewBasis(HonestLearner):
    """Takes the part along a basis off each gradient, by a basis whose columns are not orthogonal.

    Source: the code of GEP (Yu et al. 2021) makes its basis by Gram-Schmidt in float32, which public gradients of
    lower rank than asked for leave skew, or full of NaN.
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        import torch

        directions = torch.randn(*head.shape, 8, generator=torch.Generator().manual_seed(0))
        skew = (directions + directions[..., :1]) / directions.norm()
        rest = Residual(gradients(chunk, head), DenseBasis(skew))
        return Blocks((rest.embedding, rest))


@dataclass(frozen=True)
class LabelInErrorMessage(HonestLearner):
    """Fails on a row that it does not like, and says which: no noise covers an error message.

    Source: made for the museum.
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        if len(chunk) and step == 3:
            raise ValueError(f"Unexpected label {int(chunk.y[0])} at {chunk.x[0].tolist()}")
        return gradients(chunk, head)


@dataclass(frozen=True)
class SelfReportedNorms(HonestLearner):
    """Returns a contribution of its own kind, which says that it is short.

    Source: made for the museum, after per-layer clippers and "automatic" clipping functions that a library takes from
    its users.
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        found = gradients(chunk, head)
        return ShortRankOne(found.left * 1e6, found.right)


class ShortRankOne(RankOne):
    """An outer product that gives its norm as zero."""

    def norms(self) -> Tensor:
        """Return zeros."""
        return super().norms() * 0
