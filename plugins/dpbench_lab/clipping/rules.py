"""Rules that scale gradients before they are summed, as row functions of a plugin: the privacy core knows none of them.

If u is the norm of a gradient in units of the clip, the scaled gradient has the following norm, in the same units:

- `clip`: min(u, 1), which is what the harness does to every row (Abadi et al. 2016, arXiv:1607.00133).
- `automatic`: u / (u + γ) (Bu et al. 2022, arXiv:2206.07136).
- `normalised`: 1, and 0 where u is 0 (Yang et al. 2022, arXiv:2206.13033).
- `psac`: u / (u + γ / (u + γ)) (Xia et al. 2023, arXiv:2212.00328).

No norm exceeds 1. The harness clips again, so sensitivity, plan and σ are those of `clip`, whatever the rule.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dpbench import (
    Budget,
    Chunk,
    Curator,
    Learner,
    LinearProbe,
    RankOne,
    Task,
    exact_linear,
    folded,
    residuals,
    setting,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import Tensor

ScalingRule = Literal["clip", "automatic", "normalised", "psac"]
GAMMA = 0.1  # in units of the clip
LEAST = 1e-12  # of a norm that is divided by


def compute_scale_factors(norms: Tensor, rule: ScalingRule) -> Tensor:
    """Return the factors (c,) that scale gradients, from their norms (c,) in units of the clip."""
    if rule == "automatic":
        return 1 / (norms + GAMMA)
    if rule == "normalised":
        return 1 / norms.clamp(min=LEAST)
    if rule == "psac":
        return 1 / (norms + GAMMA / (norms + GAMMA))
    return norms.clamp(min=1).reciprocal()


@dataclass(frozen=True)
class GradientScalingProbe(LinearProbe):
    """A linear probe (with a bias) that scales each gradient by a rule; the default rule is `clip`."""

    rule: ScalingRule = "clip"

    def descend(
        self,
        curator: Curator,
        generator: torch.Generator,
        release: str = "gradient",
        scale: object = None,
        prior: object = None,
    ) -> Tensor:
        """Train a head (k, d + 1) on mapped rows (c, d): residuals are scaled, then the harness clips and sums."""
        import torch

        task, clip, rule = curator.task, self.clip, self.rule
        head = self.head(task.classes, task.example_shape[0], generator)

        def rows(chunk: Chunk) -> RankOne:
            features = torch.cat([chunk.x, torch.ones_like(chunk.x[:, :1])], 1)
            left = residuals(exact_linear(chunk.x, head[:, :-1], head[:, -1]), chunk.y)
            squares = folded(left.double().square(), 1) * folded(features.double().square(), 1)
            return RankOne(left * compute_scale_factors(squares.sqrt() / clip, rule).float()[:, None], features)

        velocity = torch.zeros_like(head)
        for _ in range(self.steps):
            noisy = curator.noisy_sum(rows, release=release, clip=clip)
            velocity.mul_(self.momentum).add_(noisy, alpha=1 / (self.sample_rate * task.size))
            head.add_(velocity, alpha=-self.learning_rate)
        return head


def make_learner_with_rule(base: Any) -> type[Learner]:
    """Return a subclass of a learner with a linear probe (`dp-sgd`, `thrift`), plus the settings `rule` and `pace`."""

    @dataclass(frozen=True)
    class GradientScalingLearner(base):  # type: ignore[misc]  # any learner
        name = f"{base.name}-ruled"

        rule: ScalingRule = setting("clip", says="how gradients are scaled", kw_only=True)
        pace: float = setting(1.0, gt=0, says="learning rate, in units of the default", kw_only=True)

        def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
            """Return the learner's automatic settings, with the learning rate multiplied by the pace."""
            found = super().auto(task, budget)
            return {**found, "learning_rate": found["learning_rate"] * self.pace}

        @property
        def probe(self) -> LinearProbe:
            """The training procedure of `dp-sgd`, with the rule."""
            return _make_probe_with_rule(super().probe, self.rule)

        def _probe(self) -> LinearProbe:
            return _make_probe_with_rule(super()._probe(), self.rule)

    return GradientScalingLearner


def _make_probe_with_rule(probe: LinearProbe, rule: ScalingRule) -> GradientScalingProbe:
    given = {field.name: getattr(probe, field.name) for field in dataclasses.fields(probe)}
    return GradientScalingProbe(**given, rule=rule)
