"""Progress on standard error for anything longer than a second; silent when it is not a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.0f}/s" if task.speed else "")


@contextmanager
def status(description: str) -> Iterator[None]:
    """Show a spinner while the block runs."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(description):
        yield


@contextmanager
def transfer(description: str, total: int) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """Show a progress bar in bytes while the block runs; yield functions that set the bytes done and the total."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(description, total=total or None)
        yield (
            lambda done: progress.update(task, completed=done),
            lambda whole: progress.update(task, total=whole or None),
        )


@contextmanager
def meter(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar with count, rate and time left while the block runs; yield the function that advances it."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda units: progress.advance(task, units)
