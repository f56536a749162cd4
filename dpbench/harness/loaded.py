"""Load a run: build its components and assign a role to every example, before settings are chosen."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from dpbench.api import Budget
from dpbench.data.concat import Concat
from dpbench.errors import SpecError
from dpbench.harness.delta import check_delta, compute_default_delta
from dpbench.harness.memo import SharedRunCache
from dpbench.harness.mirrored import load_mirrored_features
from dpbench.harness.plans import Describer
from dpbench.harness.roles import ExamplesByRole, add_learner_facts_to_task
from dpbench.harness.sharing import Sharing, refuse_forbidden_overlap
from dpbench.harness.source import DataSource, draw_datasets_for_seed
from dpbench.harness.split_images import SplitImages
from dpbench.harness.tuning import transfer
from dpbench.harness.tuning.trials import TrialRunner
from dpbench.records.identity import compute_fit_identity
from dpbench.records.protocol import Component
from dpbench.records.result import ComponentOrigin
from dpbench.records.search import ResolvedSearch
from dpbench.records.spec import Spec
from dpbench.records.stated_plan import PlannedQuestion
from dpbench.registry.components import BuiltComponents, ResolvedSpec
from dpbench.support import malloc
from dpbench.support.code import DPBENCH, code_digest, core_digest
from dpbench.support.phases import PhaseProfiler


@dataclass(frozen=True)
class LoadedRun:
    """A run with built components and a role for every example, before settings are chosen."""

    memo: SharedRunCache  # what it may share with other runs of the process
    resolved: ResolvedSpec
    earlier: transfer.SettingsRecord | None  # where settings come from, if from a file
    roles: ExamplesByRole
    images: SplitImages  # of the same
    phases: PhaseProfiler  # which all that follows goes on counting
    seed: int  # whose examples these are
    sharing: Sharing = "none"  # which splits are accepted, of every seed
    noise_origins: Mapping[str, ComponentOrigin] | None = None  # those of an earlier result, in a re-run of it
    noise_dataset: Component | None = None  # that of an earlier result, if a re-run has the same data elsewhere

    @property
    def spec(self) -> Spec:
        """The spec of the run, with every option spelled out."""
        return self.resolved.spec

    @property
    def parts(self) -> BuiltComponents:
        """The components; the learner has the settings that the user asked for."""
        return self.resolved.parts

    @property
    def budget(self) -> Budget:
        """The target guarantee."""
        return self.spec.budget

    @property
    def threads(self) -> int:
        """The number of threads that learners fit with."""
        return self.memo.get_thread_count(self.roles.task)

    @property
    def provenance(self) -> dict[str, Any]:
        """The versions, commit and machine of this process, the threads of a fit, and the feature engines."""
        return {**self.memo.provenance(self.roles.task), "engines": self.images.engines}

    @property
    def who(self) -> Describer:
        """The function that describes a call of the learner in error messages."""
        return partial(self.parts.describe_call, "learner")

    def identity(self, spec: Spec, plan: Sequence[PlannedQuestion] = ()) -> str:
        """Return the identity of a fit with this spec and plan. Research noise is derived from the identity and a seed.

        A search has no plan of its own; its noise is also derived from its seed, fold and setting.
        """
        origins = self.noise_origins or get_component_origins(self.parts)
        if self.noise_dataset is not None:
            spec = spec.model_copy(update={"dataset": self.noise_dataset})
        return compute_fit_identity(spec, plan, self.images.identity, origins, list_extractor_networks(self.parts))

    def make_trial_runner(self, search: ResolvedSearch) -> TrialRunner:
        """Return the runner that tries the settings of a search on this run's data."""
        return TrialRunner(
            self.parts.learner, self.who, self.roles, self.budget, self.spec.accountant, search,
            self.identity(self.spec),
        )  # fmt: skip

    def has_same_data(self, seed: int, other_seed: int) -> bool:
        """Return whether fits with these two seeds use the same data."""
        return draw_datasets_for_seed(self.parts, seed) == draw_datasets_for_seed(self.parts, other_seed)

    def draw(self, seed: int) -> LoadedRun:
        """Return this run with the examples for this seed; a dataset that draws no examples gives the same run.

        Raises:
            DpbenchError: the data are malformed or not on this machine, or splits share images that they may not.
        """
        if self.has_same_data(seed, self.seed):
            return self
        roles, images = _load_examples(self.resolved, seed, self.memo)
        with self.phases("compare"):
            refuse_forbidden_overlap(images, self.sharing)
        return dataclasses.replace(self, roles=roles, images=images, seed=seed)


