"""The interface of executors, which run cells on local processes, Dask or Slurm."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import ValidationError

from dpbench.records.result import Result
from dpbench.support.validation import first_schema_violation
from dpbench.sweep.grid import Cell

MAX_TRIES = 2  # a cell during which this many workers died is taken to be the cause
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class CellOutcome:
    """The outcome of a cell: its result, or the error that made it fail."""

    cell: Cell
    result: Result | None = None
    error: str = ""

    @classmethod
    def from_answer(cls, cell: Cell, answer: str) -> CellOutcome:
        """Parse the answer of `CellWorker.run_cell`; a result that is invalid or of another spec becomes an error."""
        content = json.loads(answer)
        if "error" in content:
            return cls(cell, error=content["error"])
        try:
            result = Result.model_validate(content["result"])
        except ValidationError as error:
            return cls(
                cell,
                error=f"The worker's result does not fit: {first_schema_violation(error)}. The worker runs another "
                "version of dpbench.",
            )
        if result.digest != cell.digest:
            return cls(
                cell, error=f"Expected the result of {cell.digest}, got {result.digest}: versions of plugins differ."
            )
        return cls(cell, result)

    @classmethod
    def from_killed_workers(cls, cell: Cell) -> CellOutcome:
        """Return the outcome of a cell during which `MAX_TRIES` workers died."""
        return cls(cell, error=f"{MAX_TRIES} worker processes died running it: killed, out of memory or out of time.")


class SweepExecutor(Protocol):
    """Runs cells in any order on any number of workers; neither affects the outcome of a cell."""

    @property
    def workers(self) -> int:
        """The number of cells that run at the same time, as far as known."""

    def run(self, cells: Sequence[Cell]) -> Generator[CellOutcome]:
        """Run cells and yield the outcome of each cell as it arrives; closing the iterator stops all workers.

        Raises:
            DpbenchError: no worker can be started or reached.
        """
