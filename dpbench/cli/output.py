"""What commands do when they are interrupted, or cannot write what they computed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

import typer
from pydantic import BaseModel

from dpbench.cli import interrupt
from dpbench.errors import OutputError
from dpbench.support.charts import check_file
from dpbench.support.files import check_writable

if TYPE_CHECKING:
    from dpbench_lab.explain.explanation import Explanation
    from dpbench_lab.inspect.report import Inspection

Plotted = TypeVar("Plotted", "Explanation", "Inspection")
PATIENCE = 4.0  # seconds for a pool of processes to end; most need two


@contextmanager
def report_interrupt(kept: str) -> Iterator[None]:
    """Turn Ctrl-C in the block into one line that says what is `kept`, and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        interrupt.say(kept)
        raise typer.Exit(interrupt.CODE) from None


@contextmanager
def stop_on_interrupt() -> Iterator[None]:
    """Have Ctrl-C end the process soon even where a pool waits for workers that died as they heard of it too."""
    if threading.current_thread() is not threading.main_thread():  # which alone hears signals
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: FrameType | None) -> None:
        last = threading.Timer(PATIENCE, interrupt.leave, ["Unfinished workers were stopped; finished work is kept."])
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


def check_outputs(out: Path, plot: Path | None) -> None:
    """Refuse a folder or a plot that cannot be written, before anything is computed.

    Raises:
        SpecError: the plot's name is that of no picture.
        OutputError: a folder cannot be created or written.
    """
    check_writable(out)
    if plot is not None:
        check_file(plot, "--plot")
        check_writable(plot.parent)


def write_record(record: Plotted, out: Path, plot: Path | None, draw: Callable[[Plotted, Path], None]) -> list[Path]:
    """Write a record into `out`, and its plot if it is asked for; return the files.

    Raises:
        OutputError: one cannot be written; the record is printed.
    """
    with print_if_unwritable(record):
        files = [record.write(out)]
        if plot is not None:
            draw(record, plot)
            files.append(plot)
    return files
