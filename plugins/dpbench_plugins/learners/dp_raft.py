"""DP-RAFT: a full-batch recipe whose learning rate is computed from epsilon, so that you do not have to tune it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpbench import (
    Budget,
    Chunk,
    Curator,
    Learner,
    LinearProbe,
    Predict,
    PublicData,
    Release,
    Task,
    hookimpl,
    require_setting,
    setting,
    unit_norm,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class DPRAFT(Learner):
    """Full-batch linear probe with momentum, zero init and no bias (Panda et al. 2024; DP-RandP, appendix F).

    Sources: arXiv:2212.04486, arXiv:2306.06076.

    The learning rate follows the linear scaling rule: learning rate times steps is `travel` times mu = sqrt(steps) /
    sigma, and the learning rate is at most `rate_limit`. mu measures the privacy budget; epsilon is nearly linear in
    it. Table 22 of DP-RandP corresponds to a travel of 4,000 for 50,000 examples (`dp-raft:paper`). By default, travel
    is proportional to the number of examples, because the noise is divided by that number; with the momentum, the head
    then moves by 0.8 n / sigma, where other heads on rows of norm 1 move by n / sigma (`dpbench.travel`). Each row of
    features is divided by its own norm and multiplied by `feature_norm`. This learner uses no public data.

    With `private_mean` (DP-RandP, appendix G), the learner first spends the share `mean_share` of the budget, measured
    in 1 / sigma^2, on a separate release of the noisy mean of the features, and then trains on centred features. The
    default share is that of table 23.

    Differences from the authors' code: the share is a setting (the authors search it by adding new noise to the true
    mean, which reads private data without accounting for it); the last head is scored, not the head that is best on the
    test set; the mean is divided by n, which the protocol declares public.
    """

    name = "dp-raft"
    public = "none"
    rule_origin = "the paper, in proportion to n"
    logits = True
    search_space = {
        "travel": (80.0, 250.0, 800.0, 2500.0, 8000.0),
        "steps": (30, 100),
        "private_mean": (False, True),
    }

    paper = {"travel": 4000.0}

    steps: int = setting(100, ge=1, says="full-batch gradient steps")
    travel: float | None = setting(None, gt=0, says="learning rate times steps, in units of the privacy budget mu")
    rate_limit: float = setting(60.0, gt=0, says="largest learning rate")
    momentum: float = setting(0.9, ge=0, lt=1, says="momentum of the noisy gradients")
    clip: float = setting(1.0, gt=0, lt=math.inf, says="L2 bound on the gradient of one example")
    feature_norm: float = setting(1.0, gt=0, says="norm of each row of features")
    private_mean: bool = setting(False, says="whether features are centred by their noisy private mean")
    mean_share: float = setting(0.0037, gt=0, lt=1, says="share of the budget for the private mean")

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return `travel`, in proportion to the number of examples."""
        return {"travel": float(f"{0.08 * task.size:.3g}")}

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan one full-batch gradient per step, after the mean of the features if `private_mean` is set."""
        gradient = self._probe(1.0).release()
        if not self.private_mean:
            return [gradient]
        noise = ((1 - self.mean_share) / (self.mean_share * self.steps)) ** 0.5
        return [Release("mean", relative_noise=noise), gradient]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Normalise the features, centre them if `private_mean` is set, and train."""

        def normalise(x: Tensor) -> Tensor:  # (c, *example_shape) -> (c, d), each row of norm feature_norm
            return unit_norm(x.flatten(1)) * self.feature_norm

        def features(chunk: Chunk) -> Tensor:
            return normalise(chunk.x)

        mean: Tensor | float = 0.0
        if self.private_mean:
            mean = curator.noisy_sum(features, release="mean", clip=self.feature_norm) / curator.task.size
        probe = self._probe(self.learning_rate(curator.sigma["gradient"]))
        return probe.train(curator, lambda x: normalise(x) - mean, generator)

    def learning_rate(self, sigma: float) -> float:
        """Return the rate of the linear scaling rule for the noise multiplier `sigma`; without noise, `rate_limit`."""
        return (
            min(self.rate_limit, require_setting(self.travel) / (sigma * self.steps**0.5)) if sigma else self.rate_limit
        )

    def _probe(self, rate: float) -> LinearProbe:
        return LinearProbe(self.steps, 1.0, rate, self.momentum, self.clip, bias=False)


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [DPRAFT]
