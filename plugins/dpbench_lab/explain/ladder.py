"""One private run beside the same run with one thing lifted, and then another on top, up to the ceiling.

From the private run upwards: tuning (its settings chosen by public labels, if asked for), noise, clipping, projection
(k = all), too few steps (four times as many). What is left to the ceiling is the rest: what the ceiling's loss, penalty
and features are better at. Each difference is paired by seeds, and together they are the price of privacy, in the
metric that learners aim for.
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
from dpbench.harness import scoring
from dpbench.harness.fit import fit
from dpbench.harness.fitting import fit_once, predict_isolated
from dpbench.harness.loaded import get_origins
from dpbench.harness.plans import ask_plan
from dpbench.harness.prepare import PreparedRun, prepare_seed
from dpbench.harness.session import Session
from dpbench.privacy.core.ledger_curator import LedgerCurator
from dpbench.privacy.core.plan import release_sigmas
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.curator import make_handle
from dpbench.records.result import Interval, SeedResult, interval
from dpbench.records.spec import Spec
from dpbench.registry import Registry
from dpbench.registry.components import write_component
from dpbench.support import progress
from dpbench.support.files import canonical_digest
from dpbench_lab.explain.explanation import Explanation, LearnerExplanation, Lift, Stage
from dpbench_lab.explain.lifting import Protection, Step, lifted, observed, refuse_other_question, signals

MORE_STEPS = 4
LIFTED: tuple[Stage, ...] = ("noise", "clipping", "projection", "steps")


def explain(specs: Sequence[Spec], session: Session, tuned: Sequence[Spec] = ()) -> Explanation:
    """Take the price of privacy apart for several learners on one protocol.

    Covered: nothing. All but the private run itself reads private rows without noise, or with noise that guarantees
    nothing: what comes out is for whoever may read the data.

    Args:
        specs: one for each learner; a finite epsilon.
        session: what is installed, and where fits compute; one of its learners is a reference, the ceiling.
        tuned: the same specs with a search, or none.

    Raises:
        SpecError: a learner that reads no private data, or a budget without a price.
        DpbenchError: as `run` does.
    """
    for spec in specs:
        if session.plugins.find("learner", spec.learner.name).cls.reference:
            raise SpecError(
                f"Expected a private learner with one fit per seed, got {spec.learner.name!r}: it is the baseline "
                "that others are compared with."
            )
    began = time.monotonic()
    prepared = [_checked(session.prepare(spec)) for spec in specs]
    best = [session.prepare(spec) for spec in tuned]
    first = prepared[0]
    seeds = first.spec.seeds[:1] if _alike(first) else first.spec.seeds
    ceiling = session.run(_without_privacy(specs[0], seeds, session.plugins))
    tops = [_own_metric(first, one) for one in ceiling.seeds]
    found = []
    with progress.meter("Lifting", len(specs)) as advance:
        for number, one in enumerate(prepared):
            found.append(_explained(one, best[number] if best else None, tops))
            advance(1)
    return Explanation(
        digest=canonical_digest([spec.digest for spec in (*specs, *tuned)]), specs=tuple(one.spec for one in prepared),
        private=first.roles.task.size, public=len(first.roles.public.x), test=len(first.test.y),
        ceiling=ceiling.spec.learner, score=interval(tops), learners=tuple(found), digests=first.images.digests,
        seconds=time.monotonic() - began, components=get_origins(first.parts),
        provenance=first.loaded.provenance,
    )  # fmt: skip


def _checked(prepared: PreparedRun) -> PreparedRun:
    learner, privacy = prepared.learner, prepared.privacy
    if not privacy.plan or not privacy.sigma or privacy.repeats:
        raise SpecError(
            f"Expected a private learner with one fit per seed, got {learner.name!r} at epsilon "
            f"{prepared.spec.epsilon:g}: it reads no private data, adds no noise, or keeps the best of several fits."
        )
    for one in privacy.releases:
        if not one.gaussian:
            raise refuse_other_question(one.name)
    spec, classes = prepared.spec, prepared.roles.task.classes
    if spec.metric == "auroc" and classes != 2:
        raise SpecError(f"Expected two classes with metric auroc, and {spec.dataset.name!r} has {classes}.")
    return prepared


def _alike(prepared: PreparedRun) -> bool:
    """Return whether every seed has the same data."""
    first, *others = prepared.spec.seeds
    return all(prepared.loaded.is_same_data(seed, first) for seed in others)


def _without_privacy(spec: Spec, seeds: Sequence[int], plugins: Registry) -> Spec:
    references = sorted(name for name, item in plugins.components["learner"].items() if item.cls.reference)
    if not references:
        raise SpecError(
            "Expected a learner that is a reference without privacy, such as non-private, but none is installed."
        )
    changed = {"learner": {"name": references[0]}, "epsilon": "inf", "search": None, "seeds": list(seeds)}
    return Spec(**{**spec.given, **changed, "secure_rng": False})


def _explained(default: PreparedRun, tuned: PreparedRun | None, tops: list[float]) -> LearnerExplanation:
    base = tuned or default
    private = _private(default)
    started = private if tuned is None else _private(tuned)
    world = LiftedFits(base)
    ladder = [_asked(tuned, private, started)]
    scores, kept, learner = started, Protection(True, True), base.learner
    for stage in LIFTED:
        try:
            higher, less, said = _lift(stage, learner, kept, base)
            reached = world.scores(higher, less)
        except (SpecError, ComponentFailed) as error:
            ladder.append(Lift(stage=stage, score=None, points=None, why=str(error)))
            continue
        ladder.append(_lifted(stage, scores, reached, said))
        learner, kept, scores = higher, less, reached
    steps: list[Step] = []
    whole = Protection(True, True)
    paired = world.scores(base.learner, whole, steps)  # whose noise is that of each thing lifted alone
    alone = tuple(_alone(stage, base, world, paired) for stage in LIFTED)
    plan, size, units = base.privacy.releases, base.roles.task.size, bool(base.spec.unit)
    ceiling = tops if len(tops) == len(scores) else tops * len(scores)
    return LearnerExplanation(
        learner=write_component(base.learner), digest=default.spec.digest, epsilon=default.privacy.epsilon,
        private=interval(private), ladder=tuple(ladder), alone=alone,
        rest=_interval([top - one for top, one in zip(ceiling, scores, strict=True)]),
        signals=tuple(signals(steps, plan, release_sigmas(plan, base.privacy.sigma), size, units=units)),
    )  # fmt: skip


def _own_metric(prepared: PreparedRun, seed: SeedResult) -> float:
    return seed.value(prepared.spec.metric)


def _private(prepared: PreparedRun) -> list[float]:
    return [_own_metric(prepared, fit(prepared, seed)) for seed in prepared.spec.seeds]


def _asked(tuned: PreparedRun | None, before: list[float], after: list[float]) -> Lift:
    if tuned is None:
        return Lift(stage="tuning", score=None, points=None, why="The gain of tuning is not measured; add --tune.")
    assert tuned.selection is not None
    return _lifted("tuning", before, after, f"Settings chosen with public labels: {tuned.selection.chosen}.")


def _alone(stage: Stage, base: PreparedRun, world: LiftedFits, started: list[float]) -> Lift:
    try:
        learner, kept, said = _lift(stage, base.learner, Protection(True, True), base)
        return _lifted(stage, started, world.scores(learner, kept), said)
    except (SpecError, ComponentFailed) as error:
        return Lift(stage=stage, score=None, points=None, why=str(error))


def _lifted(stage: Stage, before: Sequence[float], after: Sequence[float], said: str) -> Lift:
    gained = [one - other for one, other in zip(after, before, strict=True)]
    return Lift(stage=stage, score=_interval(after), points=_interval(gained), why=said)


def _interval(values: Sequence[float]) -> Interval:
    """Return mean and interval; fits that draw nothing are the same for all seeds, which says nothing of chance."""
    return interval(values if len(set(values)) > 1 else values[:1])


def _lift(stage: Stage, learner: Learner, kept: Protection, base: PreparedRun) -> tuple[Learner, Protection, str]:
    """Return learner and curator with one thing lifted, and what that was, in words.

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
    wide = _dimensions(base) if name == "k" else MORE_STEPS * settings["steps"]
    if wide <= settings[name]:
        raise SpecError(f"Does not apply: {name} {settings[name]} is the largest possible already.")
    changed: Any = dataclasses.replace(learner, **{name: wide})  # type: ignore[type-var]
    return changed, kept, f"{name} {wide} instead of {settings[name]}."


