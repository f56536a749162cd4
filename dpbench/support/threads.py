"""Choose the number of computing threads, and let idle threads sleep.

The time of a `dp-sgd` step on n rows of d features, with one thread and with two, on two busy cores:

======== ======= ======================== ==========================
n x d    one     two that sleep at once   two that spin (the default)
======== ======= ======================== ==========================
0.08 M   3.5 ms  4.1 ms                   313 ms
2.6 M    13 ms   15 ms                    308 ms
12.8 M   26 ms   19 ms                    566 ms
51 M     192 ms  127 ms                   -
======== ======= ======================== ==========================

Idle threads therefore sleep, and fits on few numbers use a single thread.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Found = TypeVar("Found")

MULTITHREADED_FROM = 10_000_000  # numbers in the private features from which more than one thread is worth while


def let_idle_threads_sleep() -> None:
    """Make OpenMP's idle threads sleep while they wait; call this before torch is imported.

    By default idle threads spin on a core that another process could use. OMP_WAIT_POLICY in the environment takes
    precedence.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def choose_thread_count(feature_values: int) -> int:
    """Return the number of threads for a fit on this many feature values: 1, or all threads that torch may use."""
    import torch

    return torch.get_num_threads() if feature_values >= MULTITHREADED_FROM else 1


@contextmanager
def limit_threads(threads: int) -> Iterator[None]:
    """While the block runs, limit torch and any BLAS or OpenMP that is loaded to this many threads."""
    import torch

    before = torch.get_num_threads()
    with _find_thread_pools(len(sys.modules)).limit(limits=threads):
        torch.set_num_threads(threads)  # MKL's too, which threadpoolctl does not find inside torch
        try:
            yield
        finally:
            torch.set_num_threads(before)


@lru_cache(1)
def _find_thread_pools(modules: int) -> ThreadpoolController:
    """Return the BLAS and OpenMP libraries that are loaded; `modules`, how many are imported, is the key of the cache.

    To look through all libraries of a process takes as long as a small fit.
    """
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@lru_cache(1)
def thread_pool(count: int, process_id: int) -> ThreadPoolExecutor:
    """Return a pool of `count` threads for this process; forked processes create their own."""
    return ThreadPoolExecutor(count, thread_name_prefix=f"dpbench-{process_id}")


def start_in_thread(work: Callable[[], Found], count: int) -> Callable[[], Found]:
    """Start `work` in another thread if `count` > 1, and return a function that waits for its result.

    With one thread, the work runs when that function is called.
    """
    return thread_pool(count - 1, os.getpid()).submit(work).result if count > 1 else work


def run_in_threads(work: Callable[[], Found], count: int) -> list[Found]:
    """Call `work` in up to `count` threads at once, one in the current thread; return the results of all calls made.

    `work` must take tasks from a queue that all calls share, until the queue is empty. When the call in the current
    thread ends, nothing is left to take, so calls that have not started are cancelled.
    """
    others = [thread_pool(count - 1, os.getpid()).submit(work) for _ in range(count - 1)]
    try:
        first = work()
    finally:
        begun = [other for other in others if not other.cancel()]
        if begun:  # waiting for none takes 10 microseconds
            wait(begun)  # whatever happens, as they work on the caller's arrays
    return [first, *(other.result() for other in begun)]
