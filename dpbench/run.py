"""One run, from spec to result, in a straight line."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from dpbench import metrics, provenance
from dpbench import registry as registries
from dpbench.api import Budget, Dataset, Extractor, Learner, Predict, PublicData, Release
from dpbench.data import roles as data
from dpbench.errors import ComponentFailed, DpbenchError, SpecError
from dpbench.phases import Phases
from dpbench.privacy import accountant, calibration
from dpbench.privacy.curator import LedgerCurator
from dpbench.privacy.plan import Ledger, check_plan
from dpbench.privacy.randomness import Randomness
from dpbench.registry import Registry
from dpbench.result import Brought, Independent, PlannedRelease, Privacy, Result, SeedResult, TaskFacts, summarise
from dpbench.spec import Component, Spec


@dataclasses.dataclass(frozen=True)
class Parts:
    """The components that a spec names, built."""

    dataset: Dataset
    public_dataset: Dataset | None
    extractor: Extractor
    learner: Learner
    brought: dict[str, Brought]


def run(spec: Spec, *, device: str = "auto", registry: Registry | None = None) -> Result:
    """Run one spec: fit once a seed under one calibrated plan, score each fit on the test split.

    Covered: each seed's fit has the epsilon that the result states (see `privacy.curator`); seeds are separate runs of
    one mechanism, so publishing several of them composes.

    Raises:
        DpbenchError: one sentence; nothing is run when names, options, data or budget do not fit.
    """
    torch.set_float32_matmul_precision("highest")  # norms are bounded for IEEE float32, not for TF32
    place, phases = _device(device), Phases()
    parts = resolve(registry or registries.load(), spec)
    spec = resolved(spec, parts)
    with phases("load"):
        roles = data.assign(parts.dataset, parts.public_dataset, parts.extractor, spec, place)
        public = _visible(roles.public, parts.learner, spec)
    with phases("calibrate"):
        budget = Budget(spec.epsilon, spec.delta, spec.adjacency)
        plan = check_plan(_guarded(parts, "plan", roles.task, budget), parts.learner.name)
        sigma = calibration.calibrate(plan, budget, spec.accountant)
        privacy = _privacy(plan, sigma, spec)
    seeds = []
    for seed in spec.seeds:
        randomness = Randomness.secure(seed) if spec.secure_rng else Randomness.research(seed)
        sigmas = {release.name: sigma * release.relative_noise for release in plan}
        curator = LedgerCurator(roles.private, roles.task, sigmas, Ledger(plan), randomness)
        with phases("fit"):
            predict: Predict = _guarded(parts, "fit", curator.door(), public, randomness.initialisation)
        with phases("score"):
            scores = metrics.predict_all(predict, roles.test.x, roles.task.classes, place)
            figures = metrics.score(scores, roles.test.y)
        seeds.append(
            SeedResult(seed=seed, spent=dict(curator.ledger.spent), commitment=randomness.commitment, **figures)
        )
    return Result(
        digest=spec.digest, spec=spec, selection=_selection(parts.learner), task=_facts(roles, public, parts),
        privacy=privacy, seeds=tuple(seeds), metrics=summarise(seeds), seconds=phases.seconds,
        peak_bytes=phases.peak_bytes, components=parts.brought, provenance=provenance.collect(str(place)),
    )  # fmt: skip


def resolve(registry: Registry, spec: Spec) -> Parts:
    """Build what the spec names, or refuse with what exists."""

    def build(kind: registries.Kind, component: Component) -> Any:
        found = registry.find(kind, component.name)
        brought[kind] = Brought(plugin=found.plugin, distribution=found.distribution, version=found.version)
        return registry.build(kind, component.name, component.options)

    brought: dict[str, Brought] = {}
    public_dataset = build("dataset", spec.public_dataset) if spec.public_dataset else None
    learner, extractor, dataset = (
        build("learner", spec.learner), build("extractor", spec.extractor), build("dataset", spec.dataset)
    )  # fmt: skip
    return Parts(dataset, public_dataset, extractor, learner, brought)


def resolved(spec: Spec, parts: Parts) -> Spec:
    """Return the spec with every option of every component spelled out: what the digest names."""
    return spec.model_copy(
        update={
            "dataset": _spelled(parts.dataset),
            "public_dataset": _spelled(parts.public_dataset) if parts.public_dataset else None,
            "extractor": _spelled(parts.extractor),
            "learner": _spelled(parts.learner),
        }
    )


def _spelled(component: Any) -> Component:
    options = {field.name: getattr(component, field.name) for field in dataclasses.fields(component)}
    return Component(name=component.name, options=options)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise SpecError(f"Device {name!r} cannot be used: {reason} Use --device cpu or auto.") from error


def _guarded(parts: Parts, method: str, *arguments: Any) -> Any:
    """Call a method of the learner; what dpbench refused passes through, the plugin's own failures are named."""
    try:
        return getattr(parts.learner, method)(*arguments)
    except DpbenchError:
        raise
    except Exception as error:
        brought = parts.brought["learner"]
        raise ComponentFailed(
            f"Learner {parts.learner.name!r} (plugin {brought.plugin!r}, {brought.distribution} {brought.version}) "
            f"failed in {method}: {type(error).__name__}: {error} Set DPBENCH_DEBUG=1 for the traceback."
        ) from error


def _visible(public: PublicData, learner: Learner, spec: Spec) -> PublicData:
    """Return the part of the public data that protocol and learner agree on."""
    if learner.public == "labelled":
        if not spec.public_labels:
            raise SpecError(
                f"Learner {learner.name!r} needs labelled public data, which this protocol does not give. "
                "Add --public-labels, and compare it only with results that have them too."
            )
        if not len(public.x):
            raise SpecError(f"Learner {learner.name!r} needs public data. Add --public-fraction or --public-dataset.")
        return public
    return PublicData(public.x if learner.public == "unlabelled" else public.x[:0], None)


def _privacy(plan: Sequence[Release], sigma: float, spec: Spec) -> Privacy:
    stated = accountant.epsilon(plan, sigma, spec.delta, spec.accountant)
    other = accountant.cross_check(plan, sigma, spec.delta, spec.accountant)
    releases = tuple(
        PlannedRelease(**dataclasses.asdict(release), sigma=sigma * release.relative_noise) for release in plan
    )
    return Privacy(
        epsilon=stated, delta=spec.delta, accountant=spec.accountant, adjacency=spec.adjacency, sigma=sigma,
        plan=releases, independent=Independent(**dataclasses.asdict(other)),
        rng="secure" if spec.secure_rng else "research",
    )  # fmt: skip


def _selection(learner: Learner) -> Any:
    return "default" if learner == type(learner)() else "by-hand"


def _facts(roles: data.Roles, public: PublicData, parts: Parts) -> TaskFacts:
    return TaskFacts(
        example_shape=roles.task.example_shape, classes=parts.dataset.classes, private=roles.task.size,
        public=len(public.x), test=len(roles.test.y), public_labels_seen=public.y is not None, digests=roles.digests,
        licence=parts.dataset.licence,
    )  # fmt: skip
