"""The stored record of each exhibit, which the command and the site show. `matrix` writes the file."""

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
    """An exhibit's description, its epsilons, and the guards that missed or caught it."""

    name: str
    summary: str
    source: str
    claimed: float | None  # epsilon; None where it is not what is wrong, or nobody knows the true one
    true: float | None
    passed: tuple[Guard, ...]  # who was asked, and let it pass
    stopped: tuple[Guard, ...]  # who stopped it

    @property
    def epsilon(self) -> str:
        """The claimed and the actual epsilon as text; empty if either is unknown."""
        return (
            ""
            if self.claimed is None or self.true is None
            else f"{_format_epsilon(self.claimed)} → {_format_epsilon(self.true)}"
        )


def read_museum_record() -> tuple[ExhibitRecord, ...]:
    """Read the records from `record.json`."""
    return TypeAdapter(tuple[ExhibitRecord, ...]).validate_json(FILE.read_bytes())


def _format_epsilon(epsilon: float) -> str:
    return "∞" if math.isinf(epsilon) else f"{epsilon:.3g}"
