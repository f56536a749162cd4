"""Run cells on the workers of a Dask scheduler; without an address, cells run on `local` processes.

The scheduler's own configuration sets how many workers may die before it blames a cell (`allowed-failures`), and how
many cells it sends to a worker in advance (`worker-saturation`). Features are read from each worker's cache folder:
with several machines, point `DPBENCH_CACHE` at a shared folder.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from distributed import Client, WorkerPlugin, as_completed, get_worker
from distributed.scheduler import KilledWorker

from dpbench.errors import DpbenchError
from dpbench.sweep.executor import CellOutcome
from dpbench.sweep.grid import Cell
from dpbench.sweep.worker import CellWorker

CONNECT_TIMEOUT = 5  # seconds: with imports before and cleanup after, the command ends within 10
POLL = 0.05  # seconds between looks at what has finished


class CellWorkerPlugin(WorkerPlugin):
    """Gives each Dask worker process a `CellWorker` that lives as long as the sweep's client."""

    name = "dpbench-sweep"

    def setup(self, worker: Any) -> None:
        """Set up the worker before its first cell."""
        self._lock = threading.Lock()
        self._worker: CellWorker | None = None

    def run_cell(self, spec: str, device: str, threads: int) -> str:
        """Run a cell, one at a time even if Dask gives the worker several threads."""
        with self._lock:
            self._worker = self._worker or CellWorker(device, threads)
            return self._worker.run_cell(spec)


def run_cell_on_worker(spec: str, device: str, threads: int) -> str:
    """Run a cell on the Dask worker that executes this call."""
    plugin: Any = get_worker().plugins[CellWorkerPlugin.name]
    return str(plugin.run_cell(spec, device, threads))


@dataclass
class DaskCluster:
    """The workers of a Dask scheduler.

    Raises:
        DpbenchError: no scheduler answers at the address.
    """

    scheduler: str
    threads: int
    device: str
    workers: int = 0  # how many it had when it answered

    def __post_init__(self) -> None:
        """Check that the scheduler answers before data is prepared, and count its workers."""
        with connect_client(self.scheduler) as client:
            self.workers = len(client.nthreads())

    def run(self, cells: Sequence[Cell]) -> Generator[CellOutcome]:
        """Run cells and yield the outcome of each cell as it arrives.

        Raises:
            DpbenchError: the scheduler is gone.
        """
        with connect_client(self.scheduler) as client:
            client.register_plugin(CellWorkerPlugin())
            yield from stream_outcomes(client, cells, self.device, self.threads)


def stream_outcomes(
    client: Any, cells: Sequence[Cell], device: str, threads: int, on_poll: Callable[[], None] = lambda: None
) -> Generator[CellOutcome]:
    """Run cells and yield the outcome of each cell as it arrives; call `on_poll` regularly while cells are left.

    Raises:
        DpbenchError: the scheduler is gone, or whatever `on_poll` raises.
    """
    address, pending = client.scheduler.address, {}
    for cell in cells:
        pending[client.submit(run_cell_on_worker, cell.request, device, threads, pure=False)] = cell
    completed = as_completed(list(pending), loop=client.loop)  # type: ignore[no-untyped-call]
    while pending:
        batch = completed.next_batch(block=False)  # type: ignore[no-untyped-call]
        for future in batch:
            yield _get_outcome_of_future(future, pending.pop(future), address)
        on_poll()
        if not batch:
            time.sleep(POLL)


def _get_outcome_of_future(future: Any, cell: Cell, address: str) -> CellOutcome:
    if future.status == "finished":
        return CellOutcome.from_answer(cell, future.result())
    if future.status != "error":
        raise DpbenchError(
            f"The Dask scheduler {address} is gone. Finished cells are kept; to continue, start the scheduler again "
            "and repeat the command."
        )
    error = future.exception()
    if isinstance(error, KilledWorker):
        return CellOutcome.from_killed_workers(cell)
    return CellOutcome(cell, error=f"{type(error).__name__} on a Dask worker: {error}")


def connect_client(address: Any) -> Any:
    """Connect a client to a cluster, or to the scheduler at an address.

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
