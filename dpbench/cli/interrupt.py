"""Ctrl-C: one line, and exit code 130, at any moment of a process that runs the command line. Imports nothing heavy.

Python raises KeyboardInterrupt wherever the main thread happens to be. In an import it may come out as ImportError, or
as a text that C code prints; in a destructor it is printed and lost. So the process ends at once, unless a command runs
and imports nothing: then the exception is raised, and the command says what it keeps. Files are written whole or not at
all, so an end at once loses what is unfinished and nothing else.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # type checkers take it for true; `typing` would take as long as all the rest
if TYPE_CHECKING:
    from collections.abc import Iterator
    from sys import UnraisableHookArgs
    from types import FrameType
    from typing import NoReturn

EXIT_CODE = 130  # of a process that was interrupted, as shells count
KEPT_MESSAGE = "Nothing more is written; finished work is kept."
_IMPORTING = "<frozen importlib._bootstrap>"  # the file of every frame that imports
_CLEAR = "\r\x1b[K\x1b[?25h"  # the line of a progress bar goes, and the cursor comes back


def install_handler() -> None:
    """Make Ctrl-C end this process at once with a line, unless it is ignored or other code handles it."""
    with suppress(ValueError):  # not the main thread, which alone hears signals
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _handle_interrupt)
            sys.unraisablehook = _exit_if_lost


@contextmanager
def raise_on_interrupt() -> Iterator[None]:
    """Make Ctrl-C raise KeyboardInterrupt in the block except during imports; without our handler, change nothing."""
    if signal.getsignal(signal.SIGINT) is not _handle_interrupt:
        yield
        return
    signal.signal(signal.SIGINT, _handle_by_raising)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is _handle_by_raising:
            signal.signal(signal.SIGINT, _handle_interrupt)


def print_interrupted(kept: str) -> None:
    """Print once that dpbench was interrupted and what is kept; from then on, Ctrl-C ends the process silently."""
    ours = signal.getsignal(signal.SIGINT) in {_handle_interrupt, _handle_by_raising}
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    print(f"dpbench: Interrupted. {kept}", file=sys.stderr, flush=True)
    if ours:
        signal.signal(signal.SIGINT, _handle_silently)


def exit_interrupted(kept: str = KEPT_MESSAGE) -> NoReturn:
    """End the process and its workers at once, with a line."""
    with suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    clear = _CLEAR if os.isatty(2) else ""
    with suppress(OSError):
        os.write(2, f"{clear}dpbench: Interrupted. {kept}\n".encode())  # print may be what was interrupted
    if "multiprocessing.util" in sys.modules:
        _kill_workers()
    os._exit(EXIT_CODE)


def _kill_workers() -> None:
    """Kill the workers of pools, and free their shared resources, whose loss multiprocessing would report."""
    import multiprocessing.util
    import threading

    last = threading.Timer(1, os._exit, [EXIT_CODE])
    last.daemon = True
    last.start()
    for worker in multiprocessing.active_children():
        worker.kill()
    with suppress(Exception):
        multiprocessing.util._run_finalizers()  # type: ignore[attr-defined]


def _handle_interrupt(number: int, frame: FrameType | None) -> None:
    exit_interrupted()


def _handle_silently(number: int, frame: FrameType | None) -> None:
    os._exit(EXIT_CODE)


def _handle_by_raising(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            exit_interrupted()
        frame = frame.f_back
    raise KeyboardInterrupt


def _exit_if_lost(unraisable: UnraisableHookArgs) -> None:
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        exit_interrupted()
    sys.__unraisablehook__(unraisable)
