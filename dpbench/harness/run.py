"""One run, from spec to result, in a straight line; and a search for settings on its own."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dpbench import registry
from dpbench.api import Curator, Learner, Predict, PublicData, Task
from dpbench.errors import SpecError
from dpbench.harness import roles as data
from dpbench.harness import scoring as metrics
from dpbench.harness.guarantee import state
from dpbench.harness.tuning import private, transfer, trials
from dpbench.harness.tuning import space as spaces
from dpbench.harness.tuning.views import own_copy, seen
from dpbench.privacy.curator import LedgerCurator
from dpbench.privacy.plan import Ledger
from dpbench.privacy.randomness import Randomness
from dpbench.records import provenance
from dpbench.records.overlap import Overlap
from dpbench.records.result import Brought, Privacy, Result, SeedResult, TaskFacts, Tuning, summarise
from dpbench.records.search import Selection
from dpbench.records.spec import Spec
from dpbench.registry import Registry
from dpbench.registry.components import Parts, resolve, selection, spelled_out
from dpbench.support import progress
from dpbench.support.guard import guarded
from dpbench.support.phases import Phases


@dataclasses.dataclass(frozen=True)
class Means:
    """Where a run gets what other runs may share with it; a sweep passes means that remember."""

    assign: Callable[[Parts, Spec, torch.device], data.Roles] = data.assign
    state: Callable[[Parts, Task, Spec], Privacy] = state
    provenance: Callable[[str], dict[str, Any]] = provenance.collect
    fit: Callable[[Learner, Spec, Curator, PublicData, torch.Generator], Predict] = (
        lambda learner, _, curator, public, generator: learner.fit(curator, public, generator)
    )


OWN = Means()


def run(
    spec: Spec,
    *,
    device: str = "auto",
    plugins: Registry | None = None,
    settings: Path | None = None,
    means: Means = OWN,
) -> Result:
    """Run one spec: choose settings if it asks for a search, fit once a seed, score each fit on the test split.

    `settings` names an earlier tuning or result to take the learner's settings from, instead of a search. `means` must
    give what those of `OWN` would: a result does not tell which were used.

    Covered: each seed's fit has the epsilon that the result states (see `privacy.curator`, and `privacy.repeats` for a
    private search); seeds are separate runs of one mechanism, so publishing several of them composes.

    Raises:
        DpbenchError: one sentence; nothing is run when names, options, data or budget do not fit.
    """
    phases, place = Phases(), device_named(device)
    parts, spec, found = _resolved(spec, plugins, settings)
    with phases("load"):
        roles = means.assign(parts, spec, place)
        public = _visible(roles.public, parts, spec)
    with phases("tune"):
        parts, search = _settled(parts, roles, spec, found)
    with phases("load"):
        test = roles.test()
    with phases("calibrate"), progress.status("Calibrating sigma"):
        privacy = means.state(parts, roles.task, spec)
    with progress.meter(f"Fitting {parts.learner.name}", len(spec.seeds)) as advance:
        seeds = []
        for seed in spec.seeds:
            with phases("fit"):
                fit = _best_fit if privacy.repeats else _fit
                predict, about = fit(seed, parts, roles, privacy, (spec, public, means))
            with phases("score"):  # the test split meets the predictor only here
                scores = guarded(parts.who("learner", "predict"), metrics.predict_all, predict, test.x, roles.task)
                seeds.append(SeedResult(seed=seed, **about, **metrics.score(scores, test.y)))
            advance(1)
    with phases("compare"):
        overlap = roles.overlap()
    return Result(
        digest=spec.digest, spec=spec, selection=search.rule if search else selection(parts.learner), search=search,
        task=_facts(parts, roles, public, len(test.y), overlap), privacy=privacy, seeds=tuple(seeds),
        metrics=summarise(seeds), seconds=_publishable(phases.seconds, privacy),
        cpu_seconds=_publishable(phases.cpu_seconds, privacy), peak_bytes=phases.peak_bytes,
        components=_brought(parts), provenance=means.provenance(str(place)),
    ).sealed()  # fmt: skip


def tune(spec: Spec, *, device: str = "auto", plugins: Registry | None = None) -> Tuning:
    """Search for settings and stop there: the test split is not read.

    Raises:
        DpbenchError: as `run` does; or the search is a private one, which is part of a run.
    """
    phases, place = Phases(), device_named(device)
    parts, spec, _ = _resolved(spec, plugins)
    if spec.search is None or spec.search.rule == "private-accounted":
        raise SpecError(
            "Expected a search whose outcome is a setting. Private selection keeps the best model itself: ask for it "
            "with dpbench run --selection private-accounted."
        )
    with phases("load"):
        roles = data.assign(parts, spec, place)
        _visible(roles.public, parts, spec)
    with phases("tune"):
        chosen = trials.choose(parts.learner, lambda doing: parts.who("learner", doing), roles, spec)
    return Tuning(
        digest=spec.digest, spec=spec, selection=chosen, digests=roles.digests, seconds=phases.seconds,
        components=_brought(parts), provenance=provenance.collect(str(place)),
    )  # fmt: skip


def _resolved(
    spec: Spec, plugins: Registry | None, settings: Path | None = None
) -> tuple[Parts, Spec, transfer.Found | None]:
    """Return the parts, the spec with everything spelled out, and the file that settings were taken from."""
    torch.set_float32_matmul_precision("highest")  # norms are bounded for IEEE float32, not for TF32
    parts, found = resolve(plugins or registry.load(), spec), None
    if settings is not None:
        if spec.search is not None:
            raise SpecError(
                "Settings come from a file or from a search, not from both. Drop --settings or --selection."
            )
        learner, found = transfer.settings_from(settings, parts.learner)
        for name in spec.learner.options:
            here, there = getattr(parts.learner, name), getattr(learner, name)
            if here != there:
                raise SpecError(
                    f"Expected {name}={there}, as {settings} has it, or no {name} at all, got {name}={here}."
                )
        parts = dataclasses.replace(parts, learner=learner)
    whole = spelled_out(spec, parts)
    if spec.search is not None:
        search = spaces.spelled_out(spec.search, parts.learner, spec.learner.options)
        whole = whole.model_copy(update={"search": search})
    return parts, whole, found


def _settled(
    parts: Parts, roles: data.Roles, spec: Spec, found: transfer.Found | None
) -> tuple[Parts, Selection | None]:
    """Return the parts with the learner's settings chosen, and the record of it where there is one."""
    if found is not None:
        return parts, transfer.record(found, spec, roles.digests)
    if spec.search is None:
        return parts, None
    if spec.search.rule == "private-accounted":
        return parts, private.record(parts.learner, roles, spec)
    search = trials.choose(parts.learner, lambda doing: parts.who("learner", doing), roles, spec)
    assert search.chosen is not None
    return dataclasses.replace(parts, learner=spaces.candidate(parts.learner, search.chosen)), search


