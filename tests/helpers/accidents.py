"""The thirty accidents of `accidents.toml`, with what stops each, and their table."""

from __future__ import annotations

import tomllib
from collections import defaultdict
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


def table() -> str:
    """Return the table of the page on epsilon: names by kind and outcome."""
    outcomes = ("refused", "found by check", NOT_COVERED)
    named: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, accident in ACCIDENTS.items():
        named[accident.kind, accident.outcome].append(f"`{name}`")
    lines = [f"| accident of | {' | '.join(outcomes)} |", "|---|---|---|---|"]
    for kind in dict.fromkeys(accident.kind for accident in ACCIDENTS.values()):
        lines.append(f"| {kind} | {' | '.join(', '.join(named[kind, outcome]) for outcome in outcomes)} |")
    return "\n".join(lines)
