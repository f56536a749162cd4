"""What comes before a fit: all of it public, all of it decided before any private row is read for learning."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from dpbench import registry
from dpbench.api import Learner, PublicData
from dpbench.data.concat import Concat
from dpbench.data.groups import count_groups
from dpbench.errors import DataError, SpecError
from dpbench.harness.delta import check_delta, default_delta
from dpbench.harness.fitting import FitInput
from dpbench.harness.guarantee import Rng
from dpbench.harness.plans import Who, common_plan, settle
from dpbench.harness.roles import Roles, Sharing, TestSplit, check_sharing, select_public
from dpbench.harness.shared import SharedWork
from dpbench.harness.source import DataSource
from dpbench.harness.tuning import private, transfer
from dpbench.harness.tuning import space as spaces
from dpbench.harness.tuning.trials import Bench
from dpbench.privacy.core.randomness import Randomness
from dpbench.records.identity import identity
from dpbench.records.result import ComponentOrigin
from dpbench.records.search import ResolvedSearch, Selection, SelectionRule
from dpbench.records.spec import Spec
from dpbench.records.stated_plan import Privacy, left_out
from dpbench.registry import Registry
from dpbench.registry.components import Parts, ResolvedSpec, resolve, selection, write_component
from dpbench.support import malloc, progress
from dpbench.support.code import DPBENCH, code_of, core
from dpbench.support.device import find_device
from dpbench.support.fields import filled_fields
from dpbench.support.files import canonical_digest
from dpbench.support.phases import Phases
from dpbench.support.threads import computing


@dataclass(frozen=True)
class LoadedRun:
    """A run whose components are built and whose examples have their roles; no setting is chosen."""

    resolved: ResolvedSpec
    earlier: transfer.Earlier | None  # where settings come from, if from a file
    source: DataSource
    roles: Roles  # of the first seed
    threads: int  # with which learners fit
    phases: Phases

    @property
    def provenance(self) -> dict[str, Any]:
        """Versions, commit and machine of this process, and the threads of a fit."""
        return self.source.shared.provenance(self.source.device, self.threads)

    @property
    def who(self) -> Who:
        """Names the learner and what it is asked to do, for messages about its failures."""
        return partial(self.resolved.parts.who, "learner")

    @property
    def identity(self) -> str:
        """What a search's research noise is derived from, beside its seed, fold and setting."""
        parts = self.resolved.parts
        return identity(self.resolved.spec, (), self.roles.identity, origins_of(parts), networks(parts))

    def bench(self, search: ResolvedSearch) -> Bench:
        """Return where the settings of a search are tried."""
        parts, spec = self.resolved.parts, self.resolved.spec
        return Bench(parts.learner, self.who, self.roles, spec.budget, spec.accountant, search, self.identity)


@dataclass(frozen=True)
class PreparedRun:
    """One run up to its fits: the settings are chosen, the guarantee is stated."""

    spec: Spec  # with everything spelled out
    parts: Parts  # the learner with its settings
    search: ResolvedSearch | None
    source: DataSource
    roles: Roles  # of the first seed, or of that of `prepare_seed`
    test: TestSplit
    selection: Selection | None  # how the settings were chosen, where that is on record
    privacy: Privacy  # whose plan and sigma every fit is held to
    threads: int  # with which every fit computes
    phases: Phases  # which the fits go on counting
    asked: Learner  # with its settings as they were chosen, before those left to the budget were settled

    @property
    def public(self) -> PublicData:
        """What the learner may see of the public data."""
        return select_public(self.roles.public, self.parts.learner)

    @property
    def test_groups(self) -> dict[str, dict[str, str]] | None:
        """The test images by group and class, as a result keeps them; None where the test split has no groups."""
        test = self.test
        return count_groups(test.groups, test.y, self.roles.task.classes) if test.groups else None

    @property
    def provenance(self) -> dict[str, Any]:
        """Versions, commit and machine of this process, and the threads of a fit."""
        return self.shared.provenance(self.source.device, self.threads)

    @property
    def shared(self) -> SharedWork:
        """What several runs share."""
        return self.source.shared

    def fit_input(self, seed: int) -> FitInput:
        """Return what the fit with this seed is made from: its rows, and the plan and sigma of every seed.

        Where examples are drawn anew for each seed, the run is that of `prepare_seed`.
        """
        roles, privacy = self.roles, self.privacy
        randomness = Randomness.of(privacy.rng, seed, self.identity)
        memo = partial(self.shared.features, self.spec.data_key)
        return FitInput(
            self.parts.learner, self.who, roles.private, roles.task, self.public, privacy.releases, privacy.sigma,
            randomness, memo,
        )  # fmt: skip

    @property
    def who(self) -> Who:
        """Names the learner and what it is asked to do, for messages about its failures."""
        return partial(self.parts.who, "learner")

    @property
    def rule(self) -> SelectionRule:
        """How the settings were chosen."""
        if self.selection is not None:
            return self.selection.rule
        return selection(self.asked)

    @property
    def settled(self) -> dict[str, Any]:
        """Settings that were left to the budget, as `parts.learner` has them."""
        return filled_fields(self.asked, self.parts.learner)

    @property
    def code_identity(self) -> str:
        """What a seed of this run is, noise and code: of another it is not the same seed."""
        return canonical_digest([self.identity, code(self.parts), self.privacy.rng])

    @property
    def identity(self) -> str:
        """What research noise is derived from, beside a seed: the fit as it is, however its settings were chosen."""
        search = self.spec.search if self.privacy.repeats else None
        spec = self.spec.model_copy(update={"learner": write_component(self.parts.learner), "search": search})
        return identity(spec, self.privacy.plan, self.roles.identity, origins_of(self.parts), networks(self.parts))


