"""Show progress on standard error: a bar on a terminal, else periodic lines; `set_verbosity` sets the amount."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TypeVar

from rich.console import Console

from dpbench.support.messages import format_duration

INTERVAL = 30.0  # seconds between lines where there is no terminal
ESTIMATE_AFTER = 3.0  # seconds before an estimate is said
ESTIMATE_FROM = 60.0  # seconds that are worth an estimate
ADVICE_FROM = 300.0  # seconds that are worth advice

Item = TypeVar("Item")
_QUIET: ContextVar[bool] = ContextVar("nothing", default=False)
_VERBOSE: ContextVar[bool] = ContextVar("everything", default=False)


def set_verbosity(*, nothing: bool, everything: bool) -> None:
    """Set how much progress is shown from now on; if both flags are false, the usual bars and lines.

    Args:
        nothing: show no progress.
        everything: print every stage on its own line.
    """
    _QUIET.set(nothing)
    _VERBOSE.set(everything)


def is_verbose() -> bool:
    """Return whether every stage is printed on its own line."""
    return _VERBOSE.get()


def progress_console() -> Console:
    """Return the console for bars and spinners; it shows nothing if progress is switched off."""
    return Console(stderr=True, quiet=_QUIET.get())


def print_progress_line(text: str, who: str = "dpbench: ") -> None:
    """Print a line on standard error, unless progress is switched off."""
    if not _QUIET.get():
        print(f"{who}{text}", file=sys.stderr, flush=True)


class _ProgressLinePrinter:
    """Prints the progress of a task as a line, at most every `INTERVAL` seconds."""

    def __init__(self, description: str, total: int) -> None:
        self._description, self._total, self._done, self._begin = description, total, 0, monotonic()
        self._last = self._begin
        if is_verbose():
            print_progress_line(f"{description}: {total:,}.")

    def advance(self, units: int) -> None:
        """Add `units` to the units done, and print a line if the last line is `INTERVAL` seconds old."""
        self._done += units
        now = monotonic()
        if now - self._last < INTERVAL:
            return
        self._last = now
        left = format_duration((now - self._begin) / self._done * (self._total - self._done)) if self._done else ""
        print_progress_line(
            f"{self._description}: {self._done:,} of {self._total:,}" + (f", {left} left." if left else ".")
        )


@contextmanager
def show_status(description: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner while the block runs; yield a function that sets the text after the description."""
    shown = progress_console()
    if is_verbose():
        print_progress_line(f"{description}.")
    if not shown.is_terminal or is_verbose():
        yield _make_status_printer(description)
        return
    with shown.status(description) as status:
        yield lambda doing: status.update(f"{description}: {doing}")


def _make_status_printer(description: str) -> Callable[[str], None]:
    """Return a function that prints the current activity as a line, at most every `INTERVAL` seconds."""
    last = monotonic()

    def print_status(activity: str) -> None:
        nonlocal last
        if monotonic() - last >= INTERVAL:
            last = monotonic()
            print_progress_line(f"{description}: {activity}.")

    return print_status


@contextmanager
def show_transfer_bar(description: str, total: int) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """Show a progress bar in bytes while the block runs; yield functions that set the bytes done and the total."""
    from rich.progress import DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    shown = progress_console()
    columns = (*Progress.get_default_columns()[:2], DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=shown, disable=not shown.is_terminal, transient=True) as progress:
        task = progress.add_task(description, total=total or None)
        yield (
            lambda done: progress.update(task, completed=done),
            lambda whole: progress.update(task, total=whole or None),
        )


@contextmanager
def show_progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar with count, rate and time left while the block runs; yield the function to advance it."""
    shown = progress_console()
    if not shown.is_terminal or is_verbose():
        yield _ProgressLinePrinter(description, total).advance
        return
    from rich.progress import MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn

    class RateColumn(ProgressColumn):
        def render(self, task: Task) -> str:
            return f"{task.speed:.0f}/s" if task.speed else ""

    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), RateColumn(), TimeRemainingColumn())
    with Progress(*columns, console=shown, disable=_QUIET.get(), transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda units: progress.advance(task, units)


def track(items: Iterable[Item], description: str, total: int) -> Iterator[Item]:
    """Yield the items, and show a progress bar that advances by one after each item."""
    with show_progress_bar(description, total) as advance:
        for item in items:
            yield item
            advance(1)


class TimeEstimatePrinter:
    """Prints once, early in a long task, how long the task will take; on standard error, with or without a terminal."""

    def __init__(self, activity: str, advice: Callable[[], str] | None = None) -> None:
        self._doing, self._advice = activity, advice  # the second is said of what takes over five minutes
        self._begin: float | None = None
        self._done = 0
        self._said = False

    def update(self, units: int, remaining_units: int) -> None:
        """Add `units` to the units done, with `remaining_units` to go; the first call, a warm-up, is not timed."""
        if self._begin is None:
            self._begin = monotonic()
            return
        self._done += units
        seconds = monotonic() - self._begin
        if self._said or seconds < ESTIMATE_AFTER:
            return
        self._said = True
        rate = self._done / seconds
        if remaining_units / rate >= ESTIMATE_FROM:
            advice = f" {self._advice()}" if self._advice and remaining_units / rate > ADVICE_FROM else ""
            each = f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"
            print_progress_line(
                f"{self._doing}: {remaining_units:,} to go at {each} a second, "
                f"{format_duration(remaining_units / rate)}.{advice}",
                who="",
            )
