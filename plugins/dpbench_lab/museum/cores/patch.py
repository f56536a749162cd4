"""Patches that put a bug into `dpbench`: an edit of its source text, or a function that replaces another."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dpbench

REMOVED, ADDED = (re.compile(mark, re.DOTALL) for mark in (r"\[-(.*?)-\]", r"\{\+(.*?)\+\}"))


class StalePatch(Exception):
    """The code that a patch edits has changed, so the patch does not apply."""


@dataclass(frozen=True)
class SourceEdit:
    """Changes to one file's text, in the notation of `git diff --word-diff`: `if [-not same-]{+False+}:`.

    The original text of each change occurs exactly once in the file. Edits are applied in a copy of the repository.
    """

    file: str  # below dpbench
    changes: tuple[str, ...]

    def edit_source(self, source: str) -> str:
        """Return the file's text with the bug.

        Raises:
            StalePatch: the original text of a change is missing, or occurs more than once.
        """
        for change in self.changes:
            before, after = REMOVED.sub(r"\1", ADDED.sub("", change)), ADDED.sub(r"\1", REMOVED.sub("", change))
            if (count := source.count(before)) != 1:
                raise StalePatch(f"Expected once in dpbench/{self.file}, found {count} times: {before!r}.")
            source = source.replace(before, after)
        return source

    def check(self) -> None:
        """Raise `StalePatch` if the original text of a change is missing, or occurs more than once."""
        self.edit_source((Path(dpbench.__file__).parent / self.file).read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Replacement:
    """Replaces functions of `dpbench.privacy`: each new function receives the honest function and its arguments."""

    functions: Mapping[str, Callable[..., Any]]  # by place: module:name, or module:Class.name

    @contextmanager
    def apply(self) -> Iterator[None]:
        """Replace the honest functions while the block runs."""
        replaced = [(*find_privacy_function(place), function) for place, function in self.functions.items()]
        for owner, name, honest, function in replaced:
            setattr(owner, name, _bind_honest_function(function, honest))
        try:
            yield
        finally:
            for owner, name, honest, _ in replaced:
                setattr(owner, name, honest)

    def check(self) -> None:
        """Raise `StalePatch` if a function to replace no longer exists."""
        for place in self.functions:
            find_privacy_function(place)


Patch = SourceEdit | Replacement


def find_privacy_function(qualified_name: str) -> tuple[Any, str, Any]:
    """Return the owner of a function (a module or class of `dpbench.privacy`), its name, and the function itself.

    Raises:
        StalePatch: there is no such function.
    """
    module, _, path = qualified_name.partition(":")
    *classes, name = path.split(".")
    try:
        owner: Any = importlib.import_module(f"dpbench.privacy.{module}")
        for cls in classes:
            owner = getattr(owner, cls)
        return owner, name, getattr(owner, name)
    except (ImportError, AttributeError) as error:
        raise StalePatch(f"Expected a function dpbench.privacy.{qualified_name}: {error}.") from None


def _bind_honest_function(function: Callable[..., Any], honest: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given, **named: function(honest, *given, **named)
