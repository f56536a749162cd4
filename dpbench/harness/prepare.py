"""What comes before a fit: all of it public, all of it decided before any private row is read for learning."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from dpbench import registry
from dpbench.api import Budget, Learner, PublicData, Task
from dpbench.data.concat import Concat
from dpbench.errors import DataError, SpecError
from dpbench.harness.guarantee import Rng, planned
from dpbench.harness.roles import Roles, Test, seen
from dpbench.harness.shared import Shared
from dpbench.harness.tuning import private, transfer, trials
from dpbench.harness.tuning import space as spaces
from dpbench.records.identity import identity
from dpbench.records.overlap import too_much
from dpbench.records.result import Brought, Privacy
from dpbench.records.search import Selection
from dpbench.records.spec import Spec
from dpbench.registry import Registry
from dpbench.registry.components import Parts, given, resolve, spelled_out, written
from dpbench.support import memory, progress
from dpbench.support.code import DPBENCH, code_of, core
from dpbench.support.device import device_named
from dpbench.support.fields import filled
from dpbench.support.files import canonical_digest
from dpbench.support.guard import guarded
from dpbench.support.phases import Phases


@dataclass(frozen=True)
class Opened:
    """Names are components, examples have their roles; no setting is chosen."""

    spec: Spec  # with everything spelled out
    parts: Parts
    roles: Roles
    public: PublicData  # what the learner may see
    earlier: transfer.Earlier | None  # where settings come from, if from a file
    phases: Phases
    shared: Shared

    @property
    def identity(self) -> str:
        """What a search's research noise is derived from, beside its seed, fold and setting."""
        return identity(self.spec, (), self.roles.digests, brought(self.parts), networks(self.parts))


@dataclass(frozen=True)
class Prepared:
    """One run up to its fits: the settings are chosen, the guarantee is stated."""

    spec: Spec  # with everything spelled out
    parts: Parts  # the learner with its settings
    roles: Roles
    public: PublicData  # what the learner may see
    test: Test
    search: Selection | None  # how the settings were chosen, where that is on record
    privacy: Privacy  # whose plan and sigma every fit is held to
    phases: Phases  # which the fits go on counting
    shared: Shared
    settled: Mapping[str, Any]  # settings that were left to the budget, as `parts.learner` has them

    @property
    def asked(self) -> Learner:
        """The learner with its settings as they were chosen, before those left to the budget were settled."""
        return dataclasses.replace(self.parts.learner, **dict.fromkeys(self.settled))  # type: ignore[type-var]

    @property
    def identity(self) -> str:
        """What research noise is derived from, beside a seed: the fit as it is, however its settings were chosen."""
        search = self.spec.search if self.privacy.repeats else None
        spec = self.spec.model_copy(update={"learner": written(self.parts.learner), "search": search})
        return identity(spec, self.privacy.plan, self.roles.digests, brought(self.parts), networks(self.parts))


def prepare(
    spec: Spec,
    *,
    device: str = "auto",
    plugins: Registry | None = None,
    settings: Path | None = None,
    shared: Shared | None = None,
    for_board: bool = False,
) -> Prepared:
    """Return what all fits of a spec need: components, roles, settings, plan, sigma and the stated guarantee.

    Private rows are behind `roles.private`, unread, unless the spec asks for a search on them (`private-unaccounted`).

    Args:
        spec: what to run.
        device: see `device_named`.
        plugins: what is installed, if it is loaded already.
        settings: an earlier tuning or result to take the learner's settings from, instead of a search.
        shared: what earlier runs have left; see `Shared`.
        for_board: refuse splits that share too many images.

    Raises:
        DpbenchError: one sentence; names, options, data or budget do not fit.
    """
    opened = open_(spec, device=device, plugins=plugins, settings=settings, shared=shared)
    spec, roles, phases = opened.spec, opened.roles, opened.phases
    if for_board:
        with phases("compare"):
            _refuse_overlap(roles)
    with phases("tune"):
        asked, search = _chosen(opened)
    with phases("load"):
        test = roles.test()
    with phases("calibrate"), progress.status("Calibrating sigma"):
        budget = Budget(spec.epsilon, spec.delta, spec.adjacency)
        parts, numbers = _settled(asked, roles.task, budget, spec)
        plan = planned(parts, roles.task, spec)
        rng: Rng = "secure" if spec.secure_rng else "research"
        privacy = opened.shared.state(plan, budget, spec.accountant, rng, private.repeats_of(spec.search))
    return Prepared(spec, parts, roles, opened.public, test, search, privacy, phases, opened.shared, numbers)


def open_(
    spec: Spec,
    *,
    device: str = "auto",
    plugins: Registry | None = None,
    settings: Path | None = None,
    shared: Shared | None = None,
) -> Opened:
    """Build what the spec names, spell everything out, and give every example its role; see `prepare`.

    Raises:
        DpbenchError: one sentence; names, options or data do not fit.
    """
    torch.set_float32_matmul_precision("highest")  # norms are bounded for IEEE float32, not for TF32
    memory.keep_freed()
    phases, shared, there = Phases(), shared or Shared(), device_named(device)
    parts, earlier = resolve(plugins or registry.load(), spec), None
    if settings is not None:
        parts, earlier = _with_settings(settings, parts, spec)
    whole = spelled_out(spec, parts)
    with phases("load"):
        roles, public = _assigned(parts, whole.seeds[0], whole, shared, there)
    return Opened(whole, parts, roles, public, earlier, phases, shared)


