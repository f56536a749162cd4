"""Learners that train a linear head on a public map of the features: define the map, get fitting and stacking."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeGuard

from dpbench.api import Budget, Chunk, Curator, Learner, Predict, PublicData, Release, Task, settled
from dpbench.learning.defaults import check_training, pace, travel
from dpbench.learning.linear import LinearProbe, Transform, residuals_
from dpbench.privacy.core.exact.quantised import Quantised

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from dpbench.learning.stack import Stack, Stacked

_OWN = ("learning_rate", "momentum", "clip", "steps")  # what settings that train together may differ in
_TRAINING = (*_OWN, "sample_rate", "init")  # what the map of the features does not depend on


@dataclass(frozen=True)
class ProbeLearner(Learner):
    """Private softmax regression on `features`, a map that reads public values only.

    A subclass defines `features`. Settings of it that share features and samples are tuned together: one gathered
    batch serves all their learning rates, clips and numbers of steps. Steps and learning rate follow the budget unless
    they are set: see `learning.defaults`.
    """

    logits: ClassVar[bool] = True

    steps: int | None = None
    sample_rate: float = 1.0
    learning_rate: float | None = None
    momentum: float = 0.9
    clip: float = 1.0
    init: Literal["zero", "uniform"] = "zero"

    @abstractmethod
    def features(self, task: Task, public: PublicData, generator: torch.Generator) -> Transform:
        """Return the map (c, *example_shape) -> (c, d), each row on its own, made of public values only.

        It may read the subclass' own fields, but none of those that say how to train: settings share it.
        """

    def refine(self, predict: Predict, features: Transform, public: PublicData) -> Predict:
        """Return what to predict with, given the trained head's predictor: post-processing with public data only."""
        return predict

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return steps and learning rate for features whose norm is well above 1."""
        return self.paced(travel(task, budget))

    def paced(self, way: float) -> dict[str, Any]:
        """Return steps and learning rate with which the head travels `way` units of the clip."""
        who = f"learner {self.name!r}"
        check_training(self.momentum, self.clip, self.learning_rate, who)
        return pace(
            way, steps=self.steps, sample_rate=self.sample_rate, momentum=self.momentum, clip=self.clip, who=who
        )

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """One release: the noisy gradient of every step. The map reads public data only."""
        return [self.probe.release()]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train the head on mapped features."""
        return self.fit_on(self.features(curator.task, public, generator), curator, public, generator)

    def fit_on(self, features: Transform, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train the head on the features of this map, which is `features` of the same public data and generator."""
        return self.refine(self.probe.train(curator, features, generator), features, public)

    @property
    def probe(self) -> LinearProbe:
        """The linear head's training."""
        steps, rate = settled(self.steps), settled(self.learning_rate)
        return LinearProbe(steps, self.sample_rate, rate, self.momentum, self.clip, self.init)

    @property
    def shared(self) -> Hashable:
        """What settings must have in common to train together."""
        return type(self), self._but(_OWN)

    @property
    def map_key(self) -> Hashable:
        """What learners must have in common to share a map, given the same public data and generator."""
        return type(self), self._but(_TRAINING)

    def _but(self, left_out: Sequence[str]) -> Hashable:
        names = (field.name for field in dataclasses.fields(self))
        return tuple((name, getattr(self, name)) for name in names if name not in left_out)


def stackable(learner: Learner | None) -> TypeGuard[ProbeLearner]:
    """Return whether `fit_together` gives what the learner's own fit does: it is a probe that fits as probes do."""
    own = ("fit", "fit_on", "plan", "probe")
    return isinstance(learner, ProbeLearner) and all(
        getattr(type(learner), name) is getattr(ProbeLearner, name) for name in own
    )


class Maps:
    """Remembers the maps of one public split, and rows as the last one mapped them.

    Settings that differ in training alone share theirs.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Transform, Tensor]] = {}
        self._latest: tuple[Hashable, Stack] | None = None

    def of(self, learner: ProbeLearner, task: Task, public: PublicData, generator: torch.Generator) -> Transform:
        """Return `learner.features`, and leave the generator as making them would."""
        key = learner.map_key
        if key in self._known:
            features, state = self._known[key]
            generator.set_state(state)
            return features
        features = learner.features(task, public, generator)
        self._known[key] = features, generator.get_state()
        return features

    def mapped(self, learner: ProbeLearner, stack: Stack, features: Transform) -> Stack:
        """Return the stack over rows that `features`, the map of this learner, has mapped; all stacks hold the same."""
        if self._latest is None or self._latest[0] != learner.map_key:
            self._latest = None  # before the next is made: both might not fit
            self._latest = learner.map_key, stack.map(features)
        return stack.over(self._latest[1])


def fit_together(
    learners: Sequence[ProbeLearner],
    stack: Stack,
    public: PublicData,
    generator: torch.Generator,
    maps: Maps | None = None,
) -> list[Predict]:
    """Fit settings of equal `shared` at once; each predictor is what its own fit gives with the same randomness.

    `maps`, if given, belongs to this public split, to the rows behind this stack and to generators of this very state.
    """
    first, maps = learners[0], maps or Maps()
    features = maps.of(first, stack.task, public, generator)
    heads = _train(learners, maps.mapped(first, stack, features), generator)
    pairs = zip(learners, heads, strict=True)
    return [learner.refine(_predictor(learner.probe, head, features), features, public) for learner, head in pairs]


def _predictor(probe: LinearProbe, head: Tensor, features: Transform) -> Predict:
    return lambda x: probe.logits(head, features(x))


def _train(learners: Sequence[ProbeLearner], stack: Stack, generator: torch.Generator) -> Tensor:
    """Return the heads (s, k, d + 1) after all steps of each on mapped rows; see `LinearProbe.train` for one."""
    import torch

    probe, task = learners[0].probe, stack.task
    trained = probe.head(task.classes, task.example_shape[0], generator).to(task.device).repeat(len(learners), 1, 1)
    steps = torch.tensor([learner.probe.steps for learner in learners])
    expected = probe.sample_rate * task.size
    heads, velocity = trained.clone(), torch.zeros_like(trained)
    going, done = torch.arange(len(learners)), 0
    while len(going):  # until the next of those that are left has taken its steps
        own = [learners[place] for place in going]
        rates, momenta = (_column(own, name).to(task.device) for name in ("learning_rate", "momentum"))
        left, clips = stack.take(going.tolist()), [learner.clip for learner in own]
        until = int(steps[going].min())
        for _ in range(done, until):
            rows = lambda chunk: _gradients(probe, heads, chunk)  # noqa: B023
            noisy_gradients = left.noisy_sums(rows, release="gradient", clips=clips)
            velocity.mul_(momenta).add_(noisy_gradients, alpha=1 / expected)
            heads.sub_(rates * velocity)
        trained[going] = heads
        longer, done = steps[going] > until, until
        going, heads, velocity = going[longer], heads[longer], velocity[longer]
    return trained


def _column(learners: Sequence[ProbeLearner], name: str) -> Tensor:
    import torch

    return torch.tensor([getattr(learner, name) for learner in learners]).reshape(-1, 1, 1)


def _gradients(probe: LinearProbe, heads: Tensor, chunk: Chunk) -> Stacked:
    from dpbench.learning.stack import Stacked

    if isinstance(chunk.rows, Quantised):
        logits = probe.scores(heads, chunk.rows)  # (s, k, c)
    else:  # without noise, at epsilon = inf
        logits = heads[..., :-1] @ chunk.x.T + heads[..., -1:]
    return Stacked(residuals_(logits, chunk.y), chunk.rows)
