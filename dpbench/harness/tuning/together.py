"""Settings of one probe trained together: one sample and one product a step for all of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeGuard

import torch
from torch import Tensor

from dpbench.api import Chunk, Learner, Predict, PublicData
from dpbench.harness.maps import Maps
from dpbench.harness.tuning.stack import Stack, StackedOuterProducts
from dpbench.learning.linear import LinearProbe, Transform, descended
from dpbench.learning.probes import ProbeLearner
from dpbench.privacy.core.exact.elementwise import residuals_
from dpbench.privacy.core.exact.quantised import QuantisedRows
from dpbench.privacy.core.head import scores


def stackable(learner: Learner | None) -> TypeGuard[ProbeLearner]:
    """Return whether `fit_together` gives what the learner's own fit does: it is a probe that fits as probes do."""
    own = ("fit", "fit_on", "plan", "probe")
    return isinstance(learner, ProbeLearner) and all(
        getattr(type(learner), name) is getattr(ProbeLearner, name) for name in own
    )


class MappedRows:
    """The rows of one fold as the last group's features mapped them: settings that differ in training alone share them.

    All stacks that it is asked for hold the same rows.
    """

    def __init__(self) -> None:
        self.maps = Maps()
        self._latest: tuple[Hashable, Stack] | None = None

    def of(self, learner: ProbeLearner, stack: Stack, features: Transform) -> Stack:
        """Return the stack over rows that `features`, the map of this learner, has mapped."""
        if self._latest is None or self._latest[0] != learner.map_key:
            self._latest = None  # before the next is made: both might not fit
            self._latest = learner.map_key, stack.map(features)
        return stack.with_rows(self._latest[1])


class PublicMap:
    """A public map that maps public rows once: what refines and calibrates a head asks for them, setting by setting."""

    def __init__(self, features: Transform, x: Tensor) -> None:
        self._features, self._x = features, x
        self._mapped: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Return the mapped rows; of the public rows, or of the first few of them, a copy of what was made before."""
        if type(x) is not Tensor or not self._begins_with(x):
            return self._features(x)
        if self._mapped is None:
            self._mapped = self._features(self._x)
        return self._mapped[: len(x)].clone()

    def _begins_with(self, x: Tensor) -> bool:
        return _place(x) == _place(self._x) and 0 < len(x) <= len(self._x)


def _place(x: Tensor) -> Hashable:
    return x.data_ptr(), x.dtype, x.shape[1:], x.stride()


def fit_together(
    learners: Sequence[ProbeLearner],
    stack: Stack,
    public: PublicData,
    generator: torch.Generator,
    mapped: MappedRows | None = None,
) -> list[Predict]:
    """Fit settings of equal `shared` at once; each predictor is what its own fit gives with the same randomness.

    `mapped`, if given, belongs to this public split and to the rows behind this stack.
    """
    first, mapped = learners[0], mapped or MappedRows()
    features = mapped.maps.of(first, stack.task, public, generator)
    heads = _trained([learner.probe for learner in learners], mapped.of(first, stack, features), generator)
    pairs, shown = zip(learners, heads, strict=True), PublicMap(features, public.x)
    return [
        learner.finish(_predictor(learner.probe, head, shown), shown, stack.task, public, sigma)
        for (learner, head), sigma in zip(pairs, stack.sigmas("gradient"), strict=True)
    ]


def _predictor(probe: LinearProbe, head: Tensor, features: Transform) -> Predict:
    return lambda x: probe.logits(head, features(x))


def _trained(probes: Sequence[LinearProbe], stack: Stack, generator: torch.Generator) -> list[Tensor]:
    """Return the heads (k, d + 1) after all steps of each on mapped rows."""
    task, first = stack.task, probes[0]
    head = first.head(task.classes, task.example_shape[0], generator).to(task.device)

    def gradients(heads: Sequence[Tensor], going: Sequence[int], step: int) -> Tensor:
        whole, clips = torch.stack([heads[place] for place in going]), [probes[place].clip for place in going]

        def rows(chunk: Chunk) -> StackedOuterProducts:
            assert isinstance(chunk.rows, QuantisedRows)  # as all mapped rows are
            return StackedOuterProducts(residuals_(scores(whole, chunk.rows, first.bias), chunk.y), chunk.rows)

        return stack.take(going).noisy_sums(rows, release="gradient", clips=clips)

    sigmas = stack.sigmas("gradient")
    return descended(probes, [head.clone() for _ in probes], task.size, gradients, sigmas=sigmas)
