"""Calls into plugins: their failures are named, never shown as a traceback."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from dpbench.errors import ComponentFailed, DpbenchError

P = ParamSpec("P")
R = TypeVar("R")


def guarded(what: str, function: Callable[P, R], *arguments: P.args, **keywords: P.kwargs) -> R:
    """Call what a plugin wrote; what dpbench itself refused passes through.

    Raises:
        ComponentFailed: `what` failed, and how.
    """
    try:
        return function(*arguments, **keywords)
    except DpbenchError:
        raise
    except Exception as error:  # whatever a stranger's code raises
        raise ComponentFailed(
            f"{what} failed: {type(error).__name__}: {error} Set DPBENCH_DEBUG=1 for the traceback."
        ) from error
