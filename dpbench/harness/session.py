"""Make runs in a session, which holds the plugins of a process and the work that its runs share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from dpbench import registry
from dpbench.harness import rerun as reruns
from dpbench.harness.fit import SeedFit
from dpbench.harness.loaded import LoadedRun, load_run
from dpbench.harness.memo import SharedRunCache
from dpbench.harness.prepare import PreparedRun, prepare_run
from dpbench.harness.run import execute_prepared_run, refuse_private_selection, search_settings_without_run
from dpbench.harness.sharing import Sharing, refuse_forbidden_overlap
from dpbench.harness.source import DataSource
from dpbench.harness.tuning.transfer import apply_settings
from dpbench.records.journal import RunJournalFolder
from dpbench.records.protocol import Component
from dpbench.records.result import Result
from dpbench.records.search import Selection
from dpbench.records.spec import Spec
from dpbench.records.tuning import Tuning
from dpbench.registry import Registry
from dpbench.registry.components import ResolvedSpec, resolve
from dpbench.support.device import find_device


@dataclass(frozen=True)
class Session:
    """The installed plugins and the work that runs share on one device. Commands, notebooks, workers and tests use it.

    Call `open_session` to make a session.
    """

    plugins: Registry
    memo: SharedRunCache
    dataset: Component | None = None  # where re-runs find their data, if not where their results state

    @property
    def device(self) -> torch.device:
        """The device that extracts features and fits learners."""
        return self.memo.device

    @property
    def threads(self) -> int | None:
        """The number of threads that learners fit with; None chooses it for each learner by data size."""
        return self.memo.threads

    def resolve(self, spec: Spec | ResolvedSpec) -> ResolvedSpec:
        """Build the components that a spec names and fill in every option; a resolved spec is returned unchanged.

        Raises:
            SpecError: an unknown name or option, or a value that does not fit.
        """
        return spec if isinstance(spec, ResolvedSpec) else resolve(spec, self.plugins)

    def load(self, spec: Spec | ResolvedSpec, *, settings: Path | None = None, sharing: Sharing = "none") -> LoadedRun:
        """Build a spec's components, fill in every option and assign a role to every example; see `prepare`.

        Raises:
            DpbenchError: names, options or data do not fit together.
        """
        resolved, earlier = self.resolve(spec), None
        if settings is not None:
            resolved, earlier = apply_settings(settings, resolved)
        return load_run(resolved, self.memo, earlier, sharing)

    def prepare(
        self, spec: Spec | ResolvedSpec, *, settings: Path | None = None, sharing: Sharing = "none"
    ) -> PreparedRun:
        """Prepare the fits of a spec: build its components, assign roles, choose settings and state the guarantee.

        No learner reads private rows, unless the spec asks for a search on them.

        Args:
            spec: the spec to run; a resolved spec is not resolved again.
            settings: an earlier tuning or result to take the learner's settings from, instead of a search.
            sharing: which overlap between splits is accepted, unless the spec allows any; by default, no public image
                may also be private.

        Raises:
            DpbenchError: names, options, data or budget do not fit together.
        """
        return prepare_run(self.load(spec, settings=settings, sharing=sharing))

    def run(
        self,
        spec: Spec | ResolvedSpec,
        *,
        settings: Path | None = None,
        sharing: Sharing = "none",
        keep: Callable[[PreparedRun, SeedFit], None] | None = None,
        journal: RunJournalFolder | None = None,
    ) -> Result:
        """Run a spec: search for settings if it asks for a search, fit every seed and score each fit on the test split.

        Guarantee: each seed's fit has the epsilon that the result states; see `harness.fit`.

        Args:
            spec: as for `prepare`.
            settings: as for `prepare`.
            sharing: as for `prepare`.
            keep: called with each finished fit, which includes the predictor.
            journal: stores each finished seed, and supplies the seeds of an interrupted call.

        Raises:
            DpbenchError: a fit failed; or names, options, data or budget do not fit together, and nothing runs.
        """
        return execute_prepared_run(self.prepare(spec, settings=settings, sharing=sharing), keep, journal)

    def tune(self, spec: Spec | ResolvedSpec) -> Tuning:
        """Search for settings without a run; the test split is not read.

        Raises:
            DpbenchError: as for `run`; or the spec has no search, or a private search, which is part of a run.
        """
        resolved = self.resolve(spec)
        refuse_private_selection(resolved.search)
        return search_settings_without_run(self.load(resolved))

    def extract(self, spec: Spec, sharing: Sharing = "any") -> None:
        """Extract features and compare images; the cache folder stores both for later processes.

        Raises:
            DpbenchError: as for `run`; also if the splits share images that they may not, see
                `refuse_forbidden_overlap`.
        """
        resolved = self.resolve(spec)
        source = DataSource(resolved.parts, resolved.spec.split_rule, self.device)
        _, images = self.memo.examples(source, resolved.spec.budget)
        images.load_test_split()
        images.compare()
        refuse_forbidden_overlap(images, sharing)

    def rerun(self, result: Result, seed: int | None = None) -> PreparedRun:
        """Prepare the fit of one seed of a result, or of all seeds, with the result's plan and sigma.

        Raises:
            NotReproducible: the code, the data, a plugin or its version is not on this machine.
            DpbenchError: the run cannot be prepared, or its plan or data are not those of the result.
        """
        return reruns.prepare_rerun(result, seed, self.plugins, self.memo, self.dataset)

    def repeat_search(self, result: Result) -> Selection:
        """Repeat the public search that chose a result's settings.

        Raises:
            DpbenchError: the search fails here, or the result had none.
        """
        return reruns.repeat_search(result, self.plugins, self.memo, self.dataset)


def open_session(device: str = "auto", *, plugins: Registry | None = None, threads: int | None = None) -> Session:
    """Open a session on this machine.

    Args:
        device: see `find_device`.
        plugins: the installed plugins, if they are already loaded.
        threads: number of threads that learners fit with; by default chosen for each from the size of its data.

    Raises:
        SpecError: there is no such device, or fewer than one thread.
    """
    return Session(plugins or registry.load(), SharedRunCache(find_device(device), threads))