def prepare(
    spec: Spec | ResolvedSpec,
    *,
    device: str = "auto",
    plugins: Registry | None = None,
    settings: Path | None = None,
    shared: SharedWork | None = None,
    sharing: Sharing = "none",
) -> PreparedRun:
    """Return what all fits of a spec need: components, roles, settings, plan, sigma and the stated guarantee.

    Private rows are behind `roles.private`, unread, unless the spec asks for a search on them (`private-unaccounted`).

    Args:
        spec: what to run; one that is resolved already is not resolved again.
        device: see `find_device`.
        plugins: what is installed, if it is loaded already.
        settings: an earlier tuning or result to take the learner's settings from, instead of a search.
        shared: what earlier runs have left; see `SharedWork`.
        sharing: which splits are taken, unless the spec allows any.

    Raises:
        DpbenchError: one sentence; names, options, data or budget do not fit.
    """
    opened = load_run(spec, device=device, plugins=plugins, settings=settings, shared=shared, sharing=sharing)
    asked, source, roles, phases = opened.resolved, opened.source, opened.roles, opened.phases
    with phases("tune"), computing(opened.threads):
        learner, chosen = _choose(opened)
    with phases("load"):
        test = roles.test()
    with phases("calibrate"), progress.status("Calibrating sigma"):
        budget, accountant, task = source.budget, asked.spec.accountant, roles.task
        repeats = private.repeats_of(asked.search)
        if asked.search is not None and repeats is not None:
            tried = private.candidates(learner, accountant, asked.search)
        else:
            tried = [learner]
        settled = [settle(one, opened.who, task, budget) for one in tried]  # every learner that a fit may use
        plan = common_plan(settled, opened.who, task, budget)
        rng: Rng = "secure" if asked.spec.secure_rng else "research"
        privacy = source.shared.state(plan, budget, accountant, rng, repeats)
        if roles.left_out:
            privacy = privacy.model_copy(update={"not_covered": (*privacy.not_covered, left_out(roles.left_out))})
    own = settled[0] if repeats is None else learner  # each run of a private search settles a setting of its own
    parts = dataclasses.replace(asked.parts, learner=own)
    return PreparedRun(
        asked.spec, parts, asked.search, source, roles, test, chosen, privacy, opened.threads, phases, learner
    )  # fmt: skip


