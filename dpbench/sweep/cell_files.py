"""The files of a sweep: results, failures and a log. The next call reads from them which cells are left to run.

Layout of the folder::

    <learner>-<dataset>-<digest>.json          one result per finished cell
    failed/<learner>-<dataset>-<digest>.json   why a cell failed; deleted once it succeeds
    sweep.log                                  one line per event, for all sweeps in this folder
    .sweep.lock                                held by the sweep that is running here
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from filelock import FileLock, Timeout

from dpbench.errors import DataError, OutputError
from dpbench.records.packed import record_exists
from dpbench.records.result import Result
from dpbench.support.files import check_folder_path, check_writable_folder, open_append_file, write_json
from dpbench.support.untrusted import make_printable, parse_json, read_regular_file
from dpbench.sweep.grid import Cell

State = Literal["done", "other code", "other data", "failed", "to do"]
"""`other code`: done, but the mechanism has changed since, or the files of a plugin or of dpbench's core have changed
and no fingerprint shows that they still compute the same.
`other data`: done, but the data have changed since."""
STATES: tuple[State, ...] = get_args(State)
TO_RUN: tuple[State, ...] = ("to do", "other data")


@dataclass(frozen=True)
class SweepFolder:
    """The folder of one or more sweeps; the digests in file names tell their cells apart."""

    path: Path

    def __post_init__(self) -> None:
        """Check that the path is not a file."""
        check_folder_path(self.path)

    @property
    def log_file(self) -> Path:
        """The path of the log, which holds events and the output of workers."""
        return self.path / "sweep.log"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder while the block runs, so that no other sweep runs the same cells.

        Raises:
            OutputError: the folder cannot be written, or another sweep is running in it.
        """
        check_writable_folder(self.path)
        lock = FileLock(self.path / ".sweep.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise OutputError(
                f"Another sweep is running in {self.path}. Wait until it ends, or choose another folder with --out."
            ) from None
        except OSError as error:
            raise OutputError(
                f"Cannot lock {self.path}: {error.strerror}. Choose another folder with --out."
            ) from error
        try:
            yield
        finally:
            lock.release()

    def result(self, cell: Cell) -> Result | None:
        """Return the cell's result; None if it is missing, damaged or of another spec."""
        file = next(filter(record_exists, map(self.path.joinpath, cell.file_names)), self.path / cell.file_name)
        try:
            result = Result.read(file)
        except DataError as error:
            if record_exists(file):
                self.log(f"damaged  {cell.file_name}: {error} The cell will be run again.")
            return None
        return result if result.digest == cell.digest else None

    def read_failure(self, cell: Cell) -> str | None:
        """Return the error of a failed cell; None if the cell did not fail."""
        try:
            failure = parse_json(read_regular_file(self._failure_file(cell)), cell.file_name)
            return str(failure["error"]) if failure["digest"] == cell.digest else None
        except (OSError, DataError, KeyError, TypeError):
            return None

    def save_result(self, cell: Cell, result: Result) -> None:
        """Write a cell's result and delete its failure; the cell is then done.

        Raises:
            OutputError: the result cannot be written; nothing is written then.
        """
        result.write(self.path)
        self.delete_failure(cell)
        self.log(f"done     {cell.file_name}  {sum(result.seconds.values()):.2f} s  ({cell})")

    def delete_failure(self, cell: Cell) -> None:
        """Delete the cell's failure record, if there is one, because the cell has a result."""
        with suppress(OSError):
            self._failure_file(cell).unlink()

    def record_failure(self, cell: Cell, error: str) -> None:
        """Record the error of a failed cell.

        Raises:
            OutputError: the record cannot be written.
        """
        spec = json.loads(cell.spec.model_dump_json())
        content = {"digest": cell.digest, "cell": str(cell), "spec": spec, "error": make_printable(error)}
        write_json(self._failure_file(cell), content)
        self.log(f"failed   {cell.file_name}: {error}  ({cell})")

    def log(self, line: str) -> None:
        """Log an event; if the log cannot be written, the sweep continues."""
        with suppress(OSError), open_append_file(self.log_file) as file:
            file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {line}\n")

    def _failure_file(self, cell: Cell) -> Path:
        return self.path / "failed" / cell.file_name
