"""The format of `leaderboard.json`: every board with its entries in order, for programs and for the site.

The file is built from boards and results alone (`dpbench leaderboard build`); nothing in it is written by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError

from dpbench.analysis.rows import Origin
from dpbench.errors import DataError
from dpbench.privacy.core.accounting.crosscheck import EpsilonInterval
from dpbench.records.audit import EpsilonBound
from dpbench.records.board import Board
from dpbench.records.overlap import OverlapCounts
from dpbench.records.result import ComponentOrigin, Interval
from dpbench.records.search import SelectionRule
from dpbench.support.validation import Record, first_schema_violation

Trust = Literal["submitted", "re-run", "reproduced", "audited"]
"""How far a result was verified beyond the checks that every result passes (two accountants, counted scores, digests).

============ ======================================================================================================
`submitted`  the project has not run the result again
`re-run`     some seeds were run again, or all by other code, and agree: see `again`
`reproduced` all seeds were run again by the same code and agree, and the result's other claims were checked
`audited`    one more fit was audited and attacked (`dpbench.audit`), and nothing contradicts the stated guarantee;
             `reproduced` and `again` state what else was verified
============ ======================================================================================================

The records of re-runs and audits are in the leaderboard's folder. Only the project makes them; a submission may not
bring any.
"""
Status = Literal["submitted", "re-run", "reproduced", "audited", "disputed", "withdrawn"]
"""The project's decision about an entry: disputed or withdrawn. Up to version 0.2, it could also repeat the trust."""

SeedSource = Literal["challenge seeds", "seeds chosen by the submitter"]
"""Whose seeds decide scores and ranks; a board has one source for all of its ranks."""

Role = Literal["entry", "control", "ceiling", "unranked"]
"""The part that a result plays on a board.

- `entry`: has a rank.
- `control`: a reference that reads no private row (epsilon 0).
- `ceiling`: a reference without noise (epsilon infinite).
- `unranked`: any other result; the field `why` of its entry gives the reason.
"""

Reads = Literal["nothing", "features", "features and labels"]


class Worth(Record):
    """The number of public labels that score as much as an entry (`board.exchange`); None if all labels score less."""

    labels: int | None
    low: int | None  # 95% bootstrap interval over draws of the labels and seeds
    high: int | None
    all: int  # public labels that the board has

    def __str__(self) -> str:
        if self.labels is None:
            return f"more than all {self.all:,}"
        if self.low == self.high:
            return f"{self.labels:,}"
        high = f"{self.high:,}" if self.high else f"more than {self.all:,}"
        return f"{self.labels:,} ({self.low:,} to {high})"


class RerunSummary(Record):
    """A summary of a re-run that agrees with the result: its seeds, outcome, author and machine."""

    seed: int  # the last of them
    outcome: str
    made: Origin
    seeds: tuple[int, ...] = ()  # all of them
    of: int = 0  # seeds of the result
    by: str | None = None  # who ran them, where that is on record
    machine: str | None = None
    code: Literal["same", "other", "not compared"] = "not compared"  # as made the result


class ChallengeSummary(Record):
    """The score of a result with challenge seeds, beside its score with the seeds that its submitter chose."""

    commit: str  # that filed the result; the seeds follow from it and from the result
    seeds: tuple[int, ...]
    score: Interval  # by the board's metric
    submitter: Interval  # the same with the submitter's seeds
    replaced: int = Field(default=0, exclude_if=lambda value: not value)  # results in its place, with other such seeds
    made: Origin
    by: str | None = None


class AuditSummary(Record):
    """The figures of a passed audit."""

    made: Origin
    seed: int
    earlier_seeds: tuple[int, ...] = ()  # whose audits its evidence includes
    evidence: float | None = None  # against the statement, an e-value; an alarm from 1,000 on
    noise_low: float  # sigma as found / sigma as stated: its 95% interval
    noise_high: float
    largest: float | None  # what a row moved a sum by at most, in clips
    canaries: int
    steinke: EpsilonBound | None  # lower bounds on epsilon, beside the largest that the attack could have given
    mahloujifar: EpsilonBound | None
    gauss: float | None  # an estimate


