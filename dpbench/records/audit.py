"""The record of an audit: a JSON file with statistics, and the figures computed from them. No torch here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dpbench.records.result import ComponentOrigin
from dpbench.records.spec import Spec
from dpbench.records.stated_plan import AnyUse
from dpbench.records.storage import SealedRecord
from dpbench.support.validation import FiniteNumbersRecord, Record

Part = Literal["sensitivity", "noise", "attack"]
PARTS: tuple[Part, ...] = ("sensitivity", "noise", "attack")


class StatisticalCheck(Record):
    """A statistical test of the stated guarantee, with its p-value under the hypothesis that the guarantee holds."""

    name: str
    p: float = Field(ge=0, le=1)
    z: float | None = None  # where the statistic is a standard normal
    statistics: int | None = Field(default=None, ge=0)  # it is the most surprising of these; `p` allows for that
    numbers: int | None = Field(default=None, ge=0)  # that the statistic is made of, or that surprising one


class MeasuredSensitivity(Record):
    """The largest change of a sum that a single row caused, among all rows that were tried."""

    questions: int = Field(ge=0)  # that were asked again over other rows
    rows: int = Field(ge=0)  # that were tried, over all questions
    largest: float = Field(ge=0)  # the longest contribution, in clips
    shift: float = Field(ge=0)  # the most that a row moved beside its own contribution, in clips: 0 if exact
    complaints: tuple[str, ...] = ()


class SampleStatistics(FiniteNumbersRecord):
    """The sizes of a release's samples, and how often each canary was sampled."""

    release: str
    steps: int = Field(ge=1)
    sizes: float = Field(ge=0)  # squared deviations from the expected size, in variances: chi-square with `steps`
    rows: float = Field(ge=0)  # the same of private rows alone, canaries left out
    counts: float | None  # how much the canaries differ in how often they were sampled: a standard normal
    rate: float | None = Field(gt=0, lt=1)  # of the samples; None where it was not kept, as are the next two
    members: int | None = Field(ge=1)  # who can be in a sample: private units, and canaries in the data
    units: int | None = Field(ge=1)  # private units alone


class NoiseStatistics(FiniteNumbersRecord):
    """Statistics of the noise that was added to sums, in units of the stated standard deviation."""

    numbers: int = Field(ge=0)  # coordinates of all answers
    squares: float = Field(ge=0)  # the sum of their squares
    padding: int = Field(ge=0)  # coordinates of the canaries
    padding_squares: float = Field(ge=0)
    samples: tuple[SampleStatistics, ...] = ()
    checks: tuple[StatisticalCheck, ...] = ()  # of shape and independence


class CanaryAttackResult(FiniteNumbersRecord):
    """The result of an attack that guesses from the canaries' scores which canaries are in the data."""

    canaries: int = Field(ge=1)
    members: int = Field(ge=1)  # of them in the data
    guesses: int = Field(ge=1)  # fixed in advance
    correct: int = Field(ge=0)
    mean: float  # difference between members and others of the mean score, in standard deviations
    mu: float | None  # that it should have: None where samples are drawn, and scores not normal

    @model_validator(mode="after")
    def _check_counts(self) -> CanaryAttackResult:
        if not (self.correct <= self.guesses <= self.canaries and self.members <= self.canaries):
            raise ValueError(
                f"expected correct guesses among {self.guesses:,} guesses, and guesses and members among "
                f"{self.canaries:,} canaries, got {self.correct:,} correct and {self.members:,} members"
            )
        return self


class EpsilonBound(Record):
    """A lower bound on epsilon, and the largest lower bound that this design can give."""

    epsilon: float = Field(ge=0)
    most: float = Field(ge=0)


class DerivedFigures(Record):
    """The figures that are computed from the statistics; see `dpbench.audit.figures`."""

    low: float  # sigma as found / sigma as stated: its 95% interval
    high: float
    answers_p: float
    steinke: EpsilonBound | None  # of epsilon: a certificate
    mahloujifar: EpsilonBound | None  # of the epsilon of a Gaussian mechanism: a certificate
    gauss: EpsilonBound | None  # an estimate, None where noise or its independence is in doubt
    failed: tuple[str, ...]  # which checks, by part: none where the audit passes
    evidence: float | None = Field(default=None, ge=0)  # against the statement, an e-value; None: not yet computed
    level: float | None = None  # of each check of an audit without e-values, which failed below it


class EarlierAudits(Record):
    """The seeds and stakes of earlier audits of the same run; a later audit multiplies the stakes by its e-values."""

    seeds: tuple[int, ...]
    stakes: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]]  # by test; see `dpbench.audit.evidence`


class Audit(SealedRecord):
    """A whole audit, with the claims of the audited run and the findings."""

    schema_version: Literal[1] = 1
    digest: str  # of the spec
    content: str | None  # digest of the result's evidence, where one was audited: one that changed was not audited
    spec: Spec | None  # None for a loop that is not dpbench's
    seed: int = Field(ge=0)
    repeats: bool | None  # whether the fit gave the predictions that the result has for its seed
    epsilon: float = Field(gt=0, allow_inf_nan=False)  # as stated; of one run where a search has several
    delta: float = Field(ge=0, lt=1)
    sigma: float = Field(gt=0, allow_inf_nan=False)
    plan: tuple[AnyUse, ...]
    mechanism: str
    sensitivity: MeasuredSensitivity | None
    noise: NoiseStatistics | None
    attack: CanaryAttackResult | None
    own: CanaryAttackResult | None = (
        None  # on the coordinates that the learner is told, with the noise that it was told
    )
    earlier: EarlierAudits | None = None
    figures: DerivedFigures
    left_out: tuple[str, ...] = ()  # what does not apply, and why
    seconds: dict[str, float] = Field(default={})
    components: dict[str, ComponentOrigin] = Field(default={})
    provenance: dict[str, Any] = Field(default={})
    seal: str = ""  # over all of the above, as it was written; an audit without one is no evidence

    @property
    def passed(self) -> bool:
        """Whether no part of the audit contradicts the stated guarantee."""
        return not self.figures.failed

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of all audits that contribute to the evidence; this audit's own seed is last."""
        return (*(self.earlier.seeds if self.earlier else ()), self.seed)

    def part_passed(self, name: Part) -> bool | None:
        """Return whether this part of the audit passed; None if it does not apply."""
        applies = getattr(self, name) is not None
        return not any(failure.startswith(name) for failure in self.figures.failed) if applies else None

    def write(self, folder: Path) -> Path:
        """Write the audit as `audit/<digest>.json` into `folder`, atomically, and return the file.

        An audit of any seed but the first is written as `audit/<digest>-seed-<seed>.json`, so it replaces no other.

        Raises:
            OutputError: the folder cannot be written.
        """
        other = self.spec is not None and self.seed != self.spec.seeds[0]
        return self.write_to(folder / "audit" / f"{self.digest[:16]}{f'-seed-{self.seed}' if other else ''}.json")
