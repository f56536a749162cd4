"""Withhold output, warnings and logs of a thread during a fit or prediction; other threads write as before.

Attributes are replaced (`sys.stdout`, `sys.stderr`, `warnings.showwarning`, `logging.Logger.handle`) to withhold text
that would go to a notebook, a file or a test. File descriptors 1 and 2 are redirected, for C code and for streams that
code has stored. Functions that cause no audit event (`WITHOUT_AUDIT_EVENT`) are wrapped.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TextIO

import torch

DESCRIPTORS = (1, 2)  # standard output and error
WITHOUT_AUDIT_EVENT: tuple[tuple[Any, str], ...] = (
    (torch, "save"), (os, "write"), (os, "pwrite"), (os, "writev"), (atexit, "register"), (threading.Thread, "start"),
)  # fmt: skip
"""Functions with a lasting effect that cause no audit event, such as writing to a file that is already open."""


class StreamProxy:
    """Proxy of a stream: withholds text written in a quiet room and passes everything else to the stream."""

    def __init__(self, stream: TextIO, hears: Callable[[], bool], descriptors: dict[int, int]) -> None:
        self._stream, self._hears, self._descriptors = stream, hears, descriptors

    def write(self, text: str) -> int:
        """Write the text, unless this thread is in a quiet room."""
        if self._hears():
            return len(text)
        own = self._descriptors.get(_find_descriptor(self._stream))
        if own is None:
            return self._stream.write(text)
        os.write(own, text.encode(self._stream.encoding or "utf-8", "backslashreplace"))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(_open_null_stream() if self._hears() else self._stream, name)


class OutputSilencer:
    """Withholds the output of threads in a quiet room; meanwhile it replaces this process's output channels."""

    def __init__(self, hears: Callable[[], bool], refuse: Callable[[str, tuple[Any, ...]], None]) -> None:
        """Store `hears` (records output, and returns whether this thread is in a room) and `refuse` (may raise)."""
        self._hears, self._refuse, self._lock, self._rooms = hears, refuse, threading.Lock(), 0
        self._undo: list[Callable[[], None]] = []
        self._streams: list[TextIO] = []
        self._descriptors: dict[int, int] = {}

    def withhold_output(self) -> None:
        """Withhold the output of this thread from now on."""
        with self._lock:
            self._rooms += 1
            if self._rooms == 1:
                self._withhold()

    def resume_output(self) -> None:
        """Stop withholding the output of this thread."""
        with self._lock:
            self._rooms -= 1
            if self._rooms == 0:
                self._restore()

    def _withhold(self) -> None:
        output, error, show, handle = sys.stdout, sys.stderr, warnings.showwarning, logging.Logger.handle
        untold = [(owner, name, getattr(owner, name)) for owner, name in WITHOUT_AUDIT_EVENT]
        kept = [stream for stream in (sys.__stdout__, sys.__stderr__) if stream is not output and stream is not error]
        self._streams = [stream for stream in (output, error, *kept) if stream is not None]
        _flush_streams(self._streams)
        nowhere = _open_null_stream().fileno()
        for number in DESCRIPTORS:
            try:
                self._descriptors[number] = os.dup(number)
            except OSError:  # closed, as a service's may be
                continue
            os.dup2(nowhere, number)

        def showwarning(*arguments: Any, **keywords: Any) -> None:
            if not self._hears():
                show(*arguments, **keywords)

        def handle_record(logger: logging.Logger, record: logging.LogRecord) -> None:
            if not self._hears():
                handle(logger, record)

        def restore_output() -> None:
            sys.stdout, sys.stderr, warnings.showwarning = output, error, show
            logging.Logger.handle = handle  # type: ignore[method-assign]
            for owner, name, function in untold:
                setattr(owner, name, function)

        sys.stdout = output and StreamProxy(output, self._hears, self._descriptors)
        sys.stderr = error and StreamProxy(error, self._hears, self._descriptors)
        warnings.showwarning = showwarning
        for owner, name, function in untold:
            setattr(owner, name, self._wrap_function(f"{owner.__name__}.{name}", function))
        logging.Logger.handle = handle_record  # type: ignore[method-assign, assignment]
        self._undo = [restore_output]

    def _wrap_function(self, event: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def refuse_or_call(*given: Any, **named: Any) -> Any:
            self._refuse(event, given)
            return function(*given, **named)

        return refuse_or_call

    def _restore(self) -> None:
        _flush_streams(self._streams)  # what a stream still holds was said in the room
        for number, copy in self._descriptors.items():
            os.dup2(copy, number)
            os.close(copy)
        self._undo.pop()()
        self._streams = []
        self._descriptors.clear()  # stand-ins that somebody kept must not write to numbers that others reuse


def _flush_streams(streams: list[TextIO]) -> None:
    try:
        for stream in streams:
            stream.flush()
    except (ValueError, OSError):  # closed
        pass


def _find_descriptor(stream: TextIO) -> int:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):  # a notebook's, or one in memory
        return -1


@cache
def _open_null_stream() -> TextIO:
    stream = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # for all rooms of this process
    atexit.register(stream.close)
    return stream
