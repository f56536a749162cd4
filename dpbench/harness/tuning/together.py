"""Train several settings of a probe together; each step draws one sample and computes one product."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeGuard

import torch
from torch import Tensor

from dpbench.api import Chunk, Learner, Predict, PublicData
from dpbench.harness.maps import PublicMapCache
from dpbench.harness.tuning.stack import StackedCurators, StackedOuterProducts
from dpbench.learning.linear import LinearProbe, Transform, train_heads
from dpbench.learning.probes import ProbeLearner
from dpbench.privacy.core.exact.elementwise import residuals_
from dpbench.privacy.core.exact.quantised import QuantisedRows
from dpbench.privacy.core.head import compute_logits


def is_stackable(learner: Learner | None) -> TypeGuard[ProbeLearner]:
    """Return whether the learner is a probe without fitting methods of its own, as `fit_probes_together` needs."""
    own = ("fit", "fit_on", "plan", "probe")
    return isinstance(learner, ProbeLearner) and all(
        getattr(type(learner), name) is getattr(ProbeLearner, name) for name in own
    )


class MappedRowsCache:
    """A cache of a fold's rows as mapped by the latest public map, for the settings that share this map.

    An instance serves only stacks with the same rows.
    """

    def __init__(self) -> None:
        self.maps = PublicMapCache()
        self._latest: tuple[Hashable, StackedCurators] | None = None

    def map_stack(self, learner: ProbeLearner, stack: StackedCurators, features: Transform) -> StackedCurators:
        """Return the stack over the rows mapped by `features`, this learner's map."""
        if self._latest is None or self._latest[0] != learner.map_key:
            self._latest = None  # before the next is made: both might not fit
            self._latest = learner.map_key, stack.map(features)
        return stack.with_rows_of(self._latest[1])


class CachingPublicMap:
    """A public map that caches the mapped public rows for all settings that refine or calibrate on these rows."""

    def __init__(self, features: Transform, x: Tensor) -> None:
        self._features, self._x = features, x
        self._mapped: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Return the mapped rows; if `x` is a prefix of the public rows, return a copy of the cached ones."""
        if type(x) is not Tensor or not self._is_public_prefix(x):
            return self._features(x)
        if self._mapped is None:
            self._mapped = self._features(self._x)
        return self._mapped[: len(x)].clone()

    def _is_public_prefix(self, x: Tensor) -> bool:
        return _memory_layout_key(x) == _memory_layout_key(self._x) and 0 < len(x) <= len(self._x)


def _memory_layout_key(x: Tensor) -> Hashable:
    return x.data_ptr(), x.dtype, x.shape[1:], x.stride()


def fit_probes_together(
    learners: Sequence[ProbeLearner],
    stack: StackedCurators,
    public: PublicData,
    generator: torch.Generator,
    mapped: MappedRowsCache | None = None,
) -> list[Predict]:
    """Fit probes with an equal key `shared` together, and return a predictor for each.

    Each predictor equals that of a separate fit with equal randomness.

    If `mapped` is given, it must belong to this public split and to the rows of this stack.
    """
    first, mapped = learners[0], mapped or MappedRowsCache()
    features = mapped.maps.find_or_make_map(first, stack.task, public, generator)
    heads = _train_heads([learner.probe for learner in learners], mapped.map_stack(first, stack, features), generator)
    pairs, shown = zip(learners, heads, strict=True), CachingPublicMap(features, public.x)
    return [
        learner.finish(_make_predictor(learner.probe, head, shown), shown, stack.task, public, sigma)
        for (learner, head), sigma in zip(pairs, stack.sigmas("gradient"), strict=True)
    ]


def _make_predictor(probe: LinearProbe, head: Tensor, features: Transform) -> Predict:
    return lambda x: probe.logits(head, features(x))


def _train_heads(probes: Sequence[LinearProbe], stack: StackedCurators, generator: torch.Generator) -> list[Tensor]:
    """Train the heads (k, d + 1) of all probes on mapped rows and return them."""
    task, first = stack.task, probes[0]
    head = first.head(task.classes, task.example_shape[0], generator).to(task.device)

    def compute_noisy_gradients(heads: Sequence[Tensor], active: Sequence[int], step: int) -> Tensor:
        whole, clips = torch.stack([heads[place] for place in active]), [probes[place].clip for place in active]

        def compute_outer_products(chunk: Chunk) -> StackedOuterProducts:
            assert isinstance(chunk.rows, QuantisedRows)  # as all mapped rows are
            return StackedOuterProducts(residuals_(compute_logits(whole, chunk.rows, first.bias), chunk.y), chunk.rows)

        return stack.take(active).noisy_sums(compute_outer_products, release="gradient", clips=clips)

    sigmas = stack.sigmas("gradient")
    return train_heads(probes, [head.clone() for _ in probes], task.size, compute_noisy_gradients, sigmas=sigmas)
