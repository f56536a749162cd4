"""PILLAR: project features on the principal components of public features, then run DP-SGD in few dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dpbench import (
    Budget,
    Learner,
    PrincipalComponents,
    ProbeLearner,
    PublicData,
    SpecError,
    Task,
    components,
    exact_linear,
    hookimpl,
    require_setting,
    setting,
    standardisation,
)
from dpbench_plugins.learners.published_grids import COMPONENTS, LINEAR_GRID, LINEAR_SETTINGS

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Pillar(ProbeLearner):
    """PILLAR (Pinto, Hu, Yang, Sanyal 2023, algorithm 1): public PCA to `k` dimensions, then a private linear head.

    Source: arXiv:2306.03962.

    `center` subtracts the public mean before the projection, as the authors' code does; without it, the components are
    those of the uncentred second moment, as in algorithm 1. `scaling=public` standardises features first, as the
    authors' code does, so that the only difference from dp-sgd is the projection. By default, `k`, `steps` and
    `learning_rate` are computed from the budget (`components`, `travel`). `pillar:paper` has the k that section 4.1
    states for CIFAR-10 at epsilon 0.1; for CIFAR-100 at epsilon 0.7 it is 200. `paper_space` is the grid of appendix
    B.1, with the k of the authors' runs (`published_grids`).

    Differences from the authors' code: Poisson samples; division by the expected batch size; by default, zero init and
    full batches with momentum; no augmentation of private or public features (the authors' code augments both, although
    the paper says otherwise).
    """

    name = "pillar"
    public = "unlabelled"
    search_space = {
        "k": (10, 20, 40, 120, 200, 400),
        "learning_rate": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
        "steps": (20, 60, 100),
    }
    paper_space = {"k": COMPONENTS, **LINEAR_GRID}
    paper = {"k": 40, **LINEAR_SETTINGS}

    k: int | None = setting(None, ge=1, says="principal components kept")
    center: bool = setting(True, says="whether the public mean is subtracted first")
    scaling: Literal["public", "none"] = setting(
        "public", says="whether features are standardised by public statistics first"
    )

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return steps and learning rate, and as many components as the budget allows."""
        return {**super().auto(task, budget), "k": components(task, budget)}

    def features(self, task: Task, public: PublicData, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Return the projection on the leading components of public features."""
        import torch

        x, k = public.x.flatten(1), require_setting(self.k)  # (m, d)
        examples, features = x.shape
        if k > min(examples, features):
            raise SpecError(
                f"Expected k={k} <= {min(examples, features)} in learner 'pillar': a projection has at most as "
                f"many components as there are public examples ({examples}) and features ({features}). Set pillar:k=..."
            )
        scale = standardisation(x) if self.scaling == "public" else lambda rows: rows
        scaled = scale(x).double()
        mean = scaled.mean(0) if self.center else torch.zeros_like(scaled[0])
        directions = PrincipalComponents.of(scaled - mean).leading(k).T.float()  # (k, d)
        shift = -directions @ mean.float()
        return lambda rows: exact_linear(scale(rows.flatten(1)), directions, shift)


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [Pillar]