def _dimensions(base: PreparedRun) -> int:
    """Return how many dimensions a public projection can have: of activations, what their network pools them to."""
    task = base.roles.task
    features = int(np.prod(task.example_shape))
    if task.tail is not None:
        with torch.no_grad():
            features = task.tail()(torch.zeros(1, *task.example_shape)).shape[1]
    return features if base.learner.public == "none" else min(features, len(base.public.x) - 1)


@dataclass(frozen=True)
class LiftedFits:
    """Where lifted fits are made: the private run's data, plan and sigma, through the one way to make a curator."""

    base: PreparedRun

    def scores(self, learner: Learner, kept: Protection, steps: list[Step] | None = None) -> list[float]:
        """Return what each seed scores, and put the first one's sums into `steps`, if given.

        A fit that draws nothing, on data that are not drawn, is the same for all.
        Row seeds, `Chunk.seeds`, do not count as drawing: a learner that uses them draws where it starts as well.
        """
        seeds = self.base.spec.seeds
        first, drew = self._score(learner, kept, seeds[0], steps)
        again = drew or not _alike(self.base)
        return [first, *(self._score(learner, kept, seed)[0] if again else first for seed in seeds[1:])]

    def _score(
        self, learner: Learner, kept: Protection, seed: int, steps: list[Step] | None = None
    ) -> tuple[float, bool]:
        base = prepare_seed(self.base, seed)
        task = base.roles.task
        plan = ask_plan(learner, base.loaded.who, task, base.loaded.budget)
        noise, initial = torch.Generator().manual_seed(seed), Randomness.research(seed, base.identity)
        given = dataclasses.replace(base.fit_input(seed), learner=learner, plan=plan, sigma=0.0, randomness=initial)
        start = initial.initialisation.get_state()

        def wrap(curator: LedgerCurator) -> Curator:
            exact = make_handle(curator)
            exact = exact if steps is None else observed(exact, steps)
            return lifted(exact, release_sigmas(plan, base.privacy.sigma), kept, noise)

        scores = predict_isolated(fit_once(given, wrap=wrap), base.test.x)
        sampled = any(release.sample_rate < 1 for release in plan)
        drew = kept.noise or sampled or not initial.initialisation.get_state().equal(start)
        return scoring.score(scores, base.test.y).value(base.spec.metric), drew
