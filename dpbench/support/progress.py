"""Progress on standard error: a bar on a terminal, a line now and then elsewhere; `say` makes it more or less."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

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

from dpbench.support.messages import duration

INTERVAL = 30.0  # seconds between lines where there is no terminal
MEASURED = 3.0  # seconds before an estimate is said
LONG = 60.0  # seconds that are worth an estimate
ADVISED = 300.0  # seconds that are worth advice


_NOTHING: ContextVar[bool] = ContextVar("nothing", default=False)
_EVERYTHING: ContextVar[bool] = ContextVar("everything", default=False)


def say(*, nothing: bool, everything: bool) -> None:
    """Show no progress from now on; or every stage, on a line of its own, wherever it goes."""
    _NOTHING.set(nothing)
    _EVERYTHING.set(everything)


def shows_everything() -> bool:
    """Return whether every stage is to be said, on a line of its own."""
    return _EVERYTHING.get()


def console() -> Console:
    """Return where bars and spinners are shown; it shows none where no progress is wanted."""
    return Console(stderr=True, quiet=_NOTHING.get())


def line(text: str, who: str = "dpbench: ") -> None:
    """Say a line, unless no progress is wanted."""
    if not _NOTHING.get():
        print(f"{who}{text}", file=sys.stderr, flush=True)


class _Lines:
    """Says how far something is, at most every `INTERVAL` seconds."""

    def __init__(self, description: str, total: int) -> None:
        self._description, self._total, self._done, self._begin = description, total, 0, monotonic()
        self._last = self._begin
        if shows_everything():
            line(f"{description}: {total:,}.")

    def advance(self, units: int) -> None:
        """Count some more."""
        self._done += units
        now = monotonic()
        if now - self._last < INTERVAL:
            return
        self._last = now
        left = duration((now - self._begin) / self._done * (self._total - self._done)) if self._done else ""
        line(f"{self._description}: {self._done:,} of {self._total:,}" + (f", {left} left." if left else "."))


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.0f}/s" if task.speed else "")


@contextmanager
def status(description: str) -> Iterator[None]:
    """Show a spinner while the block runs."""
    shown = console()
    if shows_everything():
        line(f"{description}.")
    if not shown.is_terminal or shows_everything():
        yield
        return
    with shown.status(description):
        yield


@contextmanager
def transfer(description: str, total: int) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """Show a progress bar in bytes while the block runs; yield functions that set the bytes done and the total."""
    shown = console()
    columns = (
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(*columns, console=shown, disable=not shown.is_terminal, transient=True) as progress:
        task = progress.add_task(description, total=total or None)
        yield (
            lambda done: progress.update(task, completed=done),
            lambda whole: progress.update(task, total=whole or None),
        )


@contextmanager
def meter(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar with count, rate and time left while the block runs; yield the function that advances it."""
    shown = console()
    if not shown.is_terminal or shows_everything():
        yield _Lines(description, total).advance
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    with Progress(*columns, console=shown, disable=_NOTHING.get(), transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda units: progress.advance(task, units)


class Estimate:
    """Says on standard error, terminal or not, how long something will take: once, soon, and where that is long."""

    def __init__(self, doing: str, advice: Callable[[], str] | None = None) -> None:
        self._doing, self._advice = doing, advice  # the second is said of what takes over five minutes
        self._begin: float | None = None
        self._done = 0
        self._said = False

    def update(self, units: int, left: int) -> None:
        """Hear that `units` more are done and how many are left; the first are left out, as they warm up."""
        if self._begin is None:
            self._begin = monotonic()
            return
        self._done += units
        seconds = monotonic() - self._begin
        if self._said or seconds < MEASURED:
            return
        self._said = True
        rate = self._done / seconds
        if left / rate >= LONG:
            advice = f" {self._advice()}" if self._advice and left / rate > ADVISED else ""
            each = f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"
            line(f"{self._doing}: {left:,} to go at {each} a second, {duration(left / rate)}.{advice}", who="")