def _fit(
    seed: int, parts: Parts, roles: data.Roles, privacy: Privacy, protocol: tuple[Spec, PublicData, Means]
) -> tuple[Predict, dict[str, Any]]:
    """Fit on the private split through a fresh curator."""
    randomness, (spec, shown, means) = Randomness.of(privacy.rng, seed), protocol
    sigma = {release.name: release.sigma for release in privacy.plan}
    revealing = parts.learner.reference and privacy.epsilon == math.inf
    curator = LedgerCurator(roles.private, roles.task, sigma, Ledger(privacy.plan), randomness, revealing)
    given = (parts.learner, spec, curator.door(), own_copy(shown), randomness.initialisation)
    predict = guarded(parts.who("learner", "fit"), means.fit, *given)
    return predict, {"spent": dict(curator.ledger.spent), "commitment": randomness.commitment}


def _best_fit(
    seed: int, parts: Parts, roles: data.Roles, privacy: Privacy, protocol: tuple[Spec, PublicData, Means]
) -> tuple[Predict, dict[str, Any]]:
    """Fit a random number of times and keep the best by public labels."""
    who = lambda doing: parts.who("learner", doing)
    won = private.best_of(parts.learner, who, roles, privacy, (protocol[0], seed))
    return won.predict, {"spent": dict(won.spent), "commitment": won.commitment, "setting": won.setting}


def _publishable(seconds: dict[str, float], privacy: Privacy) -> dict[str, float]:
    """Leave out how long a private search took: it tells how many runs there were, which must stay secret."""
    return {
        phase: value
        for phase, value in seconds.items()
        if not privacy.repeats or phase in {"load", "calibrate", "compare"}
    }


def device_named(name: str) -> torch.device:
    """Return the device that `auto`, `cpu`, `cuda`, `cuda:1` ... names.

    Raises:
        SpecError: it cannot be used on this machine.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise SpecError(f"Device {name!r} cannot be used: {reason} Use --device cpu or auto.") from error


def _visible(public: PublicData, parts: Parts, spec: Spec) -> PublicData:
    """Return the part of the public data that protocol and learner agree on."""
    learner, other = parts.learner, parts.public_dataset
    if other and other.classes != parts.dataset.classes and (spec.search or learner.public == "labelled"):
        raise SpecError(
            f"The public labels of {other.name!r} are of other classes than those of {parts.dataset.name!r}: nothing "
            "can be learned or chosen by them. Use --public-fraction, or a learner and a selection without labels."
        )
    if learner.public == "labelled" and not spec.public_labels:
        raise SpecError(
            f"Learner {learner.name!r} needs labelled public data, which this protocol does not give. "
            "Add --public-labels, and compare it only with results that have them too."
        )
    if learner.public == "labelled" and not len(public.x):
        raise SpecError(f"Learner {learner.name!r} needs public data. Add --public-fraction or --public-dataset.")
    return seen(public, learner)


def _facts(parts: Parts, roles: data.Roles, public: PublicData, test: int, overlap: dict[str, Overlap]) -> TaskFacts:
    return TaskFacts(
        example_shape=roles.task.example_shape, classes=parts.dataset.classes, private=roles.task.size,
        public=len(public.x), test=test, public_labels_seen=public.y is not None, digests=roles.digests,
        licence=parts.dataset.licence, overlap=overlap,
    )  # fmt: skip


def _brought(parts: Parts) -> dict[str, Brought]:
    return {
        role: Brought(plugin=item.plugin, distribution=item.distribution, version=item.version)
        for role, item in parts.brought.items()
    }
