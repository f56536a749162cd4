"""What a learner's code imports as it runs, imported before: a module that a fit brings in is nothing left behind."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import resolve_name
from types import CodeType, FunctionType, ModuleType


@cache
def import_named(cls: type) -> None:
    """Import every module that the methods of a class import, and in turn what functions of its own package import.

    One that cannot be imported is passed over: whoever imports it says so.
    """
    own, seen = cls.__module__.partition(".")[0], set[str]()
    left = [function for base in cls.__mro__ for function in _functions(base)]
    while left:
        function = left.pop()
        for name in set(_imports(function.__code__, str(function.__globals__.get("__package__") or ""))) - seen:
            seen.add(name)
            with suppress(Exception):  # nor is what `from module import function` names a module
                module = import_module(name)
                if name.partition(".")[0] == own:
                    left += _functions(module)


def _functions(owner: type | ModuleType) -> list[FunctionType]:
    return [one for one in vars(owner).values() if isinstance(one, FunctionType)]


def _imports(code: CodeType, package: str) -> Iterator[str]:
    """Yield the modules that code names in its import statements, and what it takes from them, which may be modules."""
    instructions = [one for one in dis.get_instructions(code) if one.opname != "EXTENDED_ARG"]
    for place, one in enumerate(instructions):
        if one.opname == "IMPORT_NAME":
            level, names = (before.argval for before in instructions[place - 2 : place])
            with suppress(ImportError):
                name = resolve_name("." * level + one.argval, package) if level else one.argval
                yield from (name, *(f"{name}.{part}" for part in names or ()))
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _imports(const, package)
