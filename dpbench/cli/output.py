"""Handle Ctrl-C, and print records as JSON."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
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
def exit_with_message_on_interrupt(kept_message: str) -> Iterator[None]:
    """On Ctrl-C in the block, print a line with `kept_message` and exit with code 130."""
    try:
        yield
    except KeyboardInterrupt:
        interrupt.print_interrupt_message(kept_message)
        raise typer.Exit(interrupt.EXIT_CODE) from None


@contextmanager
def stop_on_interrupt() -> Iterator[None]:
    """Make Ctrl-C end the process within seconds, even if a pool waits for workers that the same signal killed."""
    if threading.current_thread() is not threading.main_thread():  # which alone hears signals
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def handle_interrupt(number: int, frame: FrameType | None) -> None:
        last = threading.Timer(
            POOL_TIMEOUT, interrupt.exit_on_interrupt, ["Unfinished workers were stopped; finished work is kept."]
        )
        last.daemon = True
        last.start()
        if callable(before):
            before(number, frame)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def print_records(records: Sequence[BaseModel], *, as_list: bool) -> None:
    """Print records as a JSON list, or the only record as a JSON object."""
    documents = ",\n".join(record.model_dump_json(indent=2) for record in records)
    print(f"[{documents}]" if as_list else documents)


@contextmanager
def print_record_if_unwritable(record: BaseModel) -> Iterator[None]:
    """Print `record` as JSON if the block cannot write it, so that no work is lost, and raise the error again."""
    try:
        yield
    except OutputError:
        print(record.model_dump_json(indent=2))
        raise
