"""Prepare a run. Every decision is made from public facts, before a private row is read for learning."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any

from dpbench.api import Learner, PublicData
from dpbench.errors import DataError
from dpbench.harness.fitting import FitInput
from dpbench.harness.guarantee import Rng
from dpbench.harness.held_copies import refuse_held_copies
from dpbench.harness.loaded import LoadedRun, digest_code
from dpbench.harness.plans import find_common_plan, settle_learner
from dpbench.harness.roles import ExamplesByRole, select_declared_public_data
from dpbench.harness.split_images import SplitImages, TestSplit
from dpbench.harness.tuning import private, transfer
from dpbench.harness.tuning import space as spaces
from dpbench.privacy.core.randomness import Randomness
from dpbench.records.search import Selection, SelectionRule
from dpbench.records.spec import Spec
from dpbench.records.stated_plan import PrivacyGuarantee
from dpbench.registry.components import BuiltComponents, find_selection_rule, make_component_record
from dpbench.support import progress
from dpbench.support.fields import list_filled_in_fields
from dpbench.support.files import canonical_digest
from dpbench.support.threads import limit_threads


@dataclass(frozen=True)
class PreparedRun:
    """A run before its fits, with chosen settings and a stated guarantee."""

    loaded: LoadedRun
    asked: Learner  # with its settings as they were chosen, before those left to the budget were settled
    learner: Learner  # as it fits
    selection: Selection | None  # how the settings were chosen, where that is on record
    privacy: PrivacyGuarantee  # whose plan and sigma every fit is held to

    @property
    def spec(self) -> Spec:
        """The spec of the run, with every option spelled out."""
        return self.loaded.spec

    @property
    def parts(self) -> BuiltComponents:
        """The components; the learner has the settings that it fits with."""
        return dataclasses.replace(self.loaded.parts, learner=self.learner)

    @property
    def roles(self) -> ExamplesByRole:
        """The examples of the first seed, or of the seed given to `prepare_seed`."""
        return self.loaded.roles

    @property
    def images(self) -> SplitImages:
        """The images of the examples in `roles`."""
        return self.loaded.images

    @property
    def test(self) -> TestSplit:
        """The test split."""
        return self.images.load_test_split()

    @property
    def public(self) -> PublicData:
        """The public data that the learner may see."""
        return select_declared_public_data(self.roles.public, self.learner)

    @property
    def test_groups(self) -> dict[str, dict[str, str]] | None:
        """The number of test images by group and class, as in a result; None if the test split has no groups."""
        return self.test.scorer.count_groups()

    @property
    def rule(self) -> SelectionRule:
        """The rule that chose the settings."""
        if self.selection is not None:
            return self.selection.rule
        return find_selection_rule(self.asked)

    @property
    def settled(self) -> dict[str, Any]:
        """The values that the learner chose for its open settings."""
        return list_filled_in_fields(self.asked, self.learner)

    @property
    def identity(self) -> str:
        """The identity of the fit, which does not depend on how its settings were chosen.

        Research noise is derived from this identity and a seed.
        """
        search = self.spec.search if self.privacy.repeats else None
        spec = self.spec.model_copy(update={"learner": make_component_record(self.learner), "search": search})
        return self.loaded.identity(spec, self.privacy.plan)

    @property
    def code_identity(self) -> str:
        """The identity of the fit, its code and its kind of noise; stored seeds are reused only if it matches."""
        return canonical_digest([self.identity, digest_code(self.parts), self.privacy.rng])

    def make_fit_input(self, seed: int) -> FitInput:
        """Return the inputs of the fit with this seed: its rows, and the plan and sigma that all seeds share.

        If a dataset draws examples for each seed, call this on the run that `prepare_seed` returns.
        """
        loaded, roles, privacy = self.loaded, self.roles, self.privacy
        randomness = Randomness.for_fit(privacy.rng, seed, self.identity)
        memo = partial(loaded.memo.features, self.spec.data_key)
        return FitInput(
            self.learner, loaded.who, roles.private, roles.task, self.public, privacy.releases, privacy.sigma,
            randomness, memo, roles.files,
        )  # fmt: skip


def prepare_run(loaded: LoadedRun) -> PreparedRun:
    """Choose settings, state the guarantee, and extract the test split.

    No learner reads private rows, unless the spec asks for a search on them (`private-unaccounted`).

    Raises:
        DpbenchError: names, options, data or budget do not fit together.
    """
    resolved, roles, phases = loaded.resolved, loaded.roles, loaded.phases
    with phases("compare"):
        refuse_held_copies(resolved.parts.learner, roles.private, loaded.images)
    with phases("tune"), limit_threads(loaded.threads):
        learner, chosen = _choose_settings(loaded)
    with phases("load"):
        loaded.images.load_test_split()
    with phases("calibrate"), progress.show_status("Calibrating sigma"):
        spec, budget, task = loaded.spec, loaded.budget, roles.task
        repeats = private.get_run_count_distribution(resolved.search)
        if resolved.search is not None and repeats is not None:
            tried = private.list_candidates(learner, spec.accountant, resolved.search)
        else:
            tried = [learner]
        settled = [
            settle_learner(learner, loaded.who, task, budget) for learner in tried
        ]  # every learner that a fit may use
        plan = find_common_plan(settled, loaded.who, task, budget)
        rng: Rng = "secure" if spec.secure_rng else "research"
        privacy = loaded.memo.state(plan, budget, spec.accountant, rng, repeats)
    own = settled[0] if repeats is None else learner  # each run of a private search settles a setting of its own
    return PreparedRun(loaded, learner, own, chosen, privacy)


def prepare_seed(prepared: PreparedRun, seed: int) -> PreparedRun:
    """Return the run with the examples for this seed; its plan and sigma stay the same.

    Raises:
        DataError: the seed's data differs in size or shape (sigma is calibrated for one size), or in its test groups.
    """
    loaded = prepared.loaded.draw(seed)
    if loaded is prepared.loaded:
        return prepared
    if (loaded.roles.task, loaded.images.left_out) != (prepared.roles.task, prepared.images.left_out):
        raise DataError(
            f"Expected dataset {loaded.parts.dataset.name!r} to draw the same sizes for every seed: "
            f"{prepared.roles.task}, got {loaded.roles.task} for seed {seed}."
        )
    drawn = dataclasses.replace(prepared, loaded=loaded)
    if drawn.test_groups != prepared.test_groups:
        raise DataError(
            f"Expected dataset {loaded.parts.dataset.name!r} to draw as many test images of each group and class for "
            f"every seed, got other counts for seed {seed}."
        )
    return drawn


def _choose_settings(loaded: LoadedRun) -> tuple[Learner, Selection | None]:
    """Return the learner with chosen settings, and the record of the choice, if any."""
    asked, images = loaded.resolved, loaded.images
    learner = asked.parts.learner
    if loaded.earlier is not None:
        return learner, transfer.make_transfer_record(
            loaded.earlier, asked.rule, asked.spec, images.digests, images.hash_split
        )
    if asked.search is None:
        return learner, None
    if asked.search.rule == "private-accounted":
        return learner, private.make_private_selection_record(learner, loaded.roles, asked.search)
    found = loaded.make_trial_runner(asked.search).choose_setting()
    return spaces.apply_setting(learner, found.chosen or {}), found
