"""DP-SGD on a linear head: the baseline that every other learner is measured against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dpbench import (
    Budget,
    Curator,
    Learner,
    LinearProbe,
    Predict,
    PublicData,
    Release,
    Task,
    hookimpl,
    standardisation,
    unit_norm,
)

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class DPSGD(Learner):
    """Linear probe by DP-SGD (Abadi et al. 2016, algorithm 1), as PILLAR's baseline runs it.

    `scaling` is applied to each example's features first: `public` standardises with the mean and deviation of public
    features (the authors' code of PILLAR does so for this baseline too), `norm` divides by the example's own norm,
    `none` leaves them. The defaults are full batches with momentum, which need no search over batch sizes; `steps` and
    `learning_rate` were chosen at epsilon 0.1 to 1 on the labels of the public tenth of CIFAR-10 (efficientnet-lite0),
    of which the learner itself sees none. A setting of the paper is sample_rate=0.0228, steps=1000, momentum=0,
    init=uniform (batch 1,024 of 45,000).

    Differs from the authors' code: Poisson samples as the accountant assumes, division by the expected batch size,
    and public features without augmentation.
    """

    name: ClassVar[str] = "dp-sgd"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "unlabelled"
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "learning_rate": (0.01, 0.1, 1.0),
        "steps": (30, 60, 100, 500, 1000, 3000, 5000, 6000),
    }

    steps: int = 100
    sample_rate: float = 1.0
    learning_rate: float = 0.1
    momentum: float = 0.9
    clip: float = 1.0
    init: Literal["zero", "uniform"] = "zero"
    scaling: Literal["public", "norm", "none"] = "public"

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """One release: the noisy gradient of every step."""
        return [self._probe().release()]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train the head on scaled features."""
        scale = {"norm": unit_norm, "none": lambda x: x}.get(self.scaling) or standardisation(public.x.flatten(1))
        return self._probe().train(curator, lambda x: scale(x.flatten(1)), generator)

    def _probe(self) -> LinearProbe:
        return LinearProbe(self.steps, self.sample_rate, self.learning_rate, self.momentum, self.clip, self.init)


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [DPSGD]
