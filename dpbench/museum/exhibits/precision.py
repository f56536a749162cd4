"""What a learner sets around its questions, so that the curator would compute otherwise than it claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench import Curator, Predict, PublicData
from dpbench.museum.exhibits.honest_learners import HonestLearner

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TrainingUnderAutocast(HonestLearner):
    """Puts autocast around the whole fit: products in bfloat16, by which one row more moved a sum by 128 clips.

    Source: the recipe for mixed precision in torch's documentation, where the training step stands under autocast.
    """

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch

        with torch.autocast("cpu", torch.bfloat16):
            return super().fit(curator, public, generator)