def load_run(
    spec: Spec | ResolvedSpec,
    *,
    device: str = "auto",
    plugins: Registry | None = None,
    settings: Path | None = None,
    shared: SharedWork | None = None,
    sharing: Sharing = "none",
) -> LoadedRun:
    """Build what the spec names, spell everything out, and give every example its role; see `prepare`.

    Raises:
        DpbenchError: one sentence; names, options or data do not fit.
    """
    torch.set_float32_matmul_precision("highest")  # norms are bounded for IEEE float32, not for TF32
    malloc.keep_freed()
    phases, there = Phases(), find_device(device)
    resolved = spec if isinstance(spec, ResolvedSpec) else resolve(spec, plugins or registry.load())
    earlier = None
    if settings is not None:
        resolved, earlier = _with_settings(settings, resolved)
    asked = resolved.spec
    shared = shared or SharedWork()
    if shared.threads is not None:
        torch.set_num_threads(shared.threads)  # of extraction; some libraries count by the thread that asks
    source = DataSource(resolved.parts, asked.split_rule, asked.budget, there, shared, asked.metric)
    with phases("load"):
        roles = source.roles(asked.seeds[0])
        if "delta" not in asked.model_fields_set:
            resolved = resolved.with_delta(default_delta(roles.dealt))
            asked, source = resolved.spec, dataclasses.replace(source, budget=resolved.spec.budget)
        check_delta(source.budget, roles.task, for_board=sharing == "board")
        _check_labels(resolved, len(roles.public.x))
    with phases("compare"):
        check_sharing(roles, "any" if asked.allow_overlap else sharing)
    return LoadedRun(resolved, earlier, source, roles, source.shared.threads_for(roles.task), phases)


def prepare_seed(prepared: PreparedRun, seed: int) -> PreparedRun:
    """Return what the fit with this seed needs, where examples are drawn: plan and sigma are those of every seed.

    Raises:
        DataError: another seed's data is of another size or shape: sigma would be of something else.
    """
    source = prepared.source
    if source.alike(seed, prepared.spec.seeds[0]):
        return prepared
    roles = source.roles(seed)
    if (roles.task, roles.left_out) != (prepared.roles.task, prepared.roles.left_out):
        raise DataError(
            f"Expected dataset {prepared.parts.dataset.name!r} to draw the same sizes for every seed: "
            f"{prepared.roles.task}, got {roles.task} for seed {seed}."
        )
    drawn = dataclasses.replace(prepared, roles=roles, test=roles.test())
    if drawn.test_groups != prepared.test_groups:
        raise DataError(
            f"Expected dataset {prepared.parts.dataset.name!r} to draw as many test images of each group and class for "
            f"every seed, got other counts for seed {seed}."
        )
    return drawn


def origins_of(parts: Parts) -> dict[str, ComponentOrigin]:
    """Return who brought each component."""
    return {
        role: ComponentOrigin(plugin=item.plugin, distribution=item.distribution, version=item.version)
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


def _with_settings(settings: Path, resolved: ResolvedSpec) -> tuple[ResolvedSpec, transfer.Earlier]:
    if resolved.search is not None:
        raise SpecError("Settings can come from a file or from a search, but not both. Drop --settings or --selection.")
    asked = resolved.parts.learner
    learner, earlier = transfer.settings_from(settings, asked)
    for name in resolved.named.keys() - {""}:
        here, there = getattr(asked, name), getattr(learner, name)
        if here != there:
            raise SpecError(f"Expected {name}={there}, as in {settings}, or no {name} at all, got {name}={here}.")
    return resolved.with_learner(learner), earlier


def _choose(opened: LoadedRun) -> tuple[Learner, Selection | None]:
    """Return the learner with its settings chosen, and the record of it where there is one."""
    asked, roles = opened.resolved, opened.roles
    learner = asked.parts.learner
    if opened.earlier is not None:
        return learner, transfer.selection_record(opened.earlier, asked.rule, asked.spec, roles.digests, roles.images)
    if asked.search is None:
        return learner, None
    if asked.search.rule == "private-accounted":
        return learner, private.selection_record(learner, roles, asked.search)
    found = opened.bench(asked.search).choose()
    return spaces.candidate(learner, found.chosen or {}), found


def _check_labels(asked: ResolvedSpec, public: int) -> None:
    """Refuse a learner or a search that needs public labels where the protocol gives none, or none of its classes."""
    learner, dataset, other = asked.parts.learner, asked.parts.dataset, asked.parts.public_dataset
    if other and other.classes != dataset.classes and (asked.search or learner.public == "labelled"):
        raise SpecError(
            f"The classes of public dataset {other.name!r} differ from those of {dataset.name!r}, so its labels cannot "
            "be used to train or to choose settings. Use --public-fraction, or a learner and a selection that need no "
            "public labels."
        )
    if learner.public == "labelled" and not asked.spec.public_labels:
        raise SpecError(
            f"Learner {learner.name!r} needs labelled public data, but this run does not allow public labels. "
            "Add --public-labels, and compare it only with other results that use them."
        )
    if learner.public == "labelled" and not public:
        raise SpecError(f"Learner {learner.name!r} needs public data. Add --public-fraction or --public-dataset.")
