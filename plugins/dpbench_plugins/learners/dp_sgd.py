"""DP-SGD on a linear head: the baseline that every other learner is measured against."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dpbench import (
    Budget,
    Learner,
    ProbeLearner,
    PublicData,
    Task,
    hookimpl,
    standardisation,
    travel,
    unit_norm,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class DPSGD(ProbeLearner):
    """Linear probe by DP-SGD (Abadi et al. 2016, arXiv:1607.00133), as PILLAR's baseline runs it.

    `scaling` is applied to each example's features first: `public` standardises with the mean and deviation of public
    features (the authors' code of PILLAR does so for this baseline too), `norm` divides by the example's own norm,
    `none` leaves them. The defaults are full batches with momentum, which need no search over batch sizes; `steps` and
    `learning_rate` follow the budget (`travel`).
    `dp-sgd:paper` is a setting of the paper (batch 1,024 of 45,000), `paper_space` its grid (appendix B.1).

    Differs from the authors' code: Poisson samples as the accountant assumes, division by the expected batch size,
    and public features without augmentation.
    """

    name: ClassVar[str] = "dp-sgd"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "unlabelled"
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "learning_rate": (0.03, 0.1, 0.3, 1.0, 3.0),
        "steps": (20, 30, 60, 100),
    }
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "sample_rate": (128 / 45000, 512 / 45000, 1024 / 45000),
        "learning_rate": (0.01, 0.1, 1.0),
        "steps": (500, 1000, 3000, 5000, 6000),
        "momentum": (0.0,),
        "init": ("uniform",),
    }

    paper: ClassVar[Mapping[str, Any]] = {
        "sample_rate": 1024 / 45000,
        "steps": 1000,
        "learning_rate": 0.1,
        "momentum": 0.0,
        "init": "uniform",
    }

    scaling: Literal["public", "norm", "none"] = "public"

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return steps and learning rate; on rows of norm 1 a head goes further."""
        way = travel(task, budget) * (16 if self.scaling == "norm" else 1)
        return self.paced(way, math.prod(task.example_shape))

    def features(self, task: Task, public: PublicData, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Return the scaling."""
        return {"norm": unit_norm, "none": lambda x: x.flatten(1)}.get(self.scaling) or standardisation(public.x)


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [DPSGD]