class Entry(Record):
    """A result on a board."""

    id: str  # the result file's name without its ending: unique on its board, safe as a file name
    file: str  # the result, relative to the leaderboard's folder: results/<board>/<id>.json
    role: Role
    rank: int | None  # among those that read no more; shared by ties with the best; None unless the role is entry
    uncorrected_rank: int | None = None  # where every comparison is taken by itself; see `Index.ranking`
    why: str = ""  # it is not ranked
    learner: str  # a name alone is dpbench's own learner; others are followed by their distribution, in brackets
    source: str = ""  # digest of the learner's code, as stated; empty where it is not on record
    settings: dict[str, str]  # of the learner, spelled out
    command: str  # that repeats it
    selection: SelectionRule
    defaults_version: str = Field(default="", exclude_if=lambda value: not value)
    """The learner's earlier version whose rule chose the open settings from the budget; empty if today's rule did."""
    tried: int | None  # settings that were tried, where that may be told
    reads: Reads  # of the public data
    reads_private: bool  # False where the plan is empty
    worth: Worth | None = None  # None where private data are not read, public labels are, or the board has no curve
    status: Status | None = Field(default=None, exclude_if=lambda status: status is None)  # what `trust` does not say
    trust: Trust
    reproduced: bool = False  # all seeds, by the same code
    again: RerunSummary | None = None
    challenge: ChallengeSummary | None = None
    scored: SeedSource = "seeds chosen by the submitter"  # by which `metrics` are
    author_word: tuple[str, ...] = ()  # what nobody has looked up
    audit: AuditSummary | None = None
    rng: Literal["research", "secure"]
    mechanism: str  # that answered
    made: Origin
    metrics: dict[str, Interval]
    class_accuracy: tuple[float | None, ...]  # mean over seeds
    seeds: int  # that `metrics` are the mean of
    epsilon: float = Field(ge=0)
    independent: EpsilonInterval
    sigma: float = Field(ge=0)
    steps: int = Field(ge=0)  # noisy sums in all
    seconds: float = Field(ge=0)  # of one fit, on the machine that ran it; 0 where it must stay secret (private search)
    cpu_seconds: float | None = None  # of one fit, all threads; None on a GPU, and where it must stay secret
    peak_bytes: int = Field(ge=0)  # of the process, over all phases of the run; 0 where it is not on record
    unmeasured: str = ""  # why `cpu_seconds` or `peak_bytes` is missing
    plugin: ComponentOrigin

    @property
    def learner_name(self) -> str:
        """The learner's name, without the distribution in brackets."""
        return self.learner.partition(" (")[0]

    @property
    def reads_labels(self) -> bool:
        """Whether the learner reads public labels. Only such entries are compared with all entries."""
        return self.reads == "features and labels"

    @property
    def compute(self) -> float:
        """Seconds of a fit: processor time, which other programs do not lengthen, or else wall-clock time."""
        return self.seconds if self.cpu_seconds is None else self.cpu_seconds


class Stability(Record):
    """In how many random halves of the test set the best entry is the best again (`board.stability`)."""

    halves: int = Field(gt=0)
    seed: int  # that drew them
    first: int  # halves on which no entry of that group has a higher mean than the first one
    shared: int  # halves on which none has a higher mean than the best of those that share rank 1


class Gap(Record):
    """The smallest true difference that a board separates in four of five cases, before any entry (`board.gap`)."""

    accuracy: float  # of both learners, assumed
    low: float = Field(ge=0)  # if a fit with another seed errs on other examples
    high: float = Field(ge=0)  # if every seed errs on the same examples
    examples: float = Field(gt=0)  # independent test examples that count: images, or units that images come in


class MeanDistanceFromBest(Record):
    """A learner's mean distance from the best comparable entry over all boards, at default settings.

    See `board.distance`.
    """

    learner: str
    points: float = Field(ge=0)  # percentage points
    low: float | None  # 95% bootstrap interval over datasets; None with a single one
    high: float | None
    boards: int  # where the learner has a ranked entry at its defaults
    data_sets: int  # of those boards


class Standing(Record):
    """A board, its task and its entries.

    Ranked entries come first, best first within each group: entries that read no public labels, then entries that do.
    Unranked entries and ceilings follow.
    """

    board: Board
    digest: str  # of the protocol: a board that has results is never edited
    classes: tuple[str, ...]
    private: int
    public: int
    test: int
    licence: str  # of the data
    overlap: dict[str, OverlapCounts] = Field(default={})
    chance: float  # accuracy of a uniform guess
    scored: SeedSource = "seeds chosen by the submitter"  # by which entries are ranked
    gap: Gap | None = None  # None without results, and for a metric that is no mean over examples
    above: str = ""  # why an entry with noise is above the ceiling, where one is
    stability: Stability | None = None  # None with fewer than two such entries, or a metric other than accuracy
    entries: tuple[Entry, ...]


class Index(Record):
    """The whole leaderboard."""

    schema_version: Literal[1] = 1
    ranking: str  # how ranks are made, in one sentence
    distances: tuple[MeanDistanceFromBest, ...] = ()  # one a learner over all boards, the nearest to the best first
    standings: tuple[Standing, ...]  # boards by name, those without results too (`entries` empty, sizes 0)

    def encode(self) -> bytes:
        """Encode the index as `leaderboard.json`, a line per field of an entry, so that `git diff` shows changes."""
        return _encode_with_line_breaks(json.loads(self.model_dump_json())).encode() + b"\n"

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a `leaderboard.json`.

        Raises:
            DataError: names the file and the first field that does not fit.
        """
        try:
            return cls.model_validate_json(file.read_bytes())
        except OSError as error:
            raise DataError(
                f"Cannot read leaderboard {file}: {error.strerror}. `dpbench leaderboard build` makes it from results."
            ) from error
        except ValidationError as error:
            raise DataError(f"{file} is not a valid leaderboard.json, at {first_schema_violation(error)}.") from None


def _encode_with_line_breaks(record: dict[str, Any]) -> str:
    def encode_value(name: str, value: Any) -> str:
        if name in ("standings", "entries"):
            return "[" + ",\n".join(map(_encode_with_line_breaks, value)) + "]"
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    return "{" + ",\n".join(f'"{name}": {encode_value(name, value)}' for name, value in record.items()) + "}"
