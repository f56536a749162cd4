"""Steps of the learners against those of dp-sgd, and settings trained together against one: n 45,000, batch 1,024."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import torch
from dpbench_plugins.learners import gep as dpbench_gep
from dpbench_plugins.learners.adadps import AdaDPS
from dpbench_plugins.learners.dp_sgd import DPSGD
from dpbench_plugins.learners.gep import GEP
from dpbench_plugins.learners.pillar import Pillar
from torch import Tensor

from dpbench import Budget, Learner, LinearProbe, PublicData, Task, require_setting, residuals
from dpbench.harness.tuning.stack import StackedCurators
from dpbench.harness.tuning.together import fit_probes_together
from dpbench.learning.probes import ProbeLearner
from dpbench.privacy.binding import bind
from dpbench.privacy.core.forms.residual.bases import Basis
from dpbench.privacy.core.ledger_curator import LedgerCurator
from dpbench.privacy.core.map import MapQuestion
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.curator import make_learner_curator
from tests.benchmarks.conftest import Ratios

STEPS = 32
GEP_STEPS = 2  # each takes as long as dozens of steps of dp-sgd
BUDGET = Budget(1.0, 1e-5)
L = TypeVar("L", bound=Learner)


class World:
    """Private rows and public examples of the papers' size; small when benchmarks are switched off."""

    def __init__(self, ratios: Ratios, classes: int = 10) -> None:
        self.n, self.d, self.batch, self.public = (45_000, 2048, 1024, 2000) if ratios.enabled else (300, 24, 20, 60)
        self.rate, draw = self.batch / self.n, torch.Generator().manual_seed(0)
        x = torch.randn(self.n, self.d, generator=draw) * torch.linspace(2, 0.1, self.d)
        y = torch.randint(classes, (self.n,), generator=draw)
        self.task = Task((self.d,), classes, self.n, torch.device("cpu"))
        self.rows = PrivateRows(x, y, torch.arange(self.n))
        self.seen = PublicData(x[: self.public].clone(), y[: self.public].clone())

    def require_setting(self, learner: L) -> L:
        """Return the learner with numbers for settings."""
        return learner.settle(self.task, BUDGET)

    def curator(self, learner: Learner, noise: int = 0) -> LedgerCurator:
        """Return a fresh curator for one fit."""
        plan = self.require_setting(learner).plan(self.task, BUDGET)
        return bind(self.rows, self.task, plan, 3.0, Randomness.tuning(0, "a benchmark", 0, noise))

    def fit(self, learner: Learner) -> Callable[[], object]:
        """Return one whole fit."""

        def fit() -> object:
            curator = self.curator(learner)
            return self.require_setting(learner).fit(
                make_learner_curator(curator), self.seen, curator.randomness.initialisation
            )

        return fit

    def train(self, learner: ProbeLearner) -> Callable[[], object]:
        """Return the training of a probe on rows that are mapped already: steps alone."""
        learner = self.require_setting(learner)
        features = learner.features(self.task, self.seen, torch.Generator().manual_seed(0))
        mapped = self.curator(learner).answer(MapQuestion(features))

        def train() -> object:
            plan, randomness = learner.plan(self.task, BUDGET), Randomness.tuning(0, "a benchmark", 0, 0)
            curator = bind(mapped.rows, mapped.task, plan, 3.0, randomness)
            return learner.probe.descend(make_learner_curator(curator), randomness.initialisation)

        return train


def dp_sgd(world: World, **fields: Any) -> DPSGD:
    return DPSGD(**{"steps": STEPS, "sample_rate": world.rate, "momentum": 0.0, **fields})


@pytest.mark.parametrize("classes", [10, 100])
def test_adadps_against_dp_sgd(benchmark: Any, ratios: Ratios, classes: int) -> None:
    world = World(ratios, classes)
    ours = world.fit(AdaDPS(steps=STEPS, sample_rate=world.rate, momentum=0.0, refresh=STEPS))
    benchmark.pedantic(ours, rounds=1)
    base = world.fit(dp_sgd(world))
    what = f"AdaDPS / dp-sgd: d {world.d}, {classes} classes"
    benchmark.extra_info["ratio"] = ratios.record(what, ours, base, "<= 2", (STEPS, STEPS))


@pytest.mark.parametrize("classes", [10, 100])
def test_dp_sgd_against_pillar(benchmark: Any, ratios: Ratios, classes: int) -> None:
    world = World(ratios, classes)
    learner = Pillar(k=min(40, world.d), steps=8 * STEPS, sample_rate=world.rate, momentum=0.0)
    ours = world.train(learner)
    benchmark.pedantic(ours, rounds=1)
    base = world.train(dp_sgd(world))
    what = f"dp-sgd / PILLAR with k {learner.k}: d {world.d}, {classes} classes"
    benchmark.extra_info["ratio"] = ratios.record(what, base, ours, ">= 6", (STEPS, 8 * STEPS))


