"""The report on a file: what it states, what was recomputed from it, and what nobody can recompute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dpbench.board.verify.checks import CheckedFile
from dpbench.errors import LeaderboardComplaint
from dpbench.records.stated_plan import PrivacyGuarantee


def describe_accountants(privacy: PrivacyGuarantee) -> str:
    """Name the inputs and the accountants with which ε was recomputed."""
    return f"ε from the plan and σ, by {privacy.accountant} and {privacy.independent.accountant}"


@dataclass(frozen=True)
class FileReport:
    """The report on one file: what it states, what was recomputed, the contradictions, and what was not checked."""

    file: str
    kind: str
    stated: tuple[str, ...]
    recomputed: tuple[str, ...]
    complaints: tuple[LeaderboardComplaint, ...]
    unchecked: tuple[str, ...]  # what rests on the author's word, and how to check it
    numbers: Mapping[str, Any] = field(default_factory=dict)  # for programs, beside the texts
    checked: CheckedFile | None = None  # a result, which can be run again

    @property
    def passed(self) -> bool:
        """Whether the check found no contradiction."""
        return not self.complaints

    def lines(self) -> Iterator[str]:
        """Yield the report as lines for a terminal."""
        yield f"{'ok' if self.passed else 'FAILED'} {self.file}: {self.kind}"
        yield from (f"  states       {said}" for said in self.stated)
        yield from (f"  recomputed   {said}" for said in self.recomputed)
        yield from (f"  MISMATCH {complaint}" for complaint in self.complaints)
        yield from (f"  not checked  {said}" for said in self.unchecked)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "passed": self.passed,
            "kind": self.kind,
            "states": list(self.stated),
            "recomputed": list(self.recomputed),
            "mismatches": [{"name": complaint.field, "said": complaint.said} for complaint in self.complaints],
            "remarks": list(self.unchecked),
            **self.numbers,
        }
