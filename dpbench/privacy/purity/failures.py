"""Report the failure of a row function without its text, which may hold private values."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from dpbench.errors import ComponentFailed, DpbenchError
from dpbench.privacy.purity.kinds import LIBRARIES
from dpbench.privacy.purity.quiet_room import call_quietly
from dpbench.support.code import top_package

A = TypeVar("A")
R = TypeVar("R")

ALLOCATOR_MESSAGES = ("out of memory", "allocate memory", "not enough memory")  # what they say


def call_without_error_text(function: Callable[[A], R], argument: A, what: str, public: bool = False) -> R:
    """Call a plugin's function in a quiet room; if it fails, report only the error's type and line.

    dpbench's own refusals pass through unchanged; with DPBENCH_DEBUG set, all failures do. A failure over a `public`
    argument, such as an empty chunk, is reported in full.

    Raises:
        ComponentFailed: `what` failed, and where.
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
    if isinstance(error, DpbenchError) and _package(traces[-1]) == "dpbench":
        return type(error)(*error.args)
    if isinstance(error, MemoryError) or any(said in str(error).lower() for said in ALLOCATOR_MESSAGES):
        return MemoryError(f"{what} ran out of memory.")
    strangers = [trace for trace in traces if _package(trace) not in LIBRARIES]
    own = (strangers or traces)[-1]
    if public:
        told = "".join(traceback.format_exception(type(error), error, (strangers or traces)[0], chain=False)).rstrip()
        return ComponentFailed(
            f"{what} failed on an empty chunk, which holds nothing private, so here is the whole error:\n{told}"
        )
    return ComponentFailed(
        f"{what} failed: {type(error).__name__} in {Path(own.tb_frame.f_code.co_filename).name}, line {own.tb_lineno}. "
        "What it said may tell private values. Add --debug to see it, where those may be seen."
    )


def _walk_traces(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _package(trace: TracebackType) -> str:
    return top_package(trace.tb_frame.f_globals.get("__name__"))
