"""A random projection, which reads no data at all, then DP-SGD: the control for PILLAR's choice of directions."""

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
    SpecError,
    Task,
    hookimpl,
    standardisation,
    unit_norm,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class JL(Learner):
    """Johnson-Lindenstrauss projection to `k` dimensions, then a private linear head (Nguyen et al. 2020).

    The projection is a (d, k) matrix of N(0, 1/k), drawn from the learner's generator: data-independent, so it costs no
    privacy. Features are standardised with public statistics first, as PILLAR's authors do for all their baselines;
    `scaling=norm` needs no public data. The other defaults are those of dp-sgd.

    Differs from the authors' code as dp-sgd does; their projection is scikit-learn's, of the same distribution.
    """

    name: ClassVar[str] = "jl"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "unlabelled"
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "k": (10, 40, 120, 200, 280, 520),
        "learning_rate": (0.01, 0.1, 1.0),
        "steps": (30, 60, 100, 500, 1000, 3000, 5000, 6000),
    }

    k: int = 40
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
        """Project the private rows once, then train the head on k features."""
        import torch

        features = torch.Size(curator.task.example_shape).numel()
        if not 1 <= self.k <= features:
            raise SpecError(
                f"Expected k={self.k} in 1..{features} in learner 'jl': a projection does not add dimensions."
            )
        scale = {"norm": unit_norm, "none": lambda x: x}.get(self.scaling) or standardisation(public.x.flatten(1))
        matrix = self.matrix(features, generator).to(curator.task.device)
        mapped = curator.map(lambda x: scale(x.flatten(1)) @ matrix)
        predict = self._probe().train(mapped, lambda x: x, generator)
        return lambda x: predict(scale(x.flatten(1)) @ matrix)

    def matrix(self, features: int, generator: torch.Generator) -> Tensor:
        """Draw the projection, (d, k)."""
        import torch

        normal = torch.randn(features, self.k, generator=generator)
        return normal.mul_(self.k**-0.5)

    def _probe(self) -> LinearProbe:
        return LinearProbe(self.steps, self.sample_rate, self.learning_rate, self.momentum, self.clip, self.init)


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [JL]
