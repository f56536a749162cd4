"""Compare a private run with the same run after removing noise, clipping and so on, one by one, up to the ceiling.

The stages from the private run upwards are tuning (settings chosen with public labels, if requested), noise, clipping,
projection (k = all) and steps (four times as many). The gap that is left to the ceiling is the rest: the effect of the
ceiling's better loss, penalty and features. Each difference is paired by seeds. Together the differences are the price
of privacy, in the metric that learners optimise.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dpbench.api import Curator, Learner
from dpbench.errors import ComponentFailed, SpecError
from dpbench.harness.fit import fit_and_score_seed
from dpbench.harness.fitting import fit_once, predict_isolated
from dpbench.harness.loaded import get_component_origins
from dpbench.harness.plans import ask_learner_for_plan
from dpbench.harness.prepare import PreparedRun, prepare_seed
from dpbench.harness.session import Session
from dpbench.privacy.core.ledger_curator import LedgerCurator
from dpbench.privacy.core.plan import release_sigmas
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.curator import make_learner_curator
from dpbench.records.result import Interval, SeedResult, mean_interval
from dpbench.records.spec import Spec
from dpbench.registry import Registry
from dpbench.registry.components import make_component_record
from dpbench.support import progress
from dpbench.support.files import canonical_digest
from dpbench_lab.explain.explanation import Explanation, LearnerExplanation, LiftedStage, Stage
from dpbench_lab.explain.lifting import (
    Protection,
    SumRecord,
    lift_protection,
    make_sums_only_error,
    measure_signals,
    record_sums,
)

MORE_STEPS = 4
LIFTED_STAGES: tuple[Stage, ...] = ("noise", "clipping", "projection", "steps")


def explain_learners(specs: Sequence[Spec], session: Session, tuned: Sequence[Spec] = ()) -> Explanation:
    """Split the price of privacy into parts, for several learners on one protocol.

    Guarantee: none. All runs except the private run itself read private rows without noise, or with noise that gives no
    guarantee, so show the outcome only to people who may read the data.

    Args:
        specs: a spec for each learner, at a finite epsilon.
        session: the installed plugins and the device; one of its learners is a reference, the ceiling.
        tuned: the same specs with a search; empty to leave out the stage of tuning.

    Raises:
        SpecError: a learner is a reference, reads no private data, adds no noise, keeps the best of several fits, or
            asks for more than sums; no reference is installed; or the metric needs two classes and there are more.
        DpbenchError: a run cannot be prepared, or fails.
    """
    for spec in specs:
        if session.plugins.find("learner", spec.learner.name).cls.reference:
            raise SpecError(
                f"Expected a private learner with one fit per seed, got {spec.learner.name!r}: it is the baseline "
                "that others are compared with."
            )
    began = time.monotonic()
    prepared = [_require_explainable_run(session.prepare(spec)) for spec in specs]
    best = [session.prepare(spec) for spec in tuned]
    first = prepared[0]
    seeds = first.spec.seeds[:1] if _has_same_data_for_all_seeds(first) else first.spec.seeds
    ceiling = session.run(_make_ceiling_spec(specs[0], seeds, session.plugins))
    tops = [_read_seed_score(first, seed) for seed in ceiling.seeds]
    found = []
    with progress.show_progress_bar("Lifting", len(specs)) as advance:
        for number, run in enumerate(prepared):
            found.append(_explain_learner(run, best[number] if best else None, tops))
            advance(1)
    return Explanation(
        digest=canonical_digest([spec.digest for spec in (*specs, *tuned)]), specs=tuple(run.spec for run in prepared),
        private=first.roles.task.size, public=len(first.roles.public.x), test=len(first.test.scorer),
        ceiling=ceiling.spec.learner, score=mean_interval(tops), learners=tuple(found), digests=first.images.digests,
        seconds=time.monotonic() - began, components=get_component_origins(first.parts),
        provenance=first.loaded.provenance,
    )  # fmt: skip


def _require_explainable_run(prepared: PreparedRun) -> PreparedRun:
    learner, privacy = prepared.learner, prepared.privacy
    if not privacy.plan or not privacy.sigma or privacy.repeats:
        raise SpecError(
            f"Expected a private learner with one fit per seed, got {learner.name!r} at epsilon "
            f"{prepared.spec.epsilon:g}: it reads no private data, adds no noise, or keeps the best of several fits."
        )
    for release in privacy.releases:
        if not release.gaussian:
            raise make_sums_only_error(release.name)
    spec, classes = prepared.spec, prepared.roles.task.classes
    if spec.metric == "auroc" and classes != 2:
        raise SpecError(f"Expected two classes with metric auroc, and {spec.dataset.name!r} has {classes}.")
    return prepared


def _has_same_data_for_all_seeds(prepared: PreparedRun) -> bool:
    """Return whether every seed has the same data."""
    first, *others = prepared.spec.seeds
    return all(prepared.loaded.has_same_data(seed, first) for seed in others)


def _make_ceiling_spec(spec: Spec, seeds: Sequence[int], plugins: Registry) -> Spec:
    references = sorted(name for name, item in plugins.components["learner"].items() if item.cls.reference)
    if not references:
        raise SpecError(
            "Expected a learner that is a reference without privacy, such as non-private, but none is installed."
        )
    changed = {"learner": {"name": references[0]}, "epsilon": "inf", "search": None, "seeds": list(seeds)}
    return Spec(**{**spec.user_values, **changed, "secure_rng": False})


def _explain_learner(
    default: PreparedRun, tuned: PreparedRun | None, ceiling_scores: list[float]
) -> LearnerExplanation:
    base = tuned or default
    private = _compute_private_scores(default)
    started = private if tuned is None else _compute_private_scores(tuned)
    world = LiftedFitRunner(base)
    ladder = [_make_lifted_tuning(tuned, private, started)]
    scores, kept, learner = started, Protection(True, True), base.learner
    for stage in LIFTED_STAGES:
        try:
            higher, less, said = _lift_stage(stage, learner, kept, base)
            reached = world.scores(higher, less)
        except (SpecError, ComponentFailed) as error:
            ladder.append(LiftedStage(stage=stage, score=None, points=None, why=str(error)))
            continue
        ladder.append(_make_lifted_stage(stage, scores, reached, said))
        learner, kept, scores = higher, less, reached
    steps: list[SumRecord] = []
    whole = Protection(True, True)
    paired = world.scores(base.learner, whole, steps)  # whose noise is that of each thing lifted alone
    alone = tuple(_lift_stage_alone(stage, base, world, paired) for stage in LIFTED_STAGES)
    plan, size, units = base.privacy.releases, base.roles.task.size, bool(base.spec.unit)
    ceiling = ceiling_scores if len(ceiling_scores) == len(scores) else ceiling_scores * len(scores)
    return LearnerExplanation(
        learner=make_component_record(base.learner), digest=default.spec.digest, epsilon=default.privacy.epsilon,
        private=mean_interval(private), ladder=tuple(ladder), alone=alone,
        rest=_mean_interval([top - score for top, score in zip(ceiling, scores, strict=True)]),
        signals=tuple(measure_signals(steps, plan, release_sigmas(plan, base.privacy.sigma), size, units=units)),
    )  # fmt: skip


def _read_seed_score(prepared: PreparedRun, seed: SeedResult) -> float:
    return seed.value(prepared.spec.metric)


def _compute_private_scores(prepared: PreparedRun) -> list[float]:
    return [_read_seed_score(prepared, fit_and_score_seed(prepared, seed)) for seed in prepared.spec.seeds]


def _make_lifted_tuning(tuned: PreparedRun | None, before: list[float], after: list[float]) -> LiftedStage:
    if tuned is None:
        return LiftedStage(
            stage="tuning", score=None, points=None, why="The gain of tuning is not measured; add --tune."
        )
    assert tuned.selection is not None
    return _make_lifted_stage("tuning", before, after, f"Settings chosen with public labels: {tuned.selection.chosen}.")


def _lift_stage_alone(
    stage: Stage, base: PreparedRun, fits: LiftedFitRunner, private_scores: list[float]
) -> LiftedStage:
    try:
        learner, kept, said = _lift_stage(stage, base.learner, Protection(True, True), base)
        return _make_lifted_stage(stage, private_scores, fits.scores(learner, kept), said)
    except (SpecError, ComponentFailed) as error:
        return LiftedStage(stage=stage, score=None, points=None, why=str(error))


def _make_lifted_stage(stage: Stage, before: Sequence[float], after: Sequence[float], description: str) -> LiftedStage:
    gained = [value - other for value, other in zip(after, before, strict=True)]
    return LiftedStage(stage=stage, score=_mean_interval(after), points=_mean_interval(gained), why=description)


def _mean_interval(values: Sequence[float]) -> Interval:
    """Return the mean and its interval; no interval if all seeds agree, because equal scores show no spread."""
    return mean_interval(values if len(set(values)) > 1 else values[:1])


def _lift_stage(stage: Stage, learner: Learner, kept: Protection, base: PreparedRun) -> tuple[Learner, Protection, str]:
    """Return the learner and the protection after lifting a stage, and a description of the change.

    Raises:
        SpecError: the learner has no such stage.
    """
    settings = {field.name: getattr(learner, field.name) for field in dataclasses.fields(learner)}  # type: ignore[arg-type]
    if stage == "noise":
        return learner, dataclasses.replace(kept, noise=False), "No noise, the same plan and settings."
    if stage == "clipping":
        return learner, dataclasses.replace(kept, clipping=False), "One factor for all rows instead of clipping."
    name = "k" if stage == "projection" else "steps"
    if not isinstance(settings.get(name), int):
        raise SpecError(f"Does not apply: {learner.name} has no {name}.")
    wide = _max_projection_dimensions(base) if name == "k" else MORE_STEPS * settings["steps"]
    if wide <= settings[name]:
        raise SpecError(f"Does not apply: {name} {settings[name]} is the largest possible already.")
    changed: Any = dataclasses.replace(learner, **{name: wide})  # type: ignore[type-var]
    return changed, kept, f"{name} {wide} instead of {settings[name]}."


def _max_projection_dimensions(base: PreparedRun) -> int:
    """Return the largest k of a projection: the number of features, after the network that follows activations, if any.

    A learner that reads public data can use at most one direction fewer than there are public examples.
    """
    task = base.roles.task
    features = int(np.prod(task.example_shape))
    if task.tail is not None:
        with torch.no_grad():
            features = task.tail()(torch.zeros(1, *task.example_shape)).shape[1]
    return features if base.learner.public == "none" else min(features, len(base.public.x) - 1)


@dataclass(frozen=True)
class LiftedFitRunner:
    """Runs fits with the data, plan and sigma of the private run, but without some protections of its curator."""

    base: PreparedRun

    def scores(self, learner: Learner, kept: Protection, steps: list[SumRecord] | None = None) -> list[float]:
        """Return the score of each seed, and append the first seed's sums to `steps`, if given.

        If a fit draws no random numbers and all seeds have the same data, one fit serves all seeds. Row seeds
        (`Chunk.seeds`) do not count as drawing: a learner that uses them also draws its starting point.
        """
        seeds = self.base.spec.seeds
        first, drew = self._score(learner, kept, seeds[0], steps)
        again = drew or not _has_same_data_for_all_seeds(self.base)
        return [first, *(self._score(learner, kept, seed)[0] if again else first for seed in seeds[1:])]

    def _score(
        self, learner: Learner, kept: Protection, seed: int, steps: list[SumRecord] | None = None
    ) -> tuple[float, bool]:
        base = prepare_seed(self.base, seed)
        task = base.roles.task
        plan = ask_learner_for_plan(learner, base.loaded.who, task, base.loaded.budget)
        noise, initial = torch.Generator().manual_seed(seed), Randomness.research(seed, base.identity)
        given = dataclasses.replace(
            base.make_fit_input(seed), learner=learner, plan=plan, sigma=0.0, randomness=initial
        )
        start = initial.initialisation.get_state()

        def wrap_curator(curator: LedgerCurator) -> Curator:
            exact = make_learner_curator(curator)
            exact = exact if steps is None else record_sums(exact, steps)
            return lift_protection(exact, release_sigmas(plan, base.privacy.sigma), kept, noise)

        scores = predict_isolated(fit_once(given, wrap=wrap_curator), base.test.x)
        sampled = any(release.sample_rate < 1 for release in plan)
        drew = kept.noise or sampled or not initial.initialisation.get_state().equal(start)
        return base.test.scorer.score(scores).value(base.spec.metric), drew
