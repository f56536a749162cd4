"""The thirty accidents of `accidents.toml`, with what stops each."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NOT_COVERED = "not covered"


@dataclass(frozen=True)
class AccidentOutcome:
    """What somebody does by accident, and what dpbench does about it."""

    kind: str
    does: str
    outcome: str  # refused, found by check, or not covered
    why: str = ""  # for "not covered": the words of the list of what is not covered

    @property
    def expected(self) -> str:
        """What a test observes: nothing stops an accident that is not covered."""
        return "silent" if self.outcome == NOT_COVERED else self.outcome


ACCIDENTS: Mapping[str, AccidentOutcome] = {
    name: AccidentOutcome(**accident)
    for name, accident in tomllib.loads(Path(__file__).with_name("accidents.toml").read_text("utf-8")).items()
}
