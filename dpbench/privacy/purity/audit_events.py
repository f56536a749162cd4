"""Pass Python's audit events (listed in its documentation) to the judge of the thread that causes them."""

from __future__ import annotations

import functools
import sys
from contextvars import ContextVar
from typing import Any, Protocol


class AuditEventJudge(Protocol):
    """Receives every audit event that its thread causes while a block runs."""

    def judge(self, event: str, details: tuple[Any, ...]) -> None:
        """Judge one audit event; raise an error to stop the action that it announces."""


JUDGE: ContextVar[AuditEventJudge | None] = ContextVar("judge", default=None)
"""The judge of the current thread, or None; new threads start without a judge."""


class judge_audit_events:  # noqa: N801  # a generator would take a microsecond more, a chunk
    """Pass all audit events of this thread to `judge`, and to no other judge, while the block runs."""

    __slots__ = ("_judge", "_token")

    def __init__(self, judge: AuditEventJudge) -> None:
        _install_hook()
        self._judge = judge

    def __enter__(self) -> None:
        self._token = JUDGE.set(self._judge)

    def __exit__(self, *error: object) -> None:
        JUDGE.reset(self._token)


@functools.cache
def _install_hook() -> None:
    """Install the audit hook, once per process: Python offers no way to remove it."""
    sys.addaudithook(_pass_event_to_judge)


def _pass_event_to_judge(event: str, details: tuple[Any, ...]) -> None:
    judge = JUDGE.get()
    if judge is not None:
        judge.judge(event, details)
