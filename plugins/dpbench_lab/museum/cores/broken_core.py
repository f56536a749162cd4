"""A broken core: a privacy bug, the patch that puts it into `dpbench`, and the audits and tests that must notice it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from dpbench.api import Dataset, Learner, Release
from dpbench.audit.audit_fit import audit_prepared_run
from dpbench.harness.guarantee import compute_epsilon_for_copies
from dpbench.harness.prepare import PreparedRun
from dpbench.privacy.core.accounting import accountant
from dpbench.records.audit import PARTS, Part
from dpbench_lab.museum.cores.patch import Patch, Replacement, SourceEdit, StalePatch
from dpbench_lab.museum.exhibit import ClaimedAndTrueEpsilon, Exhibit, Findings
from dpbench_lab.museum.strangers import EPSILON, prepare_learner

CANARIES = 4_000  # enough for a large bug to be attacked, in a second
_GUARD: dict[Part, Any] = {part: f"audit: {part}" for part in PARTS}


@dataclass(frozen=True)
class CoreExhibit(Exhibit):
    """An exhibit that replaces one function of the privacy core with a wrong one, and audits an honest learner."""

    place: str  # that `Replacement` puts it in
    learner: type[Learner]
    noise: float | None = None  # what the run is as private as: with this times its noise
    sigma: float | None = None  # or with this noise multiplier
    rate: float = 1.0  # and this times its sample rate
    patients: type[Dataset] | None = None  # whose patients epsilon is stated for, where it is stated for such
    images: int = 1  # of one of them that count as so many patients

    def claimed_and_true_epsilon(self) -> ClaimedAndTrueEpsilon | None:
        """Return the stated epsilon, and the actual epsilon of the worst example; None if that is unknown."""
        stated = self._run.privacy
        if self.images > 1 and (found := compute_epsilon_for_copies(stated, self.images)) is not None:
            return ClaimedAndTrueEpsilon(EPSILON, found)
        if self.noise is None and self.sigma is None and self.rate == 1:
            return None
        worst = [
            replace(release, sample_rate=release.sample_rate * self.rate) if isinstance(release, Release) else release
            for release in stated.releases
        ]
        noise = stated.sigma * (1.0 if self.noise is None else self.noise) if self.sigma is None else self.sigma
        return ClaimedAndTrueEpsilon(EPSILON, accountant.epsilon(worst, noise, stated.delta))

    def visit(self) -> Findings:
        """Audit an honest learner on the broken core."""
        run = self._run
        with self.patch.apply():
            found = audit_prepared_run(run, 0, CANARIES)
        failed = found.figures.failed
        said = {part: [told.partition(": ")[2] for told in failed if told.startswith(part)] for part in PARTS}
        return {_GUARD[part]: "; ".join(said[part]) or None for part in PARTS if found.part_passed(part) is not None}

    @property
    def patch(self) -> Replacement:
        """The patch that puts the function into the core."""
        return Replacement({self.place: self.shown})

    @property
    def _run(self) -> PreparedRun:
        if self.patients is None:
            return prepare_learner(self.learner)
        return prepare_learner(self.learner, self.patients, dataset=self.patients.name, unit="patient")


@dataclass(frozen=True)
class AuditCase:
    """An audit of a run on digits that must reject a broken core."""

    learner: str  # with its settings, as `--learner` takes them
    part: Part | None = "noise"  # of the audit, which fails; None: the audit passes, and the manual says that it does
    canaries: int | None = CANARIES  # None: as many as a run has room for
    quick: bool = False  # part of the quick suite


@dataclass(frozen=True)
class BrokenCore:
    """A broken core: the museum shows its exhibit, audits reject it, and a test fails on it."""

    name: str
    patch: Patch
    why: str = ""  # it is a bug, where the name does not say it
    exhibit: CoreExhibit | None = None
    audits: tuple[AuditCase, ...] = ()
    tests: tuple[str, ...] = ()  # below tests/, as pytest names them


def edit(file: str, name: str, why: str, *changes: str, tests: str | tuple[str, ...]) -> BrokenCore:
    """Return a core that is broken by edits to one source file of `dpbench`."""
    return BrokenCore(name, SourceEdit(file, changes), why, tests=(tests,) if isinstance(tests, str) else tests)


def show(exhibit: CoreExhibit, *audits: AuditCase, tests: tuple[str, ...] = ()) -> BrokenCore:
    """Return the broken core of an exhibit, with the audits and tests that must notice it."""
    return BrokenCore(exhibit.name, exhibit.patch, exhibit.summary, exhibit, audits, tests)


def find_stale_patches(cores: Iterable[BrokenCore]) -> dict[str, str]:
    """Return a complaint, by the core's name, for each core whose patch no longer applies to the code."""
    complaints: dict[str, str] = {}
    for core in cores:
        try:
            core.patch.check()
        except StalePatch as error:
            complaints[core.name] = f"{core.name!r} no longer applies: {error} Make the same bug in the code as it is."
    return complaints
