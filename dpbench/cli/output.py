"""Handling of interruptions, and of results that cannot be written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer
from pydantic import BaseModel

from dpbench.cli import interrupt
from dpbench.errors import OutputError

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
POOL_TIMEOUT = 4.0  # seconds for a pool of processes to end; most need two


@contextmanager
def report_interrupt(kept: str) -> Iterator[None]:
    """Turn Ctrl-C in the block into exit code 130 and a line that states what is `kept`."""
    try:
        yield
    except KeyboardInterrupt:
        interrupt.print_interrupted(kept)
        raise typer.Exit(interrupt.EXIT_CODE) from None


@contextmanager
def stop_on_interrupt() -> Iterator[None]:
    """Make Ctrl-C end the process soon, even if a pool waits for workers that died from the same signal."""
    if threading.current_thread() is not threading.main_thread():  # which alone hears signals
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: FrameType | None) -> None:
        last = threading.Timer(
            POOL_TIMEOUT, interrupt.exit_interrupted, ["Unfinished workers were stopped; finished work is kept."]
        )
        last.daemon = True
        last.start()
        if callable(before):
            before(number, frame)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def print_if_unwritable(record: BaseModel) -> Iterator[None]:
    """Print `record` as JSON if the block cannot write it, so that the work is not lost; the error passes through."""
    try:
        yield
    except OutputError:
        print(record.model_dump_json(indent=2))
        raise
