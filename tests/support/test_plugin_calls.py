"""A failure of a plugin is told with what it said and its own line, whatever library it called."""

from __future__ import annotations

import json
import sys

import pytest

from dpbench.errors import ComponentFailed
from dpbench.support.plugin_calls import call_plugin


def reads() -> object:
    return json.loads("{")


def says_nothing() -> None:
    raise ValueError


def test_the_line_is_that_of_the_plugin_and_not_of_the_library_that_it_called() -> None:
    with pytest.raises(
        ComponentFailed, match=r"^load failed: JSONDecodeError: Expecting .*, in test_plugin_calls.py, line "
    ) as told:
        call_plugin("load", lambda: reads())
    assert f"line {reads.__code__.co_firstlineno + 1}. Add --debug" in str(told.value)


def test_a_failure_without_text_is_told_by_its_type_and_line() -> None:
    line = says_nothing.__code__.co_firstlineno + 1
    with pytest.raises(
        ComponentFailed, match=rf"^fit failed: ValueError in test_plugin_calls.py, line {line}\. Add --debug"
    ):
        call_plugin("fit", says_nothing)


def test_a_failure_of_a_call_that_runs_no_line_of_a_plugin_is_told_all_the_same() -> None:
    with pytest.raises(ComponentFailed, match=r"^fit failed: TypeError: .*, in plugin_calls.py, line "):
        call_plugin("fit", int, [])  # type: ignore[arg-type]


def test_an_exit_with_a_code_of_its_choice_is_a_failure_like_others() -> None:
    with pytest.raises(ComponentFailed, match="fit failed: SystemExit: 7,"):
        call_plugin("fit", sys.exit, 7)
