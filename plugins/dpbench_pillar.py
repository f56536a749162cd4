"""PILLAR: project on the principal components of public features, then DP-SGD in few dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    SpecError,
    Task,
    hookimpl,
    standardisation,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Pillar(Learner):
    """PILLAR (Pinto, Hu, Yang, Sanyal 2023, algorithm 1): public PCA to `k` dimensions, then a private linear head.

    `center` subtracts the public mean before the projection, as the authors' code does; without it the components are
    those of the uncentred second moment, as algorithm 1 writes. `scaling=public` standardises first (the authors'
    code), so that it and dp-sgd differ by the projection alone. Default k 40 is the paper's choice at epsilon 0.1;
    200 is its choice at 0.7. The other defaults are those of dp-sgd.

    Differs from the authors' code: Poisson samples, the expected batch size, zero initialisation and full batches with
    momentum by default, and neither private nor public features are augmented (theirs are, unlike the paper says).
    """

    name: ClassVar[str] = "pillar"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "unlabelled"
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "k": (10, 40, 120, 200, 280, 520),
        "learning_rate": (0.01, 0.1, 1.0),
        "steps": (30, 60, 100, 500, 1000, 3000, 5000, 6000),
    }

    k: int = 40
    center: bool = True
    steps: int = 100
    sample_rate: float = 1.0
    learning_rate: float = 0.1
    momentum: float = 0.9
    clip: float = 1.0
    init: Literal["zero", "uniform"] = "zero"
    scaling: Literal["public", "none"] = "public"

    def __post_init__(self) -> None:
        """Refuse an empty projection."""
        if self.k < 1:
            raise SpecError(f"Expected k={self.k} >= 1 in learner 'pillar': the number of dimensions kept.")

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """One release: the noisy gradient of every step. The projection reads public data only."""
        return [self._probe().release()]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Project the private rows once, then train the head on k features."""
        project = self._projection(public.x.flatten(1))
        predict = self._probe().train(curator.map(project), lambda x: x, generator)
        return lambda x: predict(project(x))

    def _projection(self, x: Tensor) -> Callable[[Tensor], Tensor]:  # (m, d) -> the map (c, *shape) -> (c, k)
        import torch

        examples, features = x.shape
        if self.k > min(examples, features):
            raise SpecError(
                f"Expected k={self.k} <= {min(examples, features)} in learner 'pillar': a projection has at most as "
                f"many components as there are public examples ({examples}) and features ({features}). Set pillar:k=..."
            )
        scale = standardisation(x) if self.scaling == "public" else lambda rows: rows
        scaled = scale(x).double()
        mean = scaled.mean(0) if self.center else torch.zeros_like(scaled[0])
        moment = (scaled - mean).T @ (scaled - mean)  # (d, d)
        components = torch.linalg.eigh(moment).eigenvectors[:, -self.k :].float()  # (d, k), of the largest eigenvalues
        shift = mean.float() @ components
        return lambda rows: scale(rows.flatten(1)) @ components - shift

    def _probe(self) -> LinearProbe:
        return LinearProbe(self.steps, self.sample_rate, self.learning_rate, self.momentum, self.clip, self.init)


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [Pillar]
