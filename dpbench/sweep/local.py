"""Cells on worker processes of this machine.

Not `concurrent.futures` nor loky: when one of their workers is killed, they give up all others and every running cell,
and do not say which cell it was. Here each worker has a pipe of its own, so a death costs one cell its run and is laid
to that cell; a worker whose parent is gone reads the end of its pipe and ends; and lines of JSON need no pickle. A
single worker is a process too: a cell that is killed does not take the sweep down.
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
from dpbench.sweep.executor import TRIES, Outcome
from dpbench.sweep.folder import Folder
from dpbench.sweep.grid import Cell
from dpbench.sweep.worker import READY

COUNTED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Died(Exception):
    """A worker ended without an answer."""


@dataclass(frozen=True)
class LocalPool:
    """Processes that live as long as the sweep; of several GPUs each has one."""

    workers: int
    threads: int  # of each
    device: str
    gpus: tuple[str, ...]  # as CUDA_VISIBLE_DEVICES names them; none: all workers see what this process sees
    folder: Folder

    def run(self, cells: Sequence[Cell]) -> Generator[Outcome]:
        """Yield one outcome a cell, as soon as there is one; closing the iterator ends all workers.

        Raises:
            DpbenchError: a worker cannot be started.
        """
        shared = _Shared()
        for cell in cells:
            shared.cells.put(cell)
        places = range(min(self.workers, len(cells)))
        threads = [threading.Thread(target=self._serve, args=(place, shared), daemon=True) for place in places]
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

    def _serve(self, place: int, shared: _Shared) -> None:
        """Feed one worker, and start another where it dies."""
        worker = None
        try:
            while not shared.ended:
                cell = shared.cells.get_nowait()
                for attempt in range(TRIES):
                    worker = worker or self._started(place, shared)
                    try:
                        shared.outcomes.put(Outcome.of(cell, worker.ask(cell.spec.model_dump_json())))
                        break
                    except Died:
                        if shared.ended:
                            return
                        worker.end()
                        worker = None
                        self.folder.log(
                            f"killed   a worker died in {cell.file_name}, time {attempt + 1} of {TRIES}  ({cell})"
                        )
                else:
                    shared.outcomes.put(Outcome.deadly(cell))
        except queue.Empty:
            return
        except BaseException as error:  # whatever it is: the sweep must not wait for an outcome that never comes
            shared.outcomes.put(error)
        finally:
            if worker is not None:
                worker.end()

    def _started(self, place: int, shared: _Shared) -> _Worker:
        environment = {**os.environ, **dict.fromkeys(COUNTED, str(self.threads)), "PYTHONPATH": _path()}
        if self.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self.gpus[place % len(self.gpus)]
        try:
            with self.folder.log_file.open("ab") as log:
                worker = _Worker(self.device, self.threads, environment, log.fileno())
            shared.add(worker)
            worker.expect(READY)
        except (OSError, Died) as error:
            if shared.ended:
                raise Died from None
            raise DpbenchError(
                f"A worker process could not be started ({error or 'it ended at once'}). See {self.folder.log_file}."
            ) from error
        return worker


class _Worker:
    """One process, asked a line at a time."""

    def __init__(self, device: str, threads: int, environment: dict[str, str], log: int) -> None:
        command = [sys.executable, "-P", "-m", "dpbench.sweep.worker", device, str(threads)]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, encoding="utf-8"
        )

    def ask(self, line: str) -> str:
        """Return the answer to one line.

        Raises:
            Died: there is none.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
        except (OSError, ValueError) as error:  # the second, where the pipe is closed
            raise Died from error
        return self._answer()

    def expect(self, line: str) -> None:
        """Wait for the worker's first line."""
        if self._answer() != line:
            raise Died

    def end(self) -> None:
        """Kill the process, wait for it and close its pipes."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):  # what was not sent yet is for nobody
                assert pipe is not None
                pipe.close()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        answer = self.process.stdout.readline()
        if not answer.endswith("\n"):
            raise Died
        return answer.rstrip("\n")


@dataclass
class _Shared:
    """What the threads that feed workers share."""

    cells: queue.SimpleQueue[Cell] = field(default_factory=queue.SimpleQueue)
    outcomes: queue.SimpleQueue[Outcome | BaseException] = field(default_factory=queue.SimpleQueue)
    ended: bool = False
    _workers: list[_Worker] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, worker: _Worker) -> None:
        """Note a worker, to be ended with the others; at once, if they are."""
        with self._lock:
            self._workers.append(worker)
            if self.ended:
                worker.process.kill()

    def end(self) -> None:
        """End all workers."""
        with self._lock:
            self.ended = True
            for worker in self._workers:
                worker.process.kill()


def _path() -> str:
    """Return where this process imports from: a worker must find the same plugins."""
    return os.pathsep.join(part or str(Path.cwd()) for part in sys.path)
