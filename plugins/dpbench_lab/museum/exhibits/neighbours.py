"""Row functions whose result for one row depends on other rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpbench import Chunk, Curator, RankOne
from dpbench_lab.museum.exhibits.honest_learners import HonestLearner, gradients

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class MicroBatchAverages(HonestLearner):
    """Averages four examples before clipping, so one record changes the row of a whole group.

    Source: `num_microbatches` of TensorFlow Privacy, and the code of AdaDPS (Li et al. 2022), whose noise is calibrated
    for single examples: the released epsilon of 1.4 is then about 11.
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        import torch

        found = gradients(chunk, head).dense()  # (c, k, d)
        groups = torch.arange(len(found)) // 4
        sums = torch.zeros_like(found).index_add_(0, groups, found)
        return sums[groups] / 4


@dataclass(frozen=True)
class DivisionByTheDrawnSize(HonestLearner):
    """Divides by the number of examples drawn, which changes with one record.

    Source: the mean reduction of losses under Poisson sampling. Opacus, issues 571 and 819, divides by a size that
    depends on n.
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        return gradients(chunk, head, 100 / max(1, len(chunk)))


@dataclass(frozen=True)
class LeakBelowTolerance(HonestLearner):
    """Adds a ten-thousandth of each row's norm in the direction of the batch's mean, below rounding tolerances.

    Source: made for the museum.
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        import torch

        x = chunk.x.flatten(1)
        mean = torch.nn.functional.normalize(x.mean(0, keepdim=True))
        return RankOne(gradients(chunk, head).left, x + 1e-4 * x.norm(dim=1, keepdim=True) * mean)


@dataclass(frozen=True)
class CentringFromTheThirdStep(HonestLearner):
    """Subtracts the batch's mean from the third step on, except at powers of two, when a harness once checked.

    Source: made for the museum.
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        x = chunk.x.flatten(1)
        return RankOne(gradients(chunk, head).left, x - (step + 1 not in (1, 2, 4, 8)) * x.mean(0))


@dataclass(frozen=True)
class CentringFromTheSecondChunk(HonestLearner):
    """Subtracts the batch's mean in every chunk of a question except the first, where harnesses look.

    Source: made for the museum.
    """

    def noisy_gradient(self, curator: Curator, head: Tensor, step: int) -> Tensor:
        chunks: list[int] = []

        def rows(chunk: Chunk) -> Any:
            x = chunk.x.flatten(1)
            chunks.append(len(chunk))
            later = len(chunk) > 3 and len(chunks) > 1
            return RankOne(gradients(chunk, head).left, x - later * x.mean(0))

        answer: Tensor = curator.noisy_sum(rows, release="gradient", clip=self.clip, chunk_size=300)
        return answer


@dataclass(frozen=True)
class BatchNormInATunedTail(HonestLearner):
    """Fine-tunes the end of a network whose batch normalisation uses each chunk's statistics and stores none.

    Source: fine-tuning with `model.train()`, which puts frozen layers back into training mode. With
    `track_running_stats` off, no buffer changes, so nothing is remembered, and only neighbouring rows reveal the bug.
    """

    def rows(self, chunk: Chunk, head: Tensor, step: int) -> Any:
        from torch.nn.functional import batch_norm

        x = chunk.x.flatten(1)
        tail = batch_norm(x, None, None, training=True) if len(x) > 1 else x
        return gradients(Chunk(tail, chunk.y, chunk.seeds), head)
