"""The record of the museum's visits, one per exhibit, from which the board shows it. The museum writes the file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal, get_args

from pydantic import TypeAdapter

from dpbench.support.validation import Record

FILE = Path(__file__).parent / "record.json"

Guard = Literal[
    "cannot be written", "changes nothing", "while running", "dpbench check", "audit: sensitivity", "audit: noise",
    "audit: attack", "second accountant", "valid bound", "board",
]  # fmt: skip
GUARDS: tuple[Guard, ...] = get_args(Guard)


class ExhibitRecord(Record):
    """The record of a visit to an exhibit."""

    name: str
    summary: str
    source: str
    claimed: float | None  # epsilon; None where it is not what is wrong, or nobody knows the true one
    true: float | None
    passed: tuple[Guard, ...]  # who was asked, and let it pass
    stopped: tuple[Guard, ...]  # who stopped it

    @property
    def epsilon(self) -> str:
        """The claimed and the actual epsilon."""
        return "" if self.claimed is None or self.true is None else f"{_short(self.claimed)} → {_short(self.true)}"


def read_museum_record() -> tuple[ExhibitRecord, ...]:
    """Return the committed records."""
    return TypeAdapter(tuple[ExhibitRecord, ...]).validate_json(FILE.read_bytes())


def _short(epsilon: float) -> str:
    return "∞" if math.isinf(epsilon) else f"{epsilon:.3g}"
