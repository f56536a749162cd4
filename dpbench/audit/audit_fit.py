"""Audit a run: fit once more and record the answers (`audit`). The tests themselves are in the other modules."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpbench.api import Learner
from dpbench.audit.attack import choose_canary_count, draw_canary_membership
from dpbench.audit.auditing_curator import FitEvidence, make_auditing_curator
from dpbench.audit.figures import compute_figures, find_earlier_audits
from dpbench.audit.sensitivity import QuestionReplayer
from dpbench.errors import SpecError
from dpbench.harness.fitting import FinishedFit, fit_once, predict_isolated
from dpbench.harness.loaded import get_component_origins
from dpbench.harness.plans import settle_learner
from dpbench.harness.prepare import PreparedRun, prepare_seed
from dpbench.harness.session import Session
from dpbench.harness.tuning import space as spaces
from dpbench.harness.tuning.folds import Fold, make_folds
from dpbench.harness.tuning.private import MAX_SETTINGS
from dpbench.privacy.core.accounting import accountant
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.witness import AuditWitness, Canaries
from dpbench.privacy.mechanisms.replay import ReplaySetup
from dpbench.privacy.mechanisms.table import find_plan_audits
from dpbench.records.audit import Audit
from dpbench.records.provenance import current_date
from dpbench.records.result import Result
from dpbench.records.spec import Spec
from dpbench.records.stated_plan import PrivacyGuarantee
from dpbench.support import progress

SEARCH_LEFT_OUT = (
    "how many runs a private search has and how it chooses: what was audited is one of its runs, with a setting drawn "
    "from its space, and epsilon is that of one run"
)
CHOICES_LEFT_OUT = (
    "who is in the data, guessed from choices: planted examples lose the same by every candidate; instead, the law of "
    "each choice is compared with that of its neighbours"
)
SEED_DISTANCE = 2**20  # between the other seeds that one audit draws from: two audits of a result share none of them
NO_SECURE_RNG = (
    "An audit subtracts the noise from the answers, and --secure-rng leaves no way to compute that noise again. Audit "
    "the same spec without --secure-rng: only the source of the noise differs."
)
SAMPLING_LEFT_OUT = "the Gaussian mechanism's own trade-off: samples are drawn, and scores of canaries are not normal"


def audit(
    spec_or_result: Spec | Result, session: Session, *, seed: int | None = None, canaries: int | None = None,
    before: Sequence[Audit] = (),
) -> Audit:  # fmt: skip
    """Fit a run once more with canaries, observe the sums before noise, and test the run's privacy statement.

    For a result, the fit uses the result's plan, sigma and (by default) first seed, so it repeats the fit whose scores
    the result states: the learner receives the same answers to the last bit. A spec is prepared as by `dpbench run`.

    Args:
        spec_or_result: a result, or the spec of a run.
        session: the installed plugins, and the device that the fit uses.
        seed: the seed of the fit; by default the first seed of the result or spec.
        canaries: number of examples to plant; by default as many as fit into the time of a run.
        before: earlier audits, whose evidence counts if they are of the same run.

    Raises:
        NotReproducible: the result comes from other code, data or plugins than those on this machine.
        SpecError: there is nothing to audit: secure randomness, no noise, or a plan without a question.
        DpbenchError: the run is refused.
    """
    spec = spec_or_result if isinstance(spec_or_result, Spec) else spec_or_result.spec
    seed = spec.seeds[0] if seed is None else seed
    if isinstance(spec_or_result, Result):
        _check_run_is_auditable(spec_or_result.privacy, spec.learner.name)
        prepared = session.rerun(spec_or_result, seed)
    else:
        _check_randomness(spec)
        prepared = session.prepare(spec)
        _check_run_is_auditable(prepared.privacy, spec.learner.name)
    return audit_prepared_run(
        prepared, seed, canaries, spec_or_result if isinstance(spec_or_result, Result) else None, before
    )


def audit_prepared_run(
    prepared: PreparedRun, seed: int, canaries: int | None = None, result: Result | None = None,
    before: Sequence[Audit] = (),
) -> Audit:  # fmt: skip
    """Audit one fit of a run that is already prepared; see `audit`.

    Raises:
        SpecError: the learner asks no question, or earlier audits include the seed.
        DpbenchError: the fit is refused.
    """
    prepared = prepare_seed(prepared, seed)
    run: dict[str, Any] = {
        "digest": prepared.spec.digest if result is None else result.digest,
        "content": result.evidence_digest if result else None,
        "mechanism": prepared.privacy.mechanism, "components": get_component_origins(prepared.parts),
    }  # fmt: skip
    same_run = [audit for audit in before if all(getattr(audit, name) == value for name, value in run.items())]
    earlier = find_earlier_audits(same_run, seed)
    privacy, begin = prepared.privacy, time.perf_counter()
    plan = privacy.releases
    epsilon = accountant.epsilon(plan, privacy.sigma, privacy.delta) if privacy.repeats else privacy.epsilon
    generator = _make_audit_generator(prepared.identity, seed)
    count = choose_canary_count(sum(use.steps for use in plan), epsilon) if canaries is None else canaries
    member = draw_canary_membership(count, generator)
    replays = QuestionReplayer(prepared.roles.task, generator, prepared.roles.private.units is not None)
    other = lambda number: Randomness.research(seed + (1 + number) * SEED_DISTANCE, prepared.identity)
    noise = {use.name: privacy.sigma * use.relative_noise for use in plan}  # as epsilon has it, whoever else says what
    evidence = FitEvidence(plan, noise, member, replays, generator, other)
    with progress.show_status(f"Auditing {prepared.learner.name}"):
        fitted = _fit_with_evidence(prepared, seed, evidence, Canaries(member))
        replays.probe()
        for probe in {own.probe: None for use in plan for own in find_plan_audits(type(use)) if own.probe}:
            replays.run(probe, ReplaySetup(replays.make_random_rows(), replays.task, plan[0], 1.0, generator))
    if not any(evidence.asked.values()):
        raise SpecError(
            f"Learner {prepared.learner.name!r} planned questions but asked none, so there is nothing to audit."
        )
    found = (
        replays.summarise(),
        evidence.noise.summarise(),
        evidence.scores.summarise() if evidence.scores.has_scores else None,
    )
    own = evidence.own.summarise() if evidence.own is not None else None
    left_out = [SEARCH_LEFT_OUT] * bool(privacy.repeats) + [CHOICES_LEFT_OUT] * (not all(use.gaussian for use in plan))
    left_out += [SAMPLING_LEFT_OUT] * any(use.sample_rate < 1 for use in plan)
    same = _matches_result(prepared, result, seed, fitted) if result and not privacy.repeats else None
    return Audit(
        **run, spec=prepared.spec if result is None else result.spec, seed=seed, repeats=same, epsilon=epsilon,
        delta=privacy.delta, sigma=privacy.sigma, plan=privacy.plan, earlier=earlier,
        sensitivity=found[0], noise=found[1], attack=found[2],
        own=own, left_out=tuple(left_out),
        figures=compute_figures(epsilon, privacy.delta, *found, own, earlier=earlier),
        seconds={**prepared.loaded.phases.seconds, "audit": time.perf_counter() - begin},
        provenance={**prepared.loaded.provenance, "date": current_date()},
    )  # fmt: skip


def _fit_with_evidence(prepared: PreparedRun, seed: int, evidence: FitEvidence, canaries: Canaries) -> FinishedFit:
    """Fit as in a run, and record the evidence; for a private search, fit one randomly drawn run of the search."""
    given = prepared.make_fit_input(seed)
    if prepared.privacy.repeats:
        fold, learner = _draw_search_candidate(prepared, seed)
        given = dataclasses.replace(given, learner=learner, rows=fold.rows, public=fold.public, memo=None)
    return fit_once(
        given,
        wrap=lambda curator: make_auditing_curator(curator, evidence),
        witness=AuditWitness(evidence.record_sums, canaries),
    )


def _draw_search_candidate(prepared: PreparedRun, seed: int) -> tuple[Fold, Learner]:
    loaded, learner = prepared.loaded, prepared.learner
    search = loaded.resolved.search
    if search is None:
        raise ValueError("The guarantee covers a search, but the run has none.")
    wanted, _ = spaces.list_settings(search.space, MAX_SETTINGS, search.seed)
    setting = wanted[random.Random(f"{prepared.identity} {seed}").randrange(len(wanted))]
    fold = make_folds(prepared.roles, learner, search)[0]
    return fold, settle_learner(spaces.apply_setting(learner, setting), loaded.who, prepared.roles.task, loaded.budget)


def _matches_result(prepared: PreparedRun, result: Result, seed: int, fitted: FinishedFit) -> bool | None:
    """Return whether a fit's predictions equal the result's for this seed; None if the result lacks the seed."""
    stated = [entry.predictions for entry in result.seeds if entry.seed == seed]
    if not stated:
        return None
    found = prepared.test.scorer.score(predict_isolated(fitted, prepared.test.x))
    return found.predictions == stated[0]


def _check_randomness(spec: Spec) -> None:
    if spec.secure_rng:
        raise SpecError(NO_SECURE_RNG)


def _check_run_is_auditable(privacy: PrivacyGuarantee, learner: str) -> None:
    if privacy.rng == "secure":
        raise SpecError(NO_SECURE_RNG)
    if not privacy.plan:
        raise SpecError(
            f"Learner {learner!r} asks nothing of the private data: its epsilon is 0, and there is nothing to audit."
        )
    if not privacy.sigma or math.isinf(privacy.epsilon):
        raise SpecError("A run at epsilon = inf adds no noise and states no guarantee: there is nothing to audit.")


def _make_audit_generator(identity: str, seed: int) -> np.random.Generator:
    """Return the generator for canaries and replays, which is independent of the fit's random draws."""
    digest = hashlib.sha256(f"audit {identity} {seed}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16]))
