"""JL: a random projection that reads no data, then DP-SGD; the control for PILLAR's choice of directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from dpbench import (
    Budget,
    Learner,
    ProbeLearner,
    PublicData,
    SpecError,
    Task,
    exact_linear,
    hookimpl,
    require_setting,
    setting,
    standardisation,
    unit_norm,
)
from dpbench_plugins.learners.published_grids import COMPONENTS, LINEAR_GRID, LINEAR_SETTINGS

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class JL(ProbeLearner):
    """Johnson-Lindenstrauss projection to `k` dimensions, then a private linear head (Nguyen et al. 2020).

    The projection is a (d, k) matrix of N(0, 1/k), drawn from the learner's generator. It does not depend on data, so
    it costs no privacy. Features are first standardised with public statistics, as PILLAR's authors do for all their
    baselines; `scaling=norm` needs no public data. `k` is 400, or the number of features if that is smaller: a larger
    `k` hardly increases the noise of a score, and it distorts less. Steps and learning rate are those of dp-sgd.
    `jl:paper` is a setting from PILLAR's comparison, which searches the same k and grid as for PILLAR (appendix B.5).

    The differences from the authors' code are those of dp-sgd. Their projection is scikit-learn's, which has the same
    distribution.
    """

    name = "jl"
    public = "unlabelled"
    search_space = {
        "k": (40, 120, 200, 400),
        "learning_rate": (0.03, 0.1, 0.3, 1.0, 3.0),
        "steps": (20, 30, 60, 100),
    }
    paper_space = {"k": COMPONENTS, **LINEAR_GRID}
    paper = {"k": 40, **LINEAR_SETTINGS}

    k: int | None = setting(None, ge=1, says="dimensions of the random projection")
    scaling: Literal["public", "norm", "none"] = setting(
        "public", says="how features are scaled first: by public statistics, by their own norm, or not at all"
    )

    @property
    def rows(self) -> Literal["standardised", "unit-norm"]:
        """How rows are scaled before the projection, which keeps their scale.

        The default learning rate and steps move a head further on rows of norm 1.
        """
        return "unit-norm" if self.scaling == "norm" else "standardised"

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return the steps and learning rate of dp-sgd, and the number of dimensions."""
        return {**super().auto(task, budget), "k": min(400, prod(task.example_shape))}

    def features(self, task: Task, public: PublicData, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Return the scaling followed by a random projection."""
        features, k = prod(task.example_shape), require_setting(self.k)
        if not 1 <= k <= features:
            raise SpecError(f"Expected k={k} in 1..{features} in learner 'jl': a projection does not add dimensions.")
        scale = {"norm": unit_norm, "none": lambda x: x.flatten(1)}.get(self.scaling) or standardisation(public.x)
        matrix = self.matrix(features, generator).to(task.device)
        return lambda x: exact_linear(scale(x), matrix.T)

    def matrix(self, features: int, generator: torch.Generator) -> Tensor:
        """Draw the projection matrix (d, k)."""
        import torch

        k = require_setting(self.k)
        return torch.randn(features, k, generator=generator).mul_(k**-0.5)


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [JL]
