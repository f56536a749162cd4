"""The record of a re-run: the outcome for each seed of a result, who ran it and where. No torch here."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dpbench.records.group_counts import GroupCounts
from dpbench.records.storage import SealedRecord
from dpbench.support.validation import Record

CODE_CLAIM = "provenance.code"
"""The name of the claim that the same code made the result; for a component, its role is appended."""

Outcome = Literal["same predictions", "same within tolerance", "differs"]
Verdict = Literal["same", "differs", "not checked"]


class SeedRerun(Record):
    """The outcome of re-running a seed."""

    seed: int
    outcome: Outcome
    accuracy: float
    predictions: str
    correct: str | None  # base64 of one bit a test example; None if not kept, or if `predictions` is the result's
    agreement: float | None  # share of test examples right or wrong alike; None where noise cannot be repeated
    scores: dict[str, float | None]  # the other scores
    group_correct: GroupCounts | None = Field(default=None, exclude_if=lambda value: value is None)  # as in the result


class ClaimCheck(Record):
    """A claim of a result, and the verdict of a re-run on it."""

    claim: str  # the field of the result
    verdict: Verdict
    said: str = ""

    @property
    def is_about_code(self) -> bool:
        """Whether the claim is that the same code made the result."""
        return self.claim.startswith(CODE_CLAIM)


class Rerun(SealedRecord):
    """The record of a re-run of all seeds, or of some seeds (a quick look)."""

    schema_version: Literal[2] = 2
    digest: str  # of the result's spec
    content: str  # digest of the result's evidence: a result that changed was not run again
    seeds: tuple[SeedRerun, ...] = Field(min_length=1)
    claims: tuple[ClaimCheck, ...] = ()  # empty for a quick look
    tolerance: str
    by: str | None = None  # who ran it, as far as that was given
    provenance: dict[str, Any]  # machine, versions, commit, and digests of the code
    seal: str = ""  # over all of the above, as it was written; a record without one is no evidence

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of the re-run seeds, or `differs` if a claim of the result is false."""
        found = {seed.outcome for seed in self.seeds}
        if "differs" in found or self.false_claims:
            return "differs"
        return "same within tolerance" if "same within tolerance" in found else "same predictions"

    @property
    def agrees(self) -> bool:
        """Whether no seed and no claim contradicts the result."""
        return self.outcome != "differs"

    @property
    def false_claims(self) -> tuple[ClaimCheck, ...]:
        """The claims of the result that the re-run found to be false."""
        return tuple(claim for claim in self.claims if claim.verdict == "differs")

    @property
    def accuracy(self) -> float:
        """The mean accuracy over the re-run seeds."""
        return sum(seed.accuracy for seed in self.seeds) / len(self.seeds)
