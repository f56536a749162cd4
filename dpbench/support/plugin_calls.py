"""Calls into plugins: failures become one sentence that names the plugin, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from traceback import walk_tb
from typing import ParamSpec, TypeVar

from dpbench.errors import ComponentFailed, DpbenchError
from dpbench.support.code import package_of

DEBUG = "DPBENCH_DEBUG"
"""The environment variable with which refusals show their tracebacks: `--debug` sets it."""
_NOBODYS = sys.stdlib_module_names | {"dpbench", "torch"}
"""Packages that stand between dpbench and a plugin."""
P = ParamSpec("P")
R = TypeVar("R")


def call_plugin(what: str, function: Callable[P, R], *arguments: P.args, **keywords: P.kwargs) -> R:
    """Call a plugin's code; dpbench's own refusals pass through.

    Raises:
        ComponentFailed: the plugin raised; the message says what failed and how.
    """
    try:
        return function(*arguments, **keywords)
    except DpbenchError:
        raise
    except Exception as error:  # third-party code may raise anything
        said = f": {text}," if (text := str(error).rstrip(".")) else ""
        raise ComponentFailed(
            f"{what} failed: {type(error).__name__}{said} in {_place(error)}. Add --debug for the traceback."
        ) from error


def _place(error: Exception) -> str:
    """Return the file and line that failed: the last of the package that was called, whatever library that called."""
    lines = [(_package(frame.f_globals), frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    called = next((package for package, _, _ in lines if package not in _NOBODYS), "dpbench")
    code, line = [(code, line) for package, code, line in lines if package == called][-1]
    return f"{Path(code.co_filename).name}, line {line}"


def _package(names: dict[str, object]) -> str:
    return package_of(names.get("__name__"))