@pytest.mark.parametrize(("anchors", "target"), [(2000, "<= 15"), (200, "<= 5")])
def test_gep_against_dp_sgd(
    benchmark: Any, ratios: Ratios, anchors: int, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(ratios)
    learner, basis = _gep(world, anchors if ratios.enabled else anchors // 40)
    monkeypatch.setattr(dpbench_gep, "compute_leading_subspace", lambda *_: basis)  # making the basis is counted apart
    ours = world.fit(learner)
    benchmark.pedantic(ours, rounds=1)
    what = f"GEP with k {basis.k} of {learner.anchors} anchors / dp-sgd: d {world.d}, 10 classes"
    benchmark.extra_info["ratio"] = ratios.record(what, ours, world.fit(dp_sgd(world)), target, (GEP_STEPS, STEPS))


@pytest.mark.parametrize("anchors", [2000, 200])
def test_gep_against_materialised_gradients(
    benchmark: Any, ratios: Ratios, anchors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(ratios)
    learner, basis = _gep(world, anchors if ratios.enabled else anchors // 40)
    monkeypatch.setattr(dpbench_gep, "compute_leading_subspace", lambda *_: basis)
    ours, steps = world.fit(learner), 2
    benchmark.pedantic(ours, rounds=1)
    what = f"materialised GEP / GEP with k {basis.k} of {learner.anchors} anchors: d {world.d}, 10 classes"
    ratio = ratios.record(what, _materialised(world, basis, steps), ours, ">= 20", (steps, GEP_STEPS))
    benchmark.extra_info["ratio"] = ratio


@pytest.mark.parametrize("anchors", [2000, 200])
def test_making_a_basis_against_a_step_of_dp_sgd(benchmark: Any, ratios: Ratios, anchors: int) -> None:
    world = World(ratios)
    learner, _ = _gep(world, anchors if ratios.enabled else anchors // 40)
    gradients, draw = _anchors(world, learner.anchors or 0), torch.Generator().manual_seed(0)
    ours = lambda: dpbench_gep.compute_leading_subspace(gradients, require_setting(learner.k), 1, draw)
    benchmark.pedantic(ours, rounds=1)
    what = f"a basis of {learner.k} from {learner.anchors} anchors / a step of dp-sgd: d {world.d}, 10 classes"
    benchmark.extra_info["ratio"] = ratios.record(what, ours, world.fit(dp_sgd(world)), "none", (1, STEPS))


@pytest.mark.parametrize("classes", [10, 100])
def test_nine_settings_together_against_one(benchmark: Any, ratios: Ratios, classes: int) -> None:
    world = World(ratios, classes)
    settings = [dp_sgd(world, learning_rate=rate, clip=clip) for rate in (0.01, 0.1, 1.0) for clip in (0.5, 1.0, 2.0)]

    def ours() -> object:
        curators = tuple(world.curator(setting, noise) for noise, setting in enumerate(settings))
        return fit_probes_together(
            settings, StackedCurators(curators), world.seen, curators[0].randomness.initialisation
        )

    benchmark.pedantic(ours, rounds=1)
    what = f"9 settings together / one: d {world.d}, {classes} classes"
    benchmark.extra_info["ratio"] = ratios.record(what, ours, world.fit(settings[0]), "<= 3", (STEPS, STEPS))


@pytest.mark.parametrize("classes", [10, 100])
def test_bare_products_of_nine_settings_against_one_step(benchmark: Any, ratios: Ratios, classes: int) -> None:
    """What no stacking can go below: the two products of nine settings, of rows gathered already."""
    world = World(ratios, classes)
    features = torch.randn(world.batch, world.d)
    heads, weighted = torch.randn(9 * classes, world.d), torch.randn(9 * classes, world.batch)

    def bare() -> object:
        return heads @ features.T, weighted @ features

    benchmark.pedantic(bare, rounds=1)
    what = f"bare products of 9 settings / one setting: d {world.d}, {classes} classes"
    benchmark.extra_info["ratio"] = ratios.record(what, bare, world.fit(dp_sgd(world)), "none", (1, STEPS))


def _gep(world: World, anchors: int) -> tuple[GEP, Any]:
    learner = GEP(
        k=min(200, anchors), anchors=anchors, steps=GEP_STEPS, refresh=GEP_STEPS, sample_rate=world.rate, momentum=0.0
    )
    return learner, dpbench_gep.compute_leading_subspace(
        _anchors(world, anchors), require_setting(learner.k), 1, torch.Generator().manual_seed(0)
    )


def _anchors(world: World, anchors: int) -> Any:
    head = torch.zeros(world.task.classes, world.d + 1)
    return dpbench_gep.compute_anchor_gradients(head, world.seen.x[:anchors], torch.Generator().manual_seed(0))


def _materialised(world: World, basis: Basis, steps: int) -> Callable[[], object]:
    """Return steps of GEP as published: each example's gradient, its embedding and its residual in full."""
    vectors = torch.stack([basis.expand(row).flatten() for row in torch.eye(basis.k)], 1).float()  # (p, k)
    probe = LinearProbe(steps, world.rate, 0.1, 0.0, 1.0)
    head = torch.zeros(world.task.classes, world.d + 1)

    def clipped(rows: Tensor, bound: float) -> Tensor:
        total: Tensor = (rows * (bound / rows.norm(dim=1)).clamp(max=1).unsqueeze(1)).sum(0)
        return total + torch.randn_like(total)

    def step() -> None:
        for _ in range(steps):
            chosen = torch.rand(world.n) < world.rate
            x, y = world.rows.x[chosen], world.rows.y[chosen]
            wide = torch.nn.functional.pad(x, (0, 1), value=1.0)
            rows = (residuals(probe.logits(head, x), y).unsqueeze(2) * wide.unsqueeze(1)).flatten(1)  # (c, p)
            embedding = rows @ vectors
            rest = rows - embedding @ vectors.T
            head.sub_((vectors @ clipped(embedding, 1.0) + clipped(rest, 0.2)).reshape(head.shape), alpha=1e-4)

    return step
