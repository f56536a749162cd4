"""Look up the names in a function's code: globals of its module and of modules that it names, and data of libraries."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch

from dpbench.privacy.purity.kinds import ABSENT, LIBRARIES, ObjectReader, read_cell
from dpbench.support.code import get_top_package

_DATA = (bool, int, float, complex, str, bytes, bytearray, list, dict, set, tuple, torch.Tensor, np.ndarray)
_BY_PYTHON = frozenset(
    {"__annotations__", "__builtins__", "__cached__", "__loader__", "__path__", "__spec__", "__warningregistry__"}
)
"""Globals of a module that Python itself sets."""

LeftOut = Callable[[str], bool]
"""Returns whether the module of this name counts as absent."""


def named_globals_reader(left_out: LeftOut) -> ObjectReader:
    """Return the reader of the globals that a function's code names; they are looked up at every reading."""
    return ObjectReader(
        lambda function: _read_globals(function, left_out), lambda function: _describe_globals(function, left_out)
    )


def namespace_reader(left_out: LeftOut) -> ObjectReader:
    """Return a function that reads all globals of a module, including those that no code refers to."""

    def read_namespace(module: ModuleType) -> dict[str, Any]:
        return {
            name: value
            for name, value in vars(module).items()
            if name not in _BY_PYTHON and not (isinstance(value, ModuleType) and left_out(value.__name__))
        }

    def read_referents(module: ModuleType) -> tuple[Any, ...]:
        found = read_namespace(module)
        return (*found, *found.values())

    def list_global_names(module: ModuleType) -> list[str]:
        return [f"global `{name}` of module `{module.__name__}`" for name in (*read_namespace(module),) * 2]

    return ObjectReader(read_referents, list_global_names)


def library_data_reader(function: FunctionType) -> ObjectReader:
    """Return the reader of data in library modules that a function's code names; plugins may hide state there.

    Only modules that are imported now are read, so a module that a library imports on first use does not count as a
    change.
    """
    names = tuple(dict.fromkeys((*_list_names(function.__code__), *_list_attribute_words(function.__code__))))
    found = [space.get(name) for space in (function.__globals__, sys.modules) for name in names]
    found += map(read_cell, function.__closure__ or ())
    modules: dict[str, Mapping[str, Any]] = {}
    while found:
        owner = found.pop()
        if not isinstance(owner, type | ModuleType) or owner.__name__ in modules:
            continue
        if get_top_package(owner.__module__ if isinstance(owner, type) else owner.__name__) in LIBRARIES:
            modules[owner.__name__] = vars(owner)
            found += [vars(owner).get(name) for name in names]
    told = [f"attribute `{name}` of module `{owner}`" for owner in modules for name in names]
    return ObjectReader(
        lambda _: tuple(_read_library_value(space, name) for space in modules.values() for name in names),
        lambda _: told,
    )


def _read_library_value(space: Mapping[str, Any], name: str) -> Any:
    found = space.get(name, ABSENT)
    return found if isinstance(found, _DATA) and found is not sys.modules else ABSENT


@functools.lru_cache(4096)
def _list_names(code: CodeType) -> tuple[str, ...]:
    inner = (name for const in code.co_consts if isinstance(const, CodeType) for name in _list_names(const))
    return tuple(dict.fromkeys((*code.co_names, *inner)))


@functools.lru_cache(4096)
def _list_attribute_words(code: CodeType) -> tuple[str, ...]:
    """Return the string constants that may name an attribute, as in `setattr` or as a key of a module's `__dict__`."""
    inner = (word for const in code.co_consts if isinstance(const, CodeType) for word in _list_attribute_words(const))
    return (*(const for const in code.co_consts if isinstance(const, str) and const.isidentifier()), *inner)


def _find_namespaces(function: FunctionType, left_out: LeftOut) -> dict[str, dict[str, Any]]:
    """Return the modules in which a function's code may look up names: its own module and the modules that it names."""
    names = _list_names(function.__code__)
    spaces = {str(function.__globals__.get("__name__")): function.__globals__}
    found = [*map(function.__globals__.get, names), *_find_named_modules(function, names)]
    while found:
        module = found.pop()
        if (
            not isinstance(module, ModuleType)
            or get_top_package(module.__name__) in LIBRARIES
            or module.__name__ in spaces
        ):
            continue
        if left_out(module.__name__):
            continue
        spaces[module.__name__] = vars(module)
        found += [vars(module).get(name) for name in names]
    return spaces


def _find_named_modules(function: FunctionType, names: tuple[str, ...]) -> Iterator[Any]:
    """Yield the imported modules to which names may refer, also within the package (`from .kept import it`)."""
    package = str(function.__globals__.get("__package__") or "")
    while package:
        yield sys.modules.get(package)
        yield from (sys.modules.get(f"{package}.{name}") for name in names)
        package = package.rpartition(".")[0]
    yield from map(sys.modules.get, names)


def _read_globals(function: FunctionType, left_out: LeftOut) -> tuple[Any, ...]:
    names = _list_names(function.__code__)
    spaces = _find_namespaces(function, left_out).values()
    return tuple(_hide_left_out(left_out, space.get(name, ABSENT)) for space in spaces for name in names)


def _describe_globals(function: FunctionType, left_out: LeftOut) -> list[str]:
    names = _list_names(function.__code__)
    return [
        f"global `{name}` of module `{module}`" for module in _find_namespaces(function, left_out) for name in names
    ]


def _hide_left_out(left_out: LeftOut, value: Any) -> Any:
    """Return a value, or `ABSENT` for a left-out module: importing a module sets it as an attribute of its package."""
    return ABSENT if isinstance(value, ModuleType) and left_out(value.__name__) else value
