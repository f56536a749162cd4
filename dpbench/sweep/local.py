"""Run cells on worker processes of this machine.

`concurrent.futures` and loky are not used: when one of their workers is killed, they abandon all other workers and
every running cell, and do not say which cell the worker was running. Here each worker has its own pipe. If a worker
dies, only its cell has to run again, and the death is attributed to that cell. If the parent is gone, a worker reads
the end of its pipe and exits. Lines of JSON need no pickle. (A pool of one process per worker would show which worker
died, but it would still pickle, import the caller's script again and outlive a parent that is killed.) A single worker
is a process too, so a cell that is killed does not end the sweep.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dpbench.errors import DpbenchError
from dpbench.sweep.cell_files import SweepFolder
from dpbench.sweep.executor import MAX_TRIES, THREAD_VARIABLES, CellOutcome
from dpbench.sweep.grid import Cell
from dpbench.sweep.worker import READY


class WorkerDiedError(Exception):
    """Raised if a worker process ends without an answer."""


@dataclass(frozen=True)
class LocalPool:
    """Worker processes that live as long as the sweep; if there are several GPUs, each process uses one GPU."""

    workers: int
    threads: int  # per worker
    device: str
    gpus: tuple[str, ...]  # as CUDA_VISIBLE_DEVICES names them; empty: all workers see what this process sees
    folder: SweepFolder

    def run(self, cells: Sequence[Cell]) -> Generator[CellOutcome]:
        """Run cells and yield the outcome of each cell as it arrives; closing the iterator stops all workers.

        Raises:
            DpbenchError: a worker cannot be started.
        """
        shared = _SharedPoolState()
        for cell in cells:
            shared.cells.put(cell)
        indices = range(min(self.workers, len(cells)))
        threads = [threading.Thread(target=self._feed_worker, args=(index, shared), daemon=True) for index in indices]
        for thread in threads:
            thread.start()
        try:
            for _ in cells:
                outcome = shared.outcomes.get()
                if isinstance(outcome, BaseException):
                    raise outcome
                yield outcome
        finally:
            shared.end()
            for thread in threads:
                thread.join()

    def _feed_worker(self, index: int, shared: _SharedPoolState) -> None:
        """Feed cells to a worker, and replace the worker if it dies."""
        worker = None
        try:
            while not shared.ended:
                cell = shared.cells.get_nowait()
                for attempt in range(MAX_TRIES):
                    worker = worker or self._start_worker(index, shared)
                    try:
                        shared.outcomes.put(CellOutcome.from_answer(cell, worker.ask(cell.request)))
                        break
                    except WorkerDiedError:
                        if shared.ended:
                            return
                        worker.end()
                        worker = None
                        self.folder.log(
                            f"killed   a worker running {cell.file_name}, try {attempt + 1} of {MAX_TRIES}  ({cell})"
                        )
                else:
                    shared.outcomes.put(CellOutcome.from_killed_workers(cell))
        except queue.Empty:
            return
        except BaseException as error:  # any error at all: the sweep must not wait for an outcome that never comes
            shared.outcomes.put(error)
        finally:
            if worker is not None:
                worker.end()

    def _start_worker(self, index: int, shared: _SharedPoolState) -> _WorkerProcess:
        environment = {
            **os.environ,
            **dict.fromkeys(THREAD_VARIABLES, str(self.threads)),
            "PYTHONPATH": _get_import_path(),
        }
        if self.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self.gpus[index % len(self.gpus)]
        try:
            with self.folder.log_file.open("ab") as log:
                worker = _WorkerProcess(self.device, self.threads, environment, log.fileno())
            shared.add(worker)
            worker.expect_line(READY)
        except (OSError, WorkerDiedError) as error:
            if shared.ended:
                raise WorkerDiedError from None
            why = str(error) or "it ended at once"
            raise DpbenchError(f"A worker process could not be started ({why}). See {self.folder.log_file}.") from error
        return worker


class _WorkerProcess:
    """A worker process that reads one line at a time and answers it."""

    def __init__(self, device: str, threads: int, environment: dict[str, str], log: int) -> None:
        command = [sys.executable, "-P", "-m", "dpbench.sweep.worker", device, str(threads)]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, encoding="utf-8"
        )

    def ask(self, line: str) -> str:
        """Send a line to the worker and return its answer.

        Raises:
            WorkerDiedError: no answer came.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
        except (OSError, ValueError) as error:  # ValueError: the pipe is closed
            raise WorkerDiedError from error
        return self._read_answer()

    def expect_line(self, line: str) -> None:
        """Wait for the worker's first line; raise `WorkerDiedError` unless it is `line`."""
        if self._read_answer() != line:
            raise WorkerDiedError

    def end(self) -> None:
        """Kill the process, wait until it ends, and close its pipes."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):  # nobody needs what was not sent yet
                assert pipe is not None
                pipe.close()

    def _read_answer(self) -> str:
        assert self.process.stdout is not None
        answer = self.process.stdout.readline()
        if not answer.endswith("\n"):
            raise WorkerDiedError
        return answer.rstrip("\n")


@dataclass
class _SharedPoolState:
    """The state that all threads share; each thread feeds one worker."""

    cells: queue.SimpleQueue[Cell] = field(default_factory=queue.SimpleQueue)
    outcomes: queue.SimpleQueue[CellOutcome | BaseException] = field(default_factory=queue.SimpleQueue)
    ended: bool = False
    _workers: list[_WorkerProcess] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, worker: _WorkerProcess) -> None:
        """Register a worker to be stopped with the others, or stop it at once if they have already been stopped."""
        with self._lock:
            self._workers.append(worker)
            if self.ended:
                worker.process.kill()

    def end(self) -> None:
        """Stop all workers."""
        with self._lock:
            self.ended = True
            for worker in self._workers:
                worker.process.kill()


def _get_import_path() -> str:
    """Return this process's import path, so that workers find the same plugins."""
    return os.pathsep.join(part or str(Path.cwd()) for part in sys.path)
