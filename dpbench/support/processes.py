"""Provide a pool of worker processes that end silently on Ctrl-C."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import InvalidStateError, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess

from dpbench.support import malloc


class _SigintBlockedProcess(SpawnProcess):
    """A process that blocks Ctrl-C (SIGINT) from its start; its parent process ends it."""

    def start(self) -> None:
        """Start the process with SIGINT blocked; the new process inherits the signal mask."""
        resource_tracker.ensure_running()  # or this process would start it below, and unblock SIGINT as it does
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _SigintBlockedContext(SpawnContext):
    Process = _SigintBlockedProcess


def collect_garbage_rarely() -> None:
    """Collect garbage only after 100,000 new objects: records leave no cycles, and collecting took 10% of the time."""
    gc.set_threshold(100_000)


def _initialise_worker_process() -> None:
    collect_garbage_rarely()
    malloc.return_freed_memory()


@contextmanager
def process_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a process pool; its workers finish their work, or are killed if the block is interrupted.

    Workers are spawned, because forked children of a process with threads, such as torch's, may hang. Workers
    collect garbage rarely (`collect_garbage_rarely`) and return freed memory to the system.
    """
    with ProcessPoolExecutor(workers, _SigintBlockedContext(), _initialise_worker_process) as pool:
        try:
            yield pool
        except KeyboardInterrupt:
            threading.excepthook = _report_thread_error  # for good: threads of the pool may outlive this block
            processes = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in processes:
                worker.kill()
            raise


def _report_thread_error(error: threading.ExceptHookArgs) -> None:
    """Report a thread's error, except the error that Python 3.11 raises by mistake for cancelled futures."""
    if not issubclass(error.exc_type, InvalidStateError):
        threading.__excepthook__(error)
