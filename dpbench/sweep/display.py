"""Progress of a sweep: one bar on a terminal, a line every minute otherwise."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from dpbench.support.messages import duration
from dpbench.sweep.executors import Executor

INTERVAL = 60.0  # seconds between lines


class Count:
    """How many cells are done, running and failed, and how fast it goes."""

    def __init__(self, total: int, executor: Executor) -> None:
        self.total, self.done, self.failed, self._executor = total, 0, 0, executor
        self._begin = time.monotonic()

    @property
    def running(self) -> int:
        """How many cells are running."""
        return min(self._executor.workers, self.total - self.done - self.failed)

    def __str__(self) -> str:
        ended = self.done + self.failed
        rate = ended / max(time.monotonic() - self._begin, 1e-9)  # cells per second
        pace = f", {60 * rate:.1f} per minute, {duration((self.total - ended) / rate)} left" if ended else ""
        return f"{self.done} done, {self.running} running, {self.failed} failed{pace}"


@contextmanager
def shown(name: str, count: Count) -> Iterator[None]:
    """Show the count while the block runs, on standard error."""
    console, ended = Console(stderr=True), threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[count]}"))
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(f"Sweep {name}", total=count.total, count=count)

        def refresh() -> None:
            while not ended.wait(0.2 if console.is_terminal else INTERVAL):
                if console.is_terminal:
                    progress.update(task, completed=count.done + count.failed, count=str(count))
                else:
                    print(f"dpbench: sweep {name}, {count.total} cells: {count}", file=sys.stderr, flush=True)

        thread = threading.Thread(target=refresh, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
