"""Calls into plugins: failures become one sentence that names the plugin, never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from dpbench.errors import ComponentFailed, DpbenchError

DEBUG = "DPBENCH_DEBUG"
"""The environment variable with which refusals show their tracebacks: `--debug` sets it."""
P = ParamSpec("P")
R = TypeVar("R")


def guarded(what: str, function: Callable[P, R], *arguments: P.args, **keywords: P.kwargs) -> R:
    """Call a plugin's code; dpbench's own refusals pass through.

    Raises:
        ComponentFailed: the plugin raised; the message says what failed and how.
    """
    try:
        return function(*arguments, **keywords)
    except DpbenchError:
        raise
    except Exception as error:  # third-party code may raise anything
        raise ComponentFailed(
            f"{what} failed: {type(error).__name__}: {error} Add --debug for the traceback."
        ) from error
