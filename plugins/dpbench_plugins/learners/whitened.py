"""Soft whitening and distillation: two further uses of unlabelled public features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpbench import (
    Budget,
    Learner,
    Predict,
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

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class WhitenedProbe(ProbeLearner):
    """PILLAR's projection with softly whitened components, then a student distilled from the noisy head on public data.

    Standardised features are projected on the `k` leading public principal components (as many as the budget allows,
    see `components`). Component j is divided by its public standard deviation to the power `whitening`. A power of 0
    gives PILLAR. A power of 1 whitens fully, which turns gradient descent into a Newton step with the public second
    moment (in closed form, the Kronecker-factored preconditioner of a linear head). Noise that is equal in all
    directions costs least at a power in between: small directions are learned sooner, and the noise in them is not yet
    magnified.

    With `distil`, the noisy head labels the public features with softened probabilities, and a student with ridge
    penalty `ridge` is fitted to them. This averages out noise that differs between public examples. The student
    post-processes a private head with unlabelled public data, so it costs no privacy. The combination is our own; its
    parts are known (public-data preconditioning; knowledge distillation, Hinton et al. 2015).
    """

    name = "whitened"
    public = "unlabelled"
    search_space = {
        "k": (10, 40, 120, 400),
        "whitening": (0.0, 0.5),
        "learning_rate": (0.03, 0.1, 0.3, 1.0),
        "steps": (20, 60),
    }

    k: int | None = setting(None, ge=1, says="public components kept")
    whitening: float = setting(0.5, ge=0, le=1, says="power by which components are whitened; 1 whitens fully")
    distil: bool = setting(True, says="whether a student of the noisy head predicts")
    ridge: float = setting(0.003, gt=0, says="penalty of the student")
    sharpness: float = setting(2.0, gt=0, says="scale of the logits that the student learns from")

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return steps and learning rate, and as many components as the budget allows."""
        return {**super().auto(task, budget), "k": components(task, budget)}

    def features(self, task: Task, public: PublicData, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Return the projection on the leading public components, each divided by a power of its standard deviation."""
        x, k = public.x.flatten(1), require_setting(self.k)  # (m, d)
        if not 1 <= k <= min(x.shape):
            raise SpecError(
                f"Expected k={k} in 1..{min(x.shape)} in learner 'whitened': there are {len(x)} public examples and "
                f"{x.shape[1]} features. Set whitened:k=..."
            )
        scale = standardisation(x)
        scaled = scale(x).double()
        found = PrincipalComponents.of(scaled, len(x))
        # Relative to the largest, so that the learning rate keeps its meaning whatever the power.
        relative = (found.values[-k:] / found.values[-1]).clamp(min=1e-6)
        directions = (found.leading(k) * relative.pow(-self.whitening / 2)).T.float()  # (k, d)
        return lambda rows: exact_linear(scale(rows), directions)

    def refine(self, predict: Predict, features: Callable[[Tensor], Tensor], public: PublicData) -> Predict:
        """Return a student of the head; without `distil`, or if training diverged, return the head."""
        if not self.distil:
            return predict
        mapped, scores = features(public.x), predict(public.x)  # (m, k), (m, classes)
        spread = scores.std().clamp(min=1e-12)
        if not bool(scores.isfinite().all()):
            return predict  # training diverged: let the harness say so
        student = fit_soft_target_regression(mapped, (scores * (self.sharpness / spread)).softmax(1), self.ridge)
        return lambda x: student(features(x))


def fit_soft_target_regression(x: Tensor, targets: Tensor, ridge: float) -> Predict:
    """Return the softmax regression fitted to soft targets (m, classes) on (m, k) features, with a ridge penalty.

    Minimises mean cross-entropy + ridge |W|^2 over features divided by their root mean square, by L-BFGS.
    """
    import torch

    unit = x.square().mean().sqrt().clamp(min=1e-12)
    inputs = x / unit
    with torch.enable_grad():
        weights = torch.zeros(targets.shape[1], x.shape[1], device=x.device, requires_grad=True)
        shift = torch.zeros(targets.shape[1], device=x.device, requires_grad=True)
        optimiser = torch.optim.LBFGS([weights, shift], max_iter=100, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimiser.zero_grad()
            logits = torch.addmm(shift, inputs, weights.T)
            value = -(targets * logits.log_softmax(1)).sum(1).mean() + ridge * weights.square().sum()
            value.backward()  # type: ignore[no-untyped-call]
            return value

        optimiser.step(loss)  # type: ignore[no-untyped-call]
    head, offset = weights.detach(), shift.detach()
    return lambda rows: torch.addmm(offset, rows / unit, head.T)


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [WhitenedProbe]