def drawn(parts: Parts, seed: int) -> Parts:
    """Return the parts with the data that a fit with this seed sees: of a dataset whose examples are drawn, its own."""
    others = {role: data.drawn(seed) for role in ("dataset", "public_dataset") if (data := getattr(parts, role))}
    return dataclasses.replace(parts, **others)


def of_seed(prepared: Prepared, seed: int) -> Prepared:
    """Return what the fit with this seed needs, where examples are drawn: plan and sigma are those of every seed.

    Raises:
        DataError: another seed's data is of another size or shape: sigma would be of something else.
    """
    parts, spec = prepared.parts, prepared.spec
    if drawn(parts, seed) == drawn(parts, spec.seeds[0]):
        return prepared
    roles, public = _assigned(parts, seed, spec, prepared.shared, prepared.roles.task.device)
    if roles.task != prepared.roles.task:
        raise DataError(
            f"Expected dataset {parts.dataset.name!r} to draw the same sizes for every seed: "
            f"{prepared.roles.task}, got {roles.task} for seed {seed}."
        )
    return dataclasses.replace(prepared, roles=roles, public=public, test=roles.test())


def _assigned(parts: Parts, seed: int, spec: Spec, shared: Shared, device: torch.device) -> tuple[Roles, PublicData]:
    there = drawn(parts, seed)
    roles = shared.roles(there, spec, device)
    if there != parts:  # a digest names the distribution, whichever the draw
        named = canonical_digest(
            [part and part.model_dump(mode="json") for part in (spec.dataset, spec.public_dataset)]
        )
        roles = dataclasses.replace(roles, digests=dict.fromkeys(roles.digests, named))
    public = _visible(roles.public, parts, spec)
    return dataclasses.replace(roles, task=dataclasses.replace(roles.task, public=len(public.x))), public


def brought(parts: Parts) -> dict[str, Brought]:
    """Return who brought each component."""
    return {
        role: Brought(plugin=item.plugin, distribution=item.distribution, version=item.version)
        for role, item in parts.brought.items()
    }


def networks(parts: Parts) -> list[str]:
    """Return name, version and digest of the weights of each extractor that has any, for `identity`."""
    found = parts.extractor
    of = [(one, one.weights()) for one in (found.parts if isinstance(found, Concat) else (found,))]
    return [f"{one.name} {one.version} {weights}" for one, weights in of if weights]


def code(parts: Parts) -> dict[str, str]:
    """Return a digest of the code of each component's plugin, where it has files, and of dpbench itself."""
    made = {**{role: code_of(item.cls) for role, item in parts.brought.items()}, DPBENCH: core()}
    return {role: found for role, found in made.items() if found}


def _with_settings(settings: Path, parts: Parts, spec: Spec) -> tuple[Parts, transfer.Earlier]:
    if spec.search is not None:
        raise SpecError("Settings come from a file or from a search, not from both. Drop --settings or --selection.")
    learner, earlier = transfer.settings_from(settings, parts.learner)
    for name in given(spec.learner, parts.learner).keys() - {""}:
        here, there = getattr(parts.learner, name), getattr(learner, name)
        if here != there:
            raise SpecError(f"Expected {name}={there}, as {settings} has it, or no {name} at all, got {name}={here}.")
    return dataclasses.replace(parts, learner=learner), earlier


def _refuse_overlap(roles: Roles) -> None:
    for pair, said in too_much(roles.compared().overlap, roles.task.size):
        raise SpecError(f"No board takes this run. {pair.capitalize()}: {said}. Run it without --board.")


def _settled(parts: Parts, task: Task, budget: Budget, spec: Spec) -> tuple[Parts, dict[str, Any]]:
    """Return the parts with settings as numbers, and those that were not; a private search settles each of its runs."""
    if private.repeats_of(spec.search) is not None:
        return parts, {}
    learner = guarded(parts.who("learner", "settle"), parts.learner.settle, task, budget)
    return dataclasses.replace(parts, learner=learner), filled(parts.learner, learner)


def _chosen(opened: Opened) -> tuple[Parts, Selection | None]:
    """Return the parts with the learner's settings chosen, and the record of it where there is one."""
    parts, roles, spec = opened.parts, opened.roles, opened.spec
    if opened.earlier is not None:
        return parts, transfer.record(opened.earlier, parts.learner, spec, roles.digests, roles.images)
    if spec.search is None:
        return parts, None
    if spec.search.rule == "private-accounted":
        return parts, private.record(parts.learner, roles, spec)
    search = trials.choose(parts.learner, partial(parts.who, "learner"), roles, spec, opened.identity)
    assert search.chosen is not None
    return dataclasses.replace(parts, learner=spaces.candidate(parts.learner, search.chosen)), search


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
