"""Base class of learners that train a linear head on mapped features; a subclass defines the map."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from dpbench.api import Budget, Curator, Learner, Predict, PublicData, Release, Task, require_setting
from dpbench.learning.defaults import DISTANCE_ORIGIN, Rows, check_training_settings, pace, travel
from dpbench.learning.linear import LinearProbe, OptimiserName, Transform
from dpbench.learning.probabilities import aimed, calibrated
from dpbench.support.settings import setting

if TYPE_CHECKING:
    import torch
    from torch import Tensor

ADAM_TRAVEL = 8.0  # of a number of the head, times the root of the number of features
_SETTINGS_THAT_MAY_DIFFER = (
    "learning_rate",
    "momentum",
    "clip",
    "steps",
    "optimiser",
)  # what settings that train together may differ in
_TRAINING_SETTINGS = (
    *_SETTINGS_THAT_MAY_DIFFER,
    "sample_rate",
    "init",
)  # what the map of the features does not depend on


@dataclass(frozen=True)
class ProbeLearner(Learner):
    """Private softmax regression on `features`, a map that reads public values only.

    A subclass defines `features`. Settings that share features and samples are tuned together: one gathered batch
    serves all learning rates, clips and numbers of steps. The number of steps and the learning rate follow from the
    budget unless you set them (see `learning.defaults`). `optimiser=adam` is DP-AdamBC (`AdamBC`) instead of momentum.
    Over all steps, each number of the head then moves by 8 divided by the square root of the number of features, unless
    you set a learning rate.
    """

    logits = True
    rule_origin = DISTANCE_ORIGIN

    steps: int | None = setting(None, ge=1, says="noisy gradient steps")
    sample_rate: float = setting(1.0, gt=0, le=1, says="chance per example of being in a step, not a batch size")
    learning_rate: float | None = setting(None, gt=0, says="step size of the descent")
    momentum: float = setting(0.9, ge=0, lt=1, says="momentum of the noisy gradients")
    clip: float = setting(1.0, gt=0, lt=math.inf, says="L2 bound on the gradient of one example")
    init: Literal["zero", "uniform"] = setting("zero", says="initial weights of the head")
    # Learners came after it and have fields of their own; results that were published before it have no such option.
    optimiser: OptimiserName = setting("momentum", says="optimiser of the head", added=True, kw_only=True)
    batch: int | None = setting(
        None, ge=1, says="expected batch size, in place of sample_rate", added=True, kw_only=True
    )

    def resolve_batch(self, task: Task) -> Self:
        """Return the learner with its expected `batch`, if set, converted to a sample rate."""
        if self.batch is None:
            return self
        return dataclasses.replace(self, batch=None, sample_rate=min(1.0, self.batch / task.size))

    @abstractmethod
    def features(self, task: Task, public: PublicData, generator: torch.Generator) -> Transform:
        """Return the map (c, *example_shape) -> (c, d), computed from public values; it maps each row independently.

        It may read the fields of the subclass, but not the training settings, because learners that differ only in
        those share the map.
        """

    def refine(self, predict: Predict, features: Transform, public: PublicData) -> Predict:
        """Post-process `predict`, the predictor of the trained head, with public data only; return the final predictor.

        By default, return `predict` unchanged.
        """
        return predict

    @property
    def rows(self) -> Rows:
        """The known norm of the rows that `features` returns; it decides how far training moves the head."""
        return "standardised"

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return the number of steps and the learning rate for rows of the norm `rows`."""
        return self.paced(travel(task, budget, self.rows), math.prod(task.example_shape))

    def earlier_auto(self, task: Task, budget: Budget) -> Mapping[str, Mapping[str, Any]]:
        """Return the settings of version 0.2, which ignored the number of features; empty for rows of norm 1."""
        if self.rows == "unit-norm":
            return {}
        way = travel(task, budget, "version 0.2")
        return {"0.2.0": {**self.auto(task, budget), **self.paced(way, math.prod(task.example_shape))}}

    def paced(self, way: float, features: int = 1) -> dict[str, Any]:
        """Return steps and a learning rate with which gradients of norm `clip` move the head by the distance `way`.

        Adam divides each entry of a gradient by its own size, so its learning rate depends only on the number of
        `features` and of steps.
        """
        who = f"learner {self.name!r}"
        check_training_settings(self.momentum, self.clip, self.learning_rate, who)
        found = pace(
            way, steps=self.steps, sample_rate=self.sample_rate, momentum=self.momentum, clip=self.clip, who=who
        )
        if self.optimiser == "adam":
            found["learning_rate"] = float(f"{ADAM_TRAVEL / features**0.5 / found['steps']:.3g}")
        return found

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan the noisy gradients of all steps as one release. The map needs no release: it reads public data only."""
        return [self.probe.release()]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train the head on mapped features."""
        return self.fit_on(self.features(curator.task, public, generator), curator, public, generator)

    def fit_on(self, features: Transform, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train the head on features from the map `features`, made with the same public data and generator."""
        predict = self.probe.train(curator, features, generator)
        return self.finish(predict, features, curator.task, public, curator.sigma["gradient"])

    def finish(self, predict: Predict, features: Transform, task: Task, public: PublicData, sigma: float) -> Predict:
        """Refine the predictor of a trained head, calibrate its probabilities and adjust it to the metric.

        All of this is post-processing with public data; `sigma` is the noise multiplier that the head was trained with.
        """
        refined = self.refine(predict, features, public)
        per_number = self.probe.head_noise(sigma, task.size)

        def estimate_logit_variance(x: Tensor) -> float:  # the variance of a logit
            return per_number * (1 + float(features(x).double().square().sum(1).mean()))

        known = estimate_logit_variance if refined is predict and self.optimiser == "momentum" else None
        return aimed(calibrated(refined, public, known), task, public)

    @property
    def probe(self) -> LinearProbe:
        """The training procedure of the linear head."""
        steps, rate = require_setting(self.steps), require_setting(self.learning_rate)
        return LinearProbe(steps, self.sample_rate, rate, self.momentum, self.clip, self.init, optimiser=self.optimiser)

    @property
    def shared(self) -> Hashable:
        """The key that learners must have in common to be trained together."""
        return type(self), self._list_settings_without(_SETTINGS_THAT_MAY_DIFFER)

    @property
    def map_key(self) -> Hashable:
        """The key of the public map; learners with equal keys share a map for the same public data and generator."""
        return type(self), self._list_settings_without(_TRAINING_SETTINGS)

    def _list_settings_without(self, left_out: Sequence[str]) -> Hashable:
        names = (field.name for field in dataclasses.fields(self))
        return tuple((name, getattr(self, name)) for name in names if name not in left_out)
