"""Python's audit events (a table in its documentation), told to whoever judges what runs in this thread."""

from __future__ import annotations

import functools
import sys
from contextvars import ContextVar
from typing import Any, Protocol


class Judge(Protocol):
    """Hears of every event of a block, in its thread."""

    def judge(self, event: str, details: tuple[Any, ...]) -> None:
        """Raise to stop what is about to happen."""


JUDGE: ContextVar[Judge | None] = ContextVar("judge", default=None)
"""Who judges this thread now; other threads start without one."""


class judged_by:  # noqa: N801  # a generator would take a microsecond more, a chunk
    """Tell `judge` of all events of this thread while the block runs, and nobody else."""

    __slots__ = ("_judge", "_token")

    def __init__(self, judge: Judge) -> None:
        _install()
        self._judge = judge

    def __enter__(self) -> None:
        self._token = JUDGE.set(self._judge)

    def __exit__(self, *error: object) -> None:
        JUDGE.reset(self._token)


@functools.cache
def _install() -> None:
    """Add the hook, once a process: Python can remove none."""
    sys.addaudithook(_tell)


def _tell(event: str, details: tuple[Any, ...]) -> None:
    judge = JUDGE.get()
    if judge is not None:
        judge.judge(event, details)
