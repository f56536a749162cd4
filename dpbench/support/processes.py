"""A pool of worker processes that end silently on Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import InvalidStateError, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess


class _SigintBlockedProcess(SpawnProcess):
    """A process in which Ctrl-C is blocked from its start; its parent ends it."""

    def start(self) -> None:
        """Start with SIGINT blocked, which a new program inherits."""
        resource_tracker.ensure_running()  # or this process would start it below, and unblock SIGINT as it does
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _SigintBlockedContext(SpawnContext):
    Process = _SigintBlockedProcess


@contextmanager
def process_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool whose workers are killed if the block is interrupted, and otherwise end after their work.

    Workers are spawned: forked children of a process that has threads, such as torch's, may hang.
    """
    with ProcessPoolExecutor(workers, _SigintBlockedContext()) as pool:
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
    """Report a thread's error, but not Python 3.11's bug of reporting dead workers to cancelled futures."""
    if not issubclass(error.exc_type, InvalidStateError):
        threading.__excepthook__(error)
