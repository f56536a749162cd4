"""The record of an explanation: a JSON file that is not a result; no board accepts it. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, Field

from dpbench.records import storage
from dpbench.records.metrics import RankMetric
from dpbench.records.protocol import Component
from dpbench.records.result import ComponentOrigin, Interval
from dpbench.records.spec import Spec
from dpbench.support.validation import Record

Stage = Literal["tuning", "noise", "clipping", "projection", "steps"]
GUARANTEE: Literal["none: reads private data without noise"] = "none: reads private data without noise"


SCORE_FIELD = Field(validation_alias=AliasChoices("score", "accuracy"))  # which it always was in older files


class LiftedStage(Record):
    """A stage that is lifted (removed): the score afterwards, and the gain over the score before."""

    stage: Stage
    score: Interval | None = SCORE_FIELD  # None where it does not apply
    points: Interval | None  # a difference of scores, paired by seeds
    why: str = ""  # it does not apply; or what was lifted


class ReleaseSignal(Record):
    """Signal and noise in the steps of a release, in units of the clip.

    The signal is the norm of the mean clipped contribution, and the noise is the norm of one step's noise, divided by
    the expected sample size. The signals of many steps add up, while their noise grows with the square root of the
    number of steps, so a step may contain more noise than signal.
    """

    release: str
    steps: int
    entries: int  # of one answer, all blocks together
    clipped: float  # the share of contributions longer than their clip by 1% or more, over all steps
    first: float | None  # the norm of the first step's mean clipped contribution, without what the sampling adds to it
    last: float | None  # None where units of several images are sampled: what that adds is not measured
    noise: float  # the norm that the noise of one step has, divided by the expected sample as contributions are


class LearnerExplanation(Record):
    """A learner: its private run, the stages lifted one after another up to the ceiling, and each stage on its own."""

    learner: Component  # with its settings as they ran: those that were chosen, where `tuning` was asked for
    digest: str  # of the private run's spec: its result, if there is one, is named so
    epsilon: float
    private: Interval
    ladder: tuple[LiftedStage, ...]  # each on top of those before
    rest: Interval  # the ceiling less the last of the ladder: loss, penalty and features of the head
    alone: tuple[
        LiftedStage, ...
    ]  # each from one run of the same plan and sigma with other noise; `tuning` is in the ladder
    signals: tuple[
        ReleaseSignal, ...
    ] = ()  # of the first seed, for each release; empty in files from before it was added


class Explanation(Record):
    """Several learners on one protocol, with one ceiling; all scores are in the protocol's metric."""

    kind: Literal["explanation"] = "explanation"
    schema_version: Literal[1] = 1
    guarantee: Literal["none: reads private data without noise"] = GUARANTEE
    digest: str
    specs: tuple[Spec, ...]
    private: int
    public: int
    test: int
    ceiling: Component
    score: Interval = SCORE_FIELD  # of the ceiling
    learners: tuple[LearnerExplanation, ...]
    digests: dict[str, str]  # of the data
    seconds: float
    components: dict[str, ComponentOrigin]
    provenance: dict[str, Any]

    @property
    def metric(self) -> RankMetric:
        """The metric of all scores; learners were told to optimise it."""
        return self.specs[0].metric

    def write(self, folder: Path) -> Path:
        """Write the explanation into a marked folder below `folder`, atomically, and return the file.

        Raises:
            OutputError: the folder cannot be written.
        """
        name = f"explanation-{self.specs[0].dataset.name}-{self.digest[:16]}.json"
        return storage.write_record(self, storage.make_not_private_folder(folder) / name)
