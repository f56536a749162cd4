"""Show the progress of a sweep: a bar on a terminal, otherwise a line every minute."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from dpbench.support import progress
from dpbench.support.messages import format_duration
from dpbench.sweep.executor import SweepExecutor

INTERVAL = 60.0  # seconds between lines


class CellCounter:
    """The numbers of done, running and failed cells, and the pace of the sweep."""

    def __init__(self, total: int, executor: SweepExecutor) -> None:
        self.total, self.done, self.failed, self._executor = total, 0, 0, executor
        self._begin = time.monotonic()

    @property
    def running_count(self) -> int:
        """The number of cells that are running."""
        return min(self._executor.workers, self.total - self.done - self.failed)

    def __str__(self) -> str:
        ended = self.done + self.failed
        rate = ended / max(time.monotonic() - self._begin, 1e-9)  # cells per second
        pace = f", {60 * rate:.1f} per minute, {format_duration((self.total - ended) / rate)} left" if ended else ""
        return f"{self.done} done, {self.running_count} running, {self.failed} failed{pace}"


@contextmanager
def show_cell_counts(name: str, count: CellCounter) -> Iterator[None]:
    """Show the counts of cells on standard error while the block runs."""
    console, ended, said = progress.progress_console(), threading.Event(), f"Sweep {name}, {count.total} cells"
    bar = console.is_terminal and not progress.is_verbose()
    if progress.is_verbose():
        progress.print_progress_line(f"{said}.")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[count]}"))
    with Progress(*columns, console=console, disable=not bar, transient=True) as drawn:
        task = drawn.add_task(f"Sweep {name}", total=count.total, count=count)

        def update_counts_until_ended() -> None:
            while not ended.wait(0.2 if bar else INTERVAL):
                if bar:
                    drawn.update(task, completed=count.done + count.failed, count=str(count))
                else:
                    progress.print_progress_line(f"{said}: {count}")

        # What --quiet and --verbose asked for is the context's, and a thread starts with none.
        thread = threading.Thread(target=copy_context().run, args=(update_counts_until_ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
