"""What runs cells: one small interface, and what comes out of it."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

from dpbench.records.result import Result
from dpbench.sweep.grid import Cell

TRIES = 2  # a cell that ends this many workers is taken for the cause


@dataclass(frozen=True)
class Outcome:
    """A cell that was run: its result, or what it failed of."""

    cell: Cell
    result: Result | None = None
    error: str = ""

    @classmethod
    def of(cls, cell: Cell, answer: str) -> Outcome:
        """Read what `Memory.work` gives; a result of another spec is an error."""
        content = json.loads(answer)
        if "error" in content:
            return cls(cell, error=content["error"])
        result = Result.model_validate(content["result"])
        if result.digest != cell.digest:
            return cls(
                cell, error=f"Expected the result of {cell.digest}, got {result.digest}: versions of plugins differ."
            )
        return cls(cell, result)

    @classmethod
    def deadly(cls, cell: Cell) -> Outcome:
        """Return the outcome of a cell whose workers died."""
        return cls(cell, error=f"{TRIES} worker processes died of it, killed, out of memory or out of time.")


class Executor(Protocol):
    """Runs cells in any order and on any number of workers: an outcome depends on its cell alone."""

    @property
    def workers(self) -> int:
        """How many cells run at a time, as far as is known."""

    def run(self, cells: Sequence[Cell]) -> Generator[Outcome]:
        """Yield one outcome a cell, as soon as there is one; closing the iterator ends all workers that were started.

        Raises:
            DpbenchError: no worker can be started or reached.
        """
