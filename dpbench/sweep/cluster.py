"""Cells on a Dask cluster: one that is running already, or worker processes of this machine.

On a cluster of ours, a cell that ends two workers is taken for the cause (`allowed-failures`), and a worker holds one
cell at a time (`worker-saturation`), so that none is blamed for its neighbour. Other schedulers have settings of their
own. Features are read from each worker's cache folder: on several machines let `DPBENCH_CACHE` name a shared one.
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
from dpbench.sweep.executor import TRIES, Outcome
from dpbench.sweep.grid import Cell
from dpbench.sweep.local import COUNTED

if TYPE_CHECKING:
    from dpbench.sweep.memory import Memory

PATIENCE = 5  # seconds to wait for a scheduler: with imports before and closing after it, a command ends in 10
PAUSE = 0.05  # seconds between looks at what has come
SETTINGS = {"distributed.scheduler.allowed-failures": TRIES - 1, "distributed.scheduler.worker-saturation": 1.0}


class Remembering(WorkerPlugin):
    """Gives each worker process a memory, which lives as long as the sweep's client."""

    name = "dpbench-sweep"

    def __init__(self, gpus: tuple[str, ...] = (), log_file: Path | None = None) -> None:
        self._gpus, self._log_file = gpus, log_file

    def setup(self, worker: Any) -> None:
        """Begin, on the worker, before its first cell."""
        self._lock = threading.Lock()
        self._memory: Memory | None = None
        if self._log_file is not None:
            with self._log_file.open("ab") as log:
                for stream in (1, 2):  # what plugins print
                    os.dup2(log.fileno(), stream)
        if self._gpus:  # workers of our own cluster are named by numbers
            os.environ["CUDA_VISIBLE_DEVICES"] = self._gpus[int(worker.name) % len(self._gpus)]

    def work(self, spec: str, device: str, threads: int) -> str:
        """Run one cell at a time, whatever number of threads the worker has."""
        from dpbench.sweep.memory import Memory  # which imports torch: after CUDA_VISIBLE_DEVICES is set

        with self._lock:
            self._memory = self._memory or Memory()
            return self._memory.work(spec, device, threads)


def work(spec: str, device: str, threads: int) -> str:
    """Run one cell on the worker that this is called on."""
    plugin: Any = get_worker().plugins[Remembering.name]
    return str(plugin.work(spec, device, threads))


@dataclass
class DaskCluster:
    """Workers of a Dask scheduler; without the address of one, processes of this machine.

    Those are started by `multiprocessing`, which imports the main script again: let it begin with
    `if __name__ == "__main__":`.

    Raises:
        DpbenchError: no scheduler answers at the address.
    """

    scheduler: str | None
    workers: int  # to start, or, from a scheduler's answer on, those it had then
    threads: int
    device: str
    gpus: tuple[str, ...]
    log_file: Path  # for what workers of ours print

    def __post_init__(self) -> None:
        """Refuse a scheduler that does not answer, before anything is prepared."""
        if self.scheduler is not None:
            with connected(self.scheduler) as client:
                self.workers = len(client.nthreads())

    def run(self, cells: Sequence[Cell]) -> Generator[Outcome]:
        """Yield one outcome a cell, as soon as there is one; closing the iterator ends workers that were started here.

        Raises:
            DpbenchError: workers cannot be started, or the scheduler is gone.
        """
        with ExitStack() as stack:
            address = self.scheduler or stack.enter_context(self._started())
            client = stack.enter_context(connected(address))
            client.register_plugin(Remembering() if self.scheduler else Remembering(self.gpus, self.log_file.resolve()))
            yield from outcomes(client, cells, self.device, self.threads)

    def _started(self) -> Any:
        threads = dict.fromkeys(COUNTED, str(self.threads))
        try:
            with dask.config.set({**SETTINGS, "distributed.nanny.pre-spawn-environ": threads}):
                return LocalCluster(  # type: ignore[no-untyped-call]
                    n_workers=self.workers, threads_per_worker=1, processes=True, host="127.0.0.1",
                    dashboard_address=None, memory_limit=None, silence_logs=logging.CRITICAL,
                )  # fmt: skip
        except (RuntimeError, OSError) as error:
            raise DpbenchError(
                f"Dask could not start workers: {error} A script that calls sweep must begin with "
                'if __name__ == "__main__":, as every worker imports it.'
            ) from error


def outcomes(
    client: Any, cells: Sequence[Cell], device: str, threads: int, look: Callable[[], None] = lambda: None
) -> Generator[Outcome]:
    """Yield one outcome a cell, as soon as there is one; `look` is called again and again while cells are left.

    Raises:
        DpbenchError: the scheduler is gone, or what `look` raises.
    """
    address, asked = client.scheduler.address, {}
    for cell in cells:
        spec = cell.spec.model_dump_json()
        asked[client.submit(work, spec, device, threads, pure=False)] = cell
    completed = as_completed(list(asked), loop=client.loop)  # type: ignore[no-untyped-call]
    while asked:
        batch = completed.next_batch(block=False)  # type: ignore[no-untyped-call]
        for future in batch:
            yield _outcome(future, asked.pop(future), address)
        look()
        if not batch:
            time.sleep(PAUSE)


def _outcome(future: Any, cell: Cell, address: str) -> Outcome:
    if future.status == "finished":
        return Outcome.of(cell, future.result())
    if future.status != "error":
        raise DpbenchError(
            f"The Dask scheduler {address} is gone. What is finished is kept; start it again, and the same command "
            "goes on from there."
        )
    error = future.exception()
    if isinstance(error, KilledWorker):
        return Outcome.deadly(cell)
    return Outcome(cell, error=f"{type(error).__name__} on a Dask worker: {error}")


def connected(address: Any) -> Any:
    """Return a client of the scheduler at an address, or of a cluster.

    Raises:
        DpbenchError: none answers.
    """
    try:
        return Client(address, timeout=PATIENCE, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise DpbenchError(
            f"No Dask scheduler answers at {address}. Start one with `dask scheduler`, and workers with "
            "`dask worker ADDRESS`; or leave out --scheduler for workers of this machine."
        ) from error
