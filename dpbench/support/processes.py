"""A pool of processes that Ctrl-C ends without a word of theirs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import InvalidStateError, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess


class _DeafProcess(SpawnProcess):
    """A process that never hears of Ctrl-C, from its first moment on: the parent ends it."""

    def start(self) -> None:
        """Start with SIGINT blocked, which a new program inherits."""
        resource_tracker.ensure_running()  # or this process would start it below, and unblock SIGINT as it does
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _DeafContext(SpawnContext):
    Process = _DeafProcess


@contextmanager
def process_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool whose workers end at once where the block is interrupted, and after their work otherwise.

    They are started anew: forked children of a process that has threads, as torch's, may hang.
    """
    with ProcessPoolExecutor(workers, _DeafContext()) as pool:
        try:
            yield pool
        except KeyboardInterrupt:
            threading.excepthook = _say_thread_error  # for good: threads of the pool may outlive this block
            processes = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in processes:
                worker.kill()
            raise


def _say_thread_error(error: threading.ExceptHookArgs) -> None:
    """Say what ended a thread, but for Python 3.11's slip of telling futures that were cancelled of dead workers."""
    if not issubclass(error.exc_type, InvalidStateError):
        threading.__excepthook__(error)
