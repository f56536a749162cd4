"""One run, from spec to result, in a straight line."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch

from dpbench import metrics, progress, provenance, registry
from dpbench.api import Budget, Learner, PublicData, Release
from dpbench.data import roles as data
from dpbench.errors import SpecError
from dpbench.guard import guarded
from dpbench.parts import Parts, resolve, selection, spelled_out
from dpbench.phases import Phases
from dpbench.privacy import accountant, calibration, crosscheck
from dpbench.privacy.curator import LedgerCurator
from dpbench.privacy.plan import Ledger, check_plan
from dpbench.privacy.randomness import Randomness
from dpbench.registry import Registry
from dpbench.result import Brought, Independent, PlannedRelease, Privacy, Result, SeedResult, TaskFacts, summarise
from dpbench.spec import Spec


def run(spec: Spec, *, device: str = "auto", plugins: Registry | None = None) -> Result:
    """Run one spec: fit once a seed under one calibrated plan, score each fit on the test split.

    Covered: each seed's fit has the epsilon that the result states (see `privacy.curator`); seeds are separate runs of
    one mechanism, so publishing several of them composes.

    Raises:
        DpbenchError: one sentence; nothing is run when names, options, data or budget do not fit.
    """
    torch.set_float32_matmul_precision("highest")  # norms are bounded for IEEE float32, not for TF32
    phases, place = Phases(), _device(device)
    parts = resolve(plugins or registry.load(), spec)
    spec = spelled_out(spec, parts)
    with phases("load"):
        roles = data.assign(parts, spec, place)
        roles = dataclasses.replace(roles, public=_visible(roles.public, parts.learner, spec))
    with phases("calibrate"), progress.status("Calibrating sigma"):
        plan = _plan(parts, roles, spec)
        sigma = calibration.calibrate(plan, _budget(spec), spec.accountant)
        privacy = _privacy(plan, sigma, spec)
    with progress.meter(f"Fitting {parts.learner.name}", len(spec.seeds)) as advance:
        seeds = []
        for seed in spec.seeds:
            seeds.append(_fit_and_score(seed, parts, roles, privacy, phases))
            advance(1)
    return Result(
        digest=spec.digest, spec=spec, selection=selection(parts.learner), task=_facts(roles, parts),
        privacy=privacy, seeds=tuple(seeds), metrics=summarise(seeds), seconds=phases.seconds,
        peak_bytes=phases.peak_bytes, components=_brought(parts), provenance=provenance.collect(str(place)),
    )  # fmt: skip


def _fit_and_score(seed: int, parts: Parts, roles: data.Roles, privacy: Privacy, phases: Phases) -> SeedResult:
    """Fit on the private split through a fresh curator; the test split meets the predictor only afterwards."""
    randomness = Randomness.of(privacy.rng, seed)
    sigma = {release.name: release.sigma for release in privacy.plan}
    revealing = parts.learner.reference and privacy.epsilon == math.inf
    curator = LedgerCurator(roles.private, roles.task, sigma, Ledger(privacy.plan), randomness, revealing)
    public = PublicData(roles.public.x.clone(), None if roles.public.y is None else roles.public.y.clone())
    with phases("fit"):
        fit = parts.who("learner", "fit")
        predict = guarded(fit, parts.learner.fit, curator.door(), public, randomness.initialisation)
    with phases("score"):
        scores = guarded(parts.who("learner", "predict"), metrics.predict_all, predict, roles.test.x, roles.task)
        figures = metrics.score(scores, roles.test.y)
    return SeedResult(seed=seed, spent=dict(curator.ledger.spent), commitment=randomness.commitment, **figures)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise SpecError(f"Device {name!r} cannot be used: {reason} Use --device cpu or auto.") from error


def _visible(public: PublicData, learner: Learner, spec: Spec) -> PublicData:
    """Return the part of the public data that protocol and learner agree on."""
    if learner.public != "labelled":
        return PublicData(public.x if learner.public == "unlabelled" else public.x[:0], None)
    if not spec.public_labels:
        raise SpecError(
            f"Learner {learner.name!r} needs labelled public data, which this protocol does not give. "
            "Add --public-labels, and compare it only with results that have them too."
        )
    if not len(public.x):
        raise SpecError(f"Learner {learner.name!r} needs public data. Add --public-fraction or --public-dataset.")
    return public


def _budget(spec: Spec) -> Budget:
    return Budget(spec.epsilon, spec.delta, spec.adjacency)


def _plan(parts: Parts, roles: data.Roles, spec: Spec) -> tuple[Release, ...]:
    plan = guarded(parts.who("learner", "plan"), parts.learner.plan, roles.task, _budget(spec))
    return check_plan(plan, parts.learner.name)


def _privacy(plan: Sequence[Release], sigma: float, spec: Spec) -> Privacy:
    stated = accountant.epsilon(plan, sigma, spec.delta, spec.accountant)
    other = crosscheck.cross_check(plan, sigma, spec.delta, spec.accountant)
    releases = tuple(
        PlannedRelease(**dataclasses.asdict(release), sigma=sigma * release.relative_noise) for release in plan
    )
    return Privacy(
        epsilon=stated, delta=spec.delta, accountant=spec.accountant, adjacency=spec.adjacency, sigma=sigma,
        plan=releases, independent=Independent(**dataclasses.asdict(other)),
        rng="secure" if spec.secure_rng else "research",
    )  # fmt: skip


def _facts(roles: data.Roles, parts: Parts) -> TaskFacts:
    return TaskFacts(
        example_shape=roles.task.example_shape, classes=parts.dataset.classes, private=roles.task.size,
        public=len(roles.public.x), test=len(roles.test.y), public_labels_seen=roles.public.y is not None,
        digests=roles.digests, licence=parts.dataset.licence,
    )  # fmt: skip


def _brought(parts: Parts) -> dict[str, Brought]:
    return {
        role: Brought(plugin=item.plugin, distribution=item.distribution, version=item.version)
        for role, item in parts.brought.items()
    }
