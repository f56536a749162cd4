"""Learners that ask more questions than planned, or whose contributions break the rules of a release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpbench import Blocks, Chunk, Curator, DenseBasis, Predict, PublicData, RankOne, Residual
from dpbench_lab.museum.exhibits.honest_learners import HonestLearner, gradients

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class MoreStepsThanPlanned(HonestLearner):
    """Continues after the steps for which the noise was calibrated.

    Source: a generator whose noise is calibrated for one step per batch, and whose loop takes several (AiDotNet, review
    of pull request 1318).
    """

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch

        head = torch.zeros(curator.task.classes, *curator.task.example_shape)
        while float(head.norm()) < 1e6:
            head -= self.noisy_gradient(curator, head, 0) / curator.task.size
        return lambda x: x @ head.T


@dataclass(frozen=True)
class AlternatingRows(HonestLearner):
    """Iterates over the data in batches: at each step only the rows of the current batch contribute.

    Source: shuffled batches accounted as Poisson samples, in the code of GEP (Yu et al. 2021), of Tramèr and Boneh
    (2021) and of many others (Opacus, issue 80; private-transformers, issue 7).
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        import torch

        turn = torch.arange(len(chunk)) % self.steps == step
        return gradients(chunk, head, turn.unsqueeze(1))


@dataclass(frozen=True)
class ViewsCountedAsExamples(HonestLearner):
    """Contributes two rows per example, the image and its mirror: both are clipped, together they move two clips.

    Source: made for the museum. De et al. (2022) average over views before they clip.
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        import torch

        found = gradients(chunk, head).dense()
        return torch.cat([found, found.flip(2)])


@dataclass(frozen=True)
class SkewBasis(HonestLearner):
    """Removes from each gradient the part along a basis whose columns are not orthogonal.

    Source: the code of GEP (Yu et al. 2021) computes its basis by Gram-Schmidt in float32. If the public gradients have
    a lower rank than requested, the basis is skew, or full of NaN.
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        import torch

        directions = torch.randn(*head.shape, 8, generator=torch.Generator().manual_seed(0))
        skew = (directions + directions[..., :1]) / directions.norm()
        rest = Residual(gradients(chunk, head), DenseBasis(skew))
        return Blocks((rest.embedding, rest))


@dataclass(frozen=True)
class LabelInErrorMessage(HonestLearner):
    """Fails on a particular row and quotes it in the error message, which no noise covers.

    Source: made for the museum.
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        if len(chunk) and step == 3:
            raise ValueError(f"Unexpected label {int(chunk.y[0])} at {chunk.x[0].tolist()}")
        return gradients(chunk, head)


@dataclass(frozen=True)
class SelfReportedNorms(HonestLearner):
    """Returns its own type of contribution, which reports its norm as small.

    Source: made for the museum, after per-layer clippers and "automatic" clipping functions that a library accepts from
    its users.
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        found = gradients(chunk, head)
        return ShortRankOne(found.left * 1e6, found.right)


class ShortRankOne(RankOne):
    """An outer product that reports a norm of zero."""

    def norms(self) -> Tensor:
        """Return zeros."""
        return super().norms() * 0