def load_run(
    resolved: ResolvedSpec,
    memo: SharedRunCache,
    earlier: transfer.SettingsRecord | None = None,
    sharing: Sharing = "none",
) -> LoadedRun:
    """Assign a role to every example, and choose delta if the spec leaves it open.

    Args:
        resolved: the run, with settings from `earlier` if given.
        memo: the work that runs of this process share.
        earlier: the tuning or result that settings come from.
        sharing: which overlap between splits is accepted, unless the spec allows any.

    Raises:
        DpbenchError: names, options or data do not fit together.
    """
    torch.set_float32_matmul_precision("highest")  # norms are bounded for IEEE float32, not for TF32
    malloc.keep_freed_memory()
    phases = PhaseProfiler()
    if memo.threads is not None:
        torch.set_num_threads(memo.threads)  # of extraction; some libraries count by the thread that asks
    with phases("load"):
        roles, images = _load_examples(resolved, resolved.spec.seeds[0], memo)
        if "delta" not in resolved.spec.model_fields_set:
            resolved = resolved.with_delta(compute_default_delta(images.private_count_with_copies))
        check_delta(resolved.spec.budget, roles.task, for_board=sharing == "board")
        _check_public_labels(resolved, len(roles.public.x))
    with phases("compare"):
        sharing = "any" if resolved.spec.allow_overlap else sharing
        refuse_forbidden_overlap(images, sharing)
    return LoadedRun(memo, resolved, earlier, roles, images, phases, resolved.spec.seeds[0], sharing)


def _load_examples(resolved: ResolvedSpec, seed: int, memo: SharedRunCache) -> tuple[ExamplesByRole, SplitImages]:
    spec, learner = resolved.spec, resolved.parts.learner
    source = DataSource.from_components(resolved.parts, seed, spec.split_rule, memo.device)
    roles, images = memo.examples(source, spec.budget)
    if learner.reads_mirrored() and learner.public != "none":
        public = dataclasses.replace(roles.public, mirrored=load_mirrored_features(images))
        roles = dataclasses.replace(roles, public=public)
    return add_learner_facts_to_task(roles, learner, spec.metric), images


def get_component_origins(parts: BuiltComponents) -> dict[str, ComponentOrigin]:
    """Return the plugin, distribution and version of each component, by role."""
    return {
        role: ComponentOrigin(plugin=item.plugin, distribution=item.distribution, version=item.version)
        for role, item in parts.brought.items()
    }


def list_extractor_networks(parts: BuiltComponents) -> list[str]:
    """Return the name, version and weights digest of each extractor that has weights, for `identity`."""
    found = parts.extractor
    of = [(part, part.weights()) for part in (found.parts if isinstance(found, Concat) else (found,))]
    return [f"{extractor.name} {extractor.version} {weights}" for extractor, weights in of if weights]


def digest_code(parts: BuiltComponents) -> dict[str, str]:
    """Return digests of the code of dpbench itself and of each component's plugin, if the plugin has files."""
    made = {**{role: code_digest(item.cls) for role, item in parts.brought.items()}, DPBENCH: core_digest()}
    return {role: found for role, found in made.items() if found}


def _check_public_labels(resolved: ResolvedSpec, public: int) -> None:
    """Refuse a learner or search that needs public labels if the run allows none or the public classes differ."""
    learner, dataset, other = resolved.parts.learner, resolved.parts.dataset, resolved.parts.public_dataset
    if other and other.classes != dataset.classes and (resolved.search or learner.public == "labelled"):
        raise SpecError(
            f"The classes of public dataset {other.name!r} differ from those of {dataset.name!r}, so its labels cannot "
            "be used to train or to choose settings. Use --public-fraction, or a learner and a selection that need no "
            "public labels."
        )
    if learner.public == "labelled" and not resolved.spec.public_labels:
        raise SpecError(
            f"Learner {learner.name!r} needs labelled public data, but this run does not allow public labels. "
            "Add --public-labels, and compare it only with other results that use them."
        )
    if learner.public == "labelled" and not public:
        raise SpecError(f"Learner {learner.name!r} needs public data. Add --public-fraction or --public-dataset.")
