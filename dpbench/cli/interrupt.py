"""Ctrl-C prints one line and ends the command line with exit code 130, at any moment.

Python raises KeyboardInterrupt wherever the main thread happens to be. During an import, it can turn into an
ImportError, or into text that C code prints; in a destructor, Python prints it and drops it. The process therefore ends
at once, unless a command runs and is not importing: then the exception is raised, and the command states which work it
keeps. Files are written whole or not at all, so ending at once loses unfinished work and nothing else. This module
imports nothing heavy, so that the handler is set early.
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
    """Make Ctrl-C print a line and end this process at once, unless Ctrl-C is ignored or handled by other code."""
    with suppress(ValueError):  # not the main thread, which alone hears signals
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _handle_interrupt)
            sys.unraisablehook = _exit_on_lost_interrupt


@contextmanager
def raise_on_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C in the block, except during imports; do nothing if another handler is set."""
    if signal.getsignal(signal.SIGINT) is not _handle_interrupt:
        yield
        return
    signal.signal(signal.SIGINT, _raise_interrupt)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is _raise_interrupt:
            signal.signal(signal.SIGINT, _handle_interrupt)


def print_interrupt_message(kept_message: str) -> None:
    """Print once that dpbench was interrupted and what is kept. Any further Ctrl-C ends the process silently."""
    ours = signal.getsignal(signal.SIGINT) in {_handle_interrupt, _raise_interrupt}
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    print(f"dpbench: Interrupted. {kept_message}", file=sys.stderr, flush=True)
    if ours:
        signal.signal(signal.SIGINT, _exit_silently)


def exit_on_interrupt(kept: str = KEPT_MESSAGE) -> NoReturn:
    """Print that dpbench was interrupted and what is kept; end the process and its workers at once."""
    with suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    clear = _CLEAR if os.isatty(2) else ""
    with suppress(OSError):
        os.write(2, f"{clear}dpbench: Interrupted. {kept}\n".encode())  # print may be what was interrupted
    if "multiprocessing.util" in sys.modules:
        _kill_worker_processes()
    os._exit(EXIT_CODE)


def _kill_worker_processes() -> None:
    """Kill the workers of pools and free their shared memory, which multiprocessing would report as leaked."""
    import multiprocessing.util
    import threading

    last = threading.Timer(1, os._exit, [EXIT_CODE])
    last.daemon = True
    last.start()
    for worker in multiprocessing.active_children():
        worker.kill()
    with suppress(Exception):
        multiprocessing.util._run_finalizers()  # type: ignore[attr-defined]


def _handle_interrupt(signal_number: int, frame: FrameType | None) -> None:
    exit_on_interrupt()


def _exit_silently(signal_number: int, frame: FrameType | None) -> None:
    os._exit(EXIT_CODE)


def _raise_interrupt(signal_number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            exit_on_interrupt()
        frame = frame.f_back
    raise KeyboardInterrupt


def _exit_on_lost_interrupt(unraisable: UnraisableHookArgs) -> None:
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        exit_on_interrupt()
    sys.__unraisablehook__(unraisable)
