"""Cells on a Dask cluster: one that is already running, or worker processes of this machine.

On a cluster started here, a cell during which two workers died is taken to be the cause (`allowed-failures`), and a
worker holds one cell at a time (`worker-saturation`), so that no cell is blamed for its neighbour. Other schedulers
have their own configuration. Features are read from each worker's cache folder: with several machines, point
`DPBENCH_CACHE` at a shared one.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
from distributed import Client, LocalCluster, WorkerPlugin, as_completed, get_worker
from distributed.scheduler import KilledWorker

from dpbench.errors import DpbenchError
from dpbench.sweep.executors import MAX_TRIES, THREAD_VARIABLES, Outcome
from dpbench.sweep.grid import Cell

if TYPE_CHECKING:
    from dpbench.sweep.memory import Memory

CONNECT_TIMEOUT = 5  # seconds: with imports before and cleanup after, the command ends within 10
POLL = 0.05  # seconds between looks at what has finished
CONFIG = {"distributed.scheduler.allowed-failures": MAX_TRIES - 1, "distributed.scheduler.worker-saturation": 1.0}


class Remembering(WorkerPlugin):
    """Gives each worker process a `Memory` that lives as long as the sweep's client."""

    name = "dpbench-sweep"

    def __init__(self, gpus: tuple[str, ...] = (), log_file: Path | None = None) -> None:
        self._gpus, self._log_file = gpus, log_file

    def setup(self, worker: Any) -> None:
        """Set up the worker before its first cell."""
        self._lock = threading.Lock()
        self._memory: Memory | None = None
        if self._log_file is not None:
            with self._log_file.open("ab") as log:
                for stream in (1, 2):  # what plugins print
                    os.dup2(log.fileno(), stream)
        if self._gpus:  # a cluster started here names its workers by number
            os.environ["CUDA_VISIBLE_DEVICES"] = self._gpus[int(worker.name) % len(self._gpus)]

    def work(self, spec: str, device: str, threads: int) -> str:
        """Run one cell at a time, however many threads the worker has."""
        from dpbench.sweep.memory import Memory  # imports torch, so only after CUDA_VISIBLE_DEVICES is set

        with self._lock:
            self._memory = self._memory or Memory()
            return self._memory.work(spec, device, threads)


def work(spec: str, device: str, threads: int) -> str:
    """Run one cell on the worker where this is called."""
    plugin: Any = get_worker().plugins[Remembering.name]
    return str(plugin.work(spec, device, threads))


@dataclass
class DaskCluster:
    """The workers of a Dask scheduler or, without an address, processes of this machine.

    Local processes are started by `multiprocessing`, which imports the main script again: guard it with
    `if __name__ == "__main__":`.

    Raises:
        DpbenchError: no scheduler answers at the address.
    """

    scheduler: str | None
    workers: int  # to start; with a scheduler, how many it had when it answered
    threads: int
    device: str
    gpus: tuple[str, ...]
    log_file: Path  # for the output of workers started here

    def __post_init__(self) -> None:
        """Refuse a scheduler that does not answer, before data is prepared."""
        if self.scheduler is not None:
            with connected(self.scheduler) as client:
                self.workers = len(client.nthreads())

    def run(self, cells: Sequence[Cell]) -> Generator[Outcome]:
        """Yield one outcome per cell as it comes; closing the iterator stops the workers started here.

        Raises:
            DpbenchError: workers cannot be started, or the scheduler is gone.
        """
        with ExitStack() as stack:
            address = self.scheduler or stack.enter_context(self._started())
            client = stack.enter_context(connected(address))
            client.register_plugin(Remembering() if self.scheduler else Remembering(self.gpus, self.log_file.resolve()))
            yield from outcomes(client, cells, self.device, self.threads)

    def _started(self) -> Any:
        threads = dict.fromkeys(THREAD_VARIABLES, str(self.threads))
        try:
            with dask.config.set({**CONFIG, "distributed.nanny.pre-spawn-environ": threads}):
                return LocalCluster(  # type: ignore[no-untyped-call]
                    n_workers=self.workers, threads_per_worker=1, processes=True, host="127.0.0.1",
                    dashboard_address=None, memory_limit=None, silence_logs=logging.CRITICAL,
                )  # fmt: skip
        except (RuntimeError, OSError) as error:
            raise DpbenchError(
                f"Dask could not start workers: {error} A script that calls sweep needs "
                'if __name__ == "__main__":, because every worker imports the script.'
            ) from error


def outcomes(
    client: Any, cells: Sequence[Cell], device: str, threads: int, on_poll: Callable[[], None] = lambda: None
) -> Generator[Outcome]:
    """Yield one outcome per cell as it comes; `on_poll` is called repeatedly while cells are left.

    Raises:
        DpbenchError: the scheduler is gone, or whatever `on_poll` raises.
    """
    address, pending = client.scheduler.address, {}
    for cell in cells:
        spec = cell.spec.model_dump_json()
        pending[client.submit(work, spec, device, threads, pure=False)] = cell
    completed = as_completed(list(pending), loop=client.loop)  # type: ignore[no-untyped-call]
    while pending:
        batch = completed.next_batch(block=False)  # type: ignore[no-untyped-call]
        for future in batch:
            yield _outcome(future, pending.pop(future), address)
        on_poll()
        if not batch:
            time.sleep(POLL)


def _outcome(future: Any, cell: Cell, address: str) -> Outcome:
    if future.status == "finished":
        return Outcome.of(cell, future.result())
    if future.status != "error":
        raise DpbenchError(
            f"The Dask scheduler {address} is gone. Finished cells are kept; to continue, start the scheduler again "
            "and repeat the command."
        )
    error = future.exception()
    if isinstance(error, KilledWorker):
        return Outcome.killed(cell)
    return Outcome(cell, error=f"{type(error).__name__} on a Dask worker: {error}")


def connected(address: Any) -> Any:
    """Return a client of a cluster, or of the scheduler at an address.

    Raises:
        DpbenchError: no scheduler answers.
    """
    try:
        return Client(address, timeout=CONNECT_TIMEOUT, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise DpbenchError(
            f"No Dask scheduler answers at {address}. Start one with `dask scheduler`, and workers with "
            "`dask worker ADDRESS`; or leave out --scheduler to use workers on this machine."
        ) from error
