"""Report the failure of a row function without the error's text, which may hold private values.

A plugin controls the names and texts of its exceptions, the values that dpbench's errors quote, and the file and line
that code compiled by it claims. None of these is reported: only names of exceptions of Python and dpbench, and a line
of a module's file.
"""

from __future__ import annotations

import builtins
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from dpbench import errors
from dpbench.errors import ComponentFailed, DpbenchError
from dpbench.privacy.purity.kinds import LIBRARIES
from dpbench.privacy.purity.quiet_room import call_quietly
from dpbench.support.code import get_top_package

A = TypeVar("A")
R = TypeVar("R")

ALLOCATOR_MESSAGES = ("out of memory", "allocate memory", "not enough memory")  # what they say

OWN_EXCEPTIONS = frozenset(
    found
    for module in (builtins, errors)
    for found in vars(module).values()
    if isinstance(found, type) and issubclass(found, BaseException)
)
"""The exceptions of Python and dpbench, whose names a plugin cannot choose."""


def describe_exception_type(error: BaseException) -> str:
    """Return the name of an exception that Python or dpbench defines, and a general description of any other.

    The name of a plugin's exception could reveal private values.
    """
    return type(error).__name__ if type(error) in OWN_EXCEPTIONS else "an exception of the plugin"


def call_without_error_text(function: Callable[[A], R], argument: A, what: str, public: bool = False) -> R:
    """Call a plugin's function in a quiet room; if it fails, report only the error's type and line.

    dpbench's own refusals are raised again with their text, unless a plugin's code caused them with private values.
    With DPBENCH_DEBUG set, all errors pass through unchanged. With `public`, for an argument such as an empty chunk,
    the error is reported in full.

    Raises:
        ComponentFailed: the function failed; the message names `what`, the error's type and its line.
        MemoryError: there was too little memory.
        NotPure: see `call_quietly`.
    """
    try:
        return call_quietly(function, argument, what)
    except KeyboardInterrupt:  # the user's, or a stranger's with a text
        failure: BaseException = KeyboardInterrupt()
    except BaseException as error:  # whatever a stranger's code raises, SystemExit too
        if os.environ.get("DPBENCH_DEBUG"):
            raise
        failure = _hide_error_text(error, what, public)
    raise failure  # out here it carries no frame of the function, where private rows may lie


def _hide_error_text(error: BaseException, what: str, public: bool) -> Exception:
    traces = list(_walk_traces(error.__traceback__))
    strangers = [trace for trace in traces if _package(trace) not in LIBRARIES]
    if isinstance(error, DpbenchError) and _package(traces[-1]) == "dpbench" and (public or not strangers):
        return type(error)(*error.args)
    if isinstance(error, MemoryError) or any(said in str(error).lower() for said in ALLOCATOR_MESSAGES):
        return MemoryError(f"{what} ran out of memory.")
    own = (strangers or traces)[-1]
    if public:
        told = "".join(traceback.format_exception(type(error), error, (strangers or traces)[0], chain=False)).rstrip()
        return ComponentFailed(
            f"{what} failed on an empty chunk, which holds nothing private, so here is the whole error:\n{told}"
        )
    return ComponentFailed(
        f"{what} failed: {describe_exception_type(error)} in {_describe_line(own)}. What it said may tell private "
        "values. Add --debug to see it, where those may be seen."
    )


def _describe_line(trace: TracebackType) -> str:
    """Return a frame's file and line if the file is its module's: code that a plugin compiles could claim any."""
    space = trace.tb_frame.f_globals
    file, line, module = trace.tb_frame.f_code.co_filename, trace.tb_lineno, sys.modules.get(str(space.get("__name__")))
    if getattr(module, "__dict__", None) is space and file == space.get("__file__") and 0 < line <= _count_lines(file):
        return f"{Path(file).name}, line {line}"
    return "code that is in no module's file"


def _count_lines(file: str) -> int:
    try:
        return len(Path(file).read_bytes().splitlines())
    except OSError:
        return 0


def _walk_traces(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _package(trace: TracebackType) -> str:
    return get_top_package(trace.tb_frame.f_globals.get("__name__"))
