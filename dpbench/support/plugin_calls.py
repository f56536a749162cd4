"""Call plugins, and turn their failures into one sentence that names the plugin, without a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from traceback import walk_tb
from typing import ParamSpec, TypeVar

from dpbench.errors import ComponentFailed, DpbenchError
from dpbench.support.code import get_top_package

DEBUG = "DPBENCH_DEBUG"
"""The environment variable that makes error messages include tracebacks; `--debug` sets it."""
_NEUTRAL_PACKAGES = sys.stdlib_module_names | {"dpbench", "torch"}
"""Packages that are never the plugin, although their frames stand beside the plugin's in a traceback."""
P = ParamSpec("P")
R = TypeVar("R")


def call_plugin(description: str, function: Callable[P, R], *arguments: P.args, **keywords: P.kwargs) -> R:
    """Call a plugin's code; turn its exceptions and exits into `ComponentFailed`.

    dpbench's own errors and Ctrl-C are passed on unchanged.

    Raises:
        ComponentFailed: the plugin raised an exception; the message states `description`, the exception and its line.
    """
    try:
        return function(*arguments, **keywords)
    except (DpbenchError, KeyboardInterrupt):
        raise
    except BaseException as error:  # third-party code may raise anything, also an exit with a code of its choice
        said = f": {text}," if (text := str(error).rstrip(".")) else ""
        raise ComponentFailed(
            f"{description} failed: {type(error).__name__}{said} in {_locate_failure(error)}. Add --debug for the "
            "traceback."
        ) from error


def _locate_failure(error: BaseException) -> str:
    """Return the file and line of a failure: the last line in the plugin's own package, not in a library."""
    lines = [
        (_get_package_of_frame(frame.f_globals), frame.f_code, line) for frame, line in walk_tb(error.__traceback__)
    ]
    called = next((package for package, _, _ in lines if package not in _NEUTRAL_PACKAGES), "dpbench")
    code, line = [(code, line) for package, code, line in lines if package == called][-1]
    return f"{Path(code.co_filename).name}, line {line}"


def _get_package_of_frame(frame_globals: dict[str, object]) -> str:
    return get_top_package(frame_globals.get("__name__"))
