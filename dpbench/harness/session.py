"""What a process has for its runs, and the one way to make them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from dpbench import registry
from dpbench.harness import rerun as reruns
from dpbench.harness.fit import SeedFit
from dpbench.harness.loaded import Loaded, load_run
from dpbench.harness.memo import Memo
from dpbench.harness.prepare import PreparedRun, prepare_run
from dpbench.harness.run import check_search, run_prepared, tune_loaded
from dpbench.harness.sharing import Sharing, check_sharing
from dpbench.harness.source import DataSource
from dpbench.harness.tuning.transfer import apply_settings
from dpbench.records.journal import Journal
from dpbench.records.result import Result, Tuning
from dpbench.records.search import Selection
from dpbench.records.spec import Spec
from dpbench.registry import Registry
from dpbench.registry.components import ResolvedSpec, resolve
from dpbench.support.device import find_device


@dataclass(frozen=True)
class Session:
    """What is installed, and what runs share on one device; a command, a notebook, a worker or a test makes one.

    `open_session` makes it.
    """

    plugins: Registry
    memo: Memo

    @property
    def device(self) -> torch.device:
        """Where features are extracted and learners fit."""
        return self.memo.device

    @property
    def threads(self) -> int | None:
        """With how many threads learners fit; None for as many as the work of each is worth."""
        return self.memo.threads

    def resolve(self, spec: Spec | ResolvedSpec) -> ResolvedSpec:
        """Build what a spec names and spell everything out; one that is resolved already stays as it is.

        Raises:
            SpecError: an unknown name or option, or a value that does not fit.
        """
        return spec if isinstance(spec, ResolvedSpec) else resolve(spec, self.plugins)

    def load(self, spec: Spec | ResolvedSpec, *, settings: Path | None = None, sharing: Sharing = "none") -> Loaded:
        """Build what the spec names, spell everything out, and give every example its role; see `prepare`.

        Raises:
            DpbenchError: one sentence; names, options or data do not fit.
        """
        resolved, earlier = self.resolve(spec), None
        if settings is not None:
            resolved, earlier = apply_settings(settings, resolved)
        return load_run(resolved, self.memo, earlier, sharing)

    def prepare(
        self, spec: Spec | ResolvedSpec, *, settings: Path | None = None, sharing: Sharing = "none"
    ) -> PreparedRun:
        """Return what all fits of a spec need: components, roles, settings, plan, sigma and the stated guarantee.

        Private rows are behind `roles.private`, unread, unless the spec asks for a search on them.

        Args:
            spec: what to run; one that is resolved already is not resolved again.
            settings: an earlier tuning or result to take the learner's settings from, instead of a search.
            sharing: which splits are taken, unless the spec allows any; by default those whose public images are not
                private ones.

        Raises:
            DpbenchError: one sentence; names, options, data or budget do not fit.
        """
        return prepare_run(self.load(spec, settings=settings, sharing=sharing))

    def run(
        self,
        spec: Spec | ResolvedSpec,
        *,
        settings: Path | None = None,
        sharing: Sharing = "none",
        keep: Callable[[PreparedRun, SeedFit], None] | None = None,
        journal: Journal | None = None,
    ) -> Result:
        """Run one spec: choose settings if it asks for a search, fit once a seed, score each fit on the test split.

        Covered: each seed's fit has the epsilon that the result states; see `harness.fit`.

        Args:
            spec: as in `prepare`, and so are `settings` and `sharing`.
            settings: a file with the learner's settings.
            sharing: which splits are taken.
            keep: meets each fit as it ends, with its predictor.
            journal: keeps seeds as they end, and has those of an earlier call that was interrupted.

        Raises:
            DpbenchError: one sentence; nothing is run when names, options, data or budget do not fit.
        """
        return run_prepared(self.prepare(spec, settings=settings, sharing=sharing), keep, journal)

    def tune(self, spec: Spec | ResolvedSpec) -> Tuning:
        """Search for settings and stop there: the test split is not read.

        Raises:
            DpbenchError: as `run` does; or the search is a private one, which is part of a run.
        """
        resolved = self.resolve(spec)
        check_search(resolved.search)
        return tune_loaded(self.load(resolved))

    def extract(self, spec: Spec, sharing: Sharing = "any") -> None:
        """Extract features and compare images, which the cache folder keeps for every process that comes after.

        Raises:
            DpbenchError: as `run` does; also, what the splits may not share, see `check_sharing`.
        """
        resolved = self.resolve(spec)
        source = DataSource(resolved.parts, resolved.spec.split_rule, self.device)
        _, images = self.memo.examples(source, resolved.spec.budget)
        images.load_test()
        images.compare()
        check_sharing(images, sharing)

    def rerun(self, result: Result, seed: int | None = None) -> PreparedRun:
        """Return all that the fit of one seed needs, or of all seeds, with the plan and sigma of the result.

        Raises:
            NotReproducible: the code, the data, a plugin or its version is not on this machine.
            DpbenchError: the run cannot be prepared, or its plan or data are not those of the result.
        """
        return reruns.prepare_rerun(result, seed, self.plugins, self.memo)

    def search_again(self, result: Result) -> Selection:
        """Search for the settings of a result once more, on public data as it did.

        Raises:
            DpbenchError: the search fails here, or the result had none.
        """
        return reruns.search_again(result, self.plugins, self.memo)


def open_session(device: str = "auto", *, plugins: Registry | None = None, threads: int | None = None) -> Session:
    """Return a session on this machine.

    Args:
        device: see `find_device`.
        plugins: what is installed, if it is loaded already.
        threads: with how many threads learners fit; by default as many as the work of each is worth.

    Raises:
        SpecError: there is no such device, or fewer than one thread.
    """
    return Session(plugins or registry.load(), Memo(find_device(device), threads))
