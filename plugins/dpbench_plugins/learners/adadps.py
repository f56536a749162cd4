"""AdaDPS: precondition private gradients with the second moments of public gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

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
    aimed,
    calibrated,
    hookimpl,
    pace,
    require_setting,
    residuals,
    setting,
    standardisation,
    travel,
)
from dpbench_plugins.learners.published_grids import PUBLIC_SHARES

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class AdaDPS(Learner):
    """AdaDPS on a linear head (Li, Zaheer, Reddi, Smith, ICML 2022, arXiv:2202.05963).

    Every `refresh` steps, the learner computes the second moment of public per-example gradients at the current head.
    This gives the preconditioner A = sqrt(E[g^2]) + epsilon_c, scaled to mean 1 so that the learning rate and the clip
    keep their meaning. Each private gradient is divided by A, then clipped, and then noise is added. By default, the
    number of steps and the learning rate are computed from the budget (`travel`). AdaDPS needs public labels, so the
    protocol must provide them; compare its results only with those of learners that also use public labels.

    `adadps:paper` is a setting of `paper_space`, the grid of PILLAR's comparison (appendix B.5). Appendix C counts
    three times its 1,440 settings, for micro-batches of 2, 4 and 32. The paper gives no momentum, and the authors' code
    has none.

    Differences from the authors' code: this learner has no micro-batches (they average examples before clipping, so
    that one record can move the sum by twice the clip), draws Poisson samples, uses moments of per-example gradients
    instead of mini-batch means, and adds epsilon_c outside the root, as in the paper.
    """

    name = "adadps"
    public = "labelled"
    rule_origin = "training images of CIFAR-10"
    logits = True
    search_space = {
        "epsilon_c": (1.0, 0.1, 0.01),
        "learning_rate": (0.03, 0.1, 0.3, 1.0),
        "steps": (30, 60),
    }
    paper_space = {
        "epsilon_c": (10.0, 1.0, 0.1, 1e-3, 1e-5, 1e-7),
        "learning_rate": (0.01, 0.1, 1.0),
        "steps": (500, 1000, 2500, 3000, 5000, 6000, 7500, 10000),
        "batch": (32, 64, 128, 512, 1024),
        "public_share": PUBLIC_SHARES,
        "momentum": (0.0,),
    }
    paper = {
        "epsilon_c": 0.1, "batch": 1024, "steps": 1000, "learning_rate": 0.1, "momentum": 0.0,
        "public_share": PUBLIC_SHARES[0],
    }  # fmt: skip

    epsilon_c: float = setting(0.1, gt=0, lt=math.inf, says="constant added to the preconditioner")
    refresh: int = setting(10, ge=1, says="steps between preconditioners")
    steps: int | None = setting(None, ge=1, says="noisy gradient steps")
    sample_rate: float = setting(1.0, gt=0, le=1, says="chance per example of being in a step, not a batch size")
    learning_rate: float | None = setting(None, gt=0, says="step size of the descent")
    momentum: float = setting(0.9, ge=0, lt=1, says="momentum of the noisy gradients")
    clip: float = setting(1.0, gt=0, lt=math.inf, says="L2 bound on the gradient of one example")
    init: Literal["zero", "uniform"] = setting("zero", says="initial weights of the head")
    batch: int | None = setting(
        None, ge=1, says="expected batch size, in place of sample_rate", added=True, kw_only=True
    )
    public_share: float = setting(
        1.0, gt=0, le=1, says="public examples used, as a share of all training examples", added=True, kw_only=True
    )

    def resolve_batch(self, task: Task) -> Self:
        """Return the learner with `batch` converted to a sample rate; unchanged if `batch` is None."""
        return replace(self, batch=None, sample_rate=min(1.0, self.batch / task.size)) if self.batch else self

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return steps and learning rate."""
        return self._choose_steps_and_rate(travel(task, budget))

    def earlier_auto(self, task: Task, budget: Budget) -> Mapping[str, Mapping[str, Any]]:
        """Return the settings that version 0.2.0 chose; its `travel` did not depend on the number of features."""
        return {"0.2.0": self._choose_steps_and_rate(travel(task, budget, "version 0.2"))}

    def _choose_steps_and_rate(self, distance: float) -> Mapping[str, Any]:
        return pace(distance, steps=self.steps, sample_rate=self.sample_rate, momentum=self.momentum, clip=self.clip)

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan one release: the noisy preconditioned gradient of every step."""
        return [self._probe().release()]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train the head on standardised features, dividing gradients by the latest public preconditioner."""
        import torch

        labels = public.y
        if labels is None or len(labels) < 2:
            raise SpecError("Learner 'adadps' needs labelled public data. Add --public-labels and a public split.")
        standardise = standardisation(public.x)
        features = standardise(public.x)
        if self.public_share < 1:
            used = max(1, round(self.public_share * (curator.task.size + len(labels))))
            drawn = torch.randperm(len(labels), generator=generator)[:used].to(labels.device)
            features, labels = features[drawn], labels[drawn]
        latest: list[Tensor] = []

        def get_preconditioner(head: Tensor, step: int) -> Tensor:
            if step % self.refresh == 0:
                latest[:] = [compute_preconditioner(head, features, labels, self.epsilon_c)]
            return latest[0]

        predict = self._probe().train(curator, standardise, generator, scale=get_preconditioner)
        return aimed(calibrated(predict, public), curator.task, public)

    def _probe(self) -> LinearProbe:
        steps, rate = require_setting(self.steps), require_setting(self.learning_rate)
        return LinearProbe(steps, self.sample_rate, rate, self.momentum, self.clip, self.init)


def compute_preconditioner(head: Tensor, x: Tensor, y: Tensor, epsilon_c: float) -> Tensor:
    """Return sqrt(mean of squared per-example gradients) + epsilon_c at `head` (k, d + 1), scaled to mean 1.

    The square of a rank-one gradient has rank one, so the mean is one matrix product: (r^2).T @ [x, 1]^2 / m. Entries
    are rounded to powers of 2^(1/4). All coordinates then share a few standard deviations, and dpbench draws exact
    noise as fast as for other learners.
    """
    import torch

    residual = residuals(torch.addmm(head[:, -1], x, head[:, :-1].T), y)  # (m, k)
    squares = torch.nn.functional.pad(x.square(), (0, 1), value=1.0)  # (m, d + 1)
    moments = residual.square().T @ squares / len(x)  # (k, d + 1)
    scale = moments.sqrt() + epsilon_c
    # An entry a million times below the mean would be amplified past what float32 can bound, and is raised to that.
    quarters = (scale / scale.mean()).clamp(min=1e-6).log2().mul_(4).round_()
    return torch.exp2(quarters / 4)


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [AdaDPS]
