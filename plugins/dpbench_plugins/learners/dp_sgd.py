"""DP-SGD on a linear head: the baseline that every other learner is measured against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dpbench import (
    Learner,
    ProbeLearner,
    PublicData,
    Task,
    hookimpl,
    setting,
    standardisation,
    unit_norm,
)
from dpbench_plugins.learners.published_grids import LINEAR_GRID, LINEAR_SETTINGS

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class DPSGD(ProbeLearner):
    """Linear probe by DP-SGD (Abadi et al. 2016, arXiv:1607.00133), as PILLAR's baseline runs it.

    `scaling` says how each example's features are scaled first: `public` standardises them with the mean and standard
    deviation of public features, as the authors of PILLAR do for this baseline; `norm` divides them by the example's
    own norm; `none` leaves them as they are. By default, every step uses the full batch and momentum, so there is no
    batch size to search for. By default, `steps` and `learning_rate` are computed from the budget (`travel`).
    `dp-sgd:paper` is a setting of PILLAR's paper (batches of 1,024), and `paper_space` is that paper's grid (appendix
    B.1).

    Differences from the authors' code: Poisson samples, as the accountant assumes; division by the expected batch size;
    and no augmentation of public features.
    """

    name = "dp-sgd"
    public = "unlabelled"
    search_space = {
        "learning_rate": (0.03, 0.1, 0.3, 1.0, 3.0),
        "steps": (20, 30, 60, 100),
    }
    paper_space = LINEAR_GRID
    paper = LINEAR_SETTINGS

    scaling: Literal["public", "norm", "none"] = setting(
        "public", says="how features are scaled first: by public statistics, by their own norm, or not at all"
    )

    @property
    def rows(self) -> Literal["standardised", "unit-norm"]:
        """How rows are scaled; the default learning rate and steps move a head further on rows of norm 1."""
        return "unit-norm" if self.scaling == "norm" else "standardised"

    def features(self, task: Task, public: PublicData, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Return the map that scales features."""
        return {"norm": unit_norm, "none": lambda x: x.flatten(1)}.get(self.scaling) or standardisation(public.x)


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [DPSGD]
