"""Settings of torch that a learner turns on and that would change the curator's arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench import Curator, Predict, PublicData
from dpbench_lab.museum.exhibits.honest_learners import HonestLearner

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TrainingUnderAutocast(HonestLearner):
    """Runs the whole fit under autocast: with products in bfloat16, one more row moved a sum by 128 clips.

    Source: the mixed-precision recipe in torch's documentation, which puts the training step under autocast.
    """

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        import torch

        with torch.autocast("cpu", torch.bfloat16):
            return super().fit(curator, public, generator)
