"""Describe the fields of a dataclass, such as a component's settings: types in words, defaults and changed values."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

NUMBERS: Mapping[Any, type] = {int: Integral, float: Real}
TYPE_WORDS: Mapping[Any, str] = {
    int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "auto"
}  # fmt: skip


def has_type(value: Any, hint: Any) -> bool:
    """Return whether a value has the declared type of a setting; nan and booleans are not numbers.

    Only numbers, booleans, text, None and `Literal` are checked. A setting of any other type accepts every value.

    >>> has_type(3, float), has_type(True, int | None), has_type("L", Literal["L"]), has_type(float("nan"), float)
    (True, False, True, False)
    """
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if is_union_type(hint):
        return any(has_type(value, part) for part in get_args(hint))
    if hint in NUMBERS:
        return isinstance(value, NUMBERS[hint]) and not isinstance(value, bool) and bool(value == value)  # noqa: PLR0124
    return not (isinstance(hint, type) and hint in TYPE_WORDS) or isinstance(value, hint)


@functools.lru_cache(1024)
def get_field_types(cls: type) -> dict[str, Any]:
    """Return the types of a class's fields, by name; a type imported only for type checkers stays text."""
    try:
        return get_type_hints(cls)
    except NameError:
        hints = ((base, inspect.get_annotations(base)) for base in reversed(cls.__mro__))
        return {name: _resolve_type(base, hint) for base, own in hints for name, hint in own.items()}


def _resolve_type(cls: type, hint: Any) -> Any:
    """Return a class's annotation as a type, or as text if it uses a name that does not exist at run time."""
    alone = type(cls.__name__, (), {"__annotations__": {"hint": hint}, "__module__": cls.__module__})
    try:
        return get_type_hints(alone, localns=dict(vars(cls)))["hint"]
    except NameError:
        return hint


def describe_type(hint: Any, limits: str = "") -> str:
    """Describe a type in words, with the limits of its numbers.

    >>> describe_type(int | None), describe_type(Literal["RGB", "L"]), describe_type(int | None, ">= 1")
    ('a whole number or auto', "'RGB' or 'L'", 'a whole number >= 1 or auto')
    """
    if get_origin(hint) is Literal:
        *values, last = map(repr, get_args(hint))
        return f"{', '.join(values)} or {last}" if values else last
    if is_union_type(hint):
        return " or ".join(describe_type(part, limits) for part in get_args(hint))
    said = TYPE_WORDS.get(hint, getattr(hint, "__name__", str(hint)))
    return f"{said} {limits}" if limits and hint is not type(None) else said


def is_fully_described_type(hint: Any) -> bool:
    """Return whether `describe_type` describes a type completely."""
    parts = get_args(hint) if is_union_type(hint) else (hint,)
    return all(part in TYPE_WORDS or get_origin(part) is Literal for part in parts)


def list_free_text_fields(cls: type) -> frozenset[str]:
    """Return the names of a dataclass's fields that accept any text or path, such as the name of a file."""
    parts = {name: get_args(hint) if is_union_type(hint) else (hint,) for name, hint in get_field_types(cls).items()}
    return frozenset(name for name, hints in parts.items() if str in hints or Path in hints)


def is_union_type(hint: Any) -> bool:
    """Return whether a type is a union."""
    return get_origin(hint) in {Union, UnionType}


def format_setting_value(value: object) -> str:
    """Return a setting's value as users write it in `name:setting=value`.

    >>> format_setting_value(None), format_setting_value(True), format_setting_value(8192 / 50_000)
    ('auto', 'true', '0.16384')
    """
    if value is None or isinstance(value, bool):
        return {None: "auto", True: "true", False: "false"}[value]
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def is_required_field(field: dataclasses.Field[Any]) -> bool:
    """Return whether a field is an argument of `__init__` without a default."""
    return field.init and field.default is field.default_factory is dataclasses.MISSING


def list_changed_fields(instance: Any) -> dict[str, Any]:
    """Return the values of a dataclass's fields that have no default or differ from their default, by name.

    >>> @dataclasses.dataclass
    ... class Some:
    ...     size: int = 8
    ...     names: list[str] = dataclasses.field(default_factory=list)
    >>> list_changed_fields(Some(size=9))
    {'size': 9}
    """
    return {
        name: value
        for name, default in read_defaults(instance).items()
        if (value := getattr(instance, name)) != default
    }


def read_defaults(instance: Any) -> dict[str, Any]:
    """Return the defaults of a dataclass's fields, by name; `dataclasses.MISSING` for a field that has none."""
    return {field.name: read_default(field) for field in dataclasses.fields(instance) if field.init}


def list_filled_in_fields(before: Any, after: Any) -> dict[str, Any]:
    """Return the values in `after` of the fields that were None in `before`, an instance of the same class.

    >>> @dataclasses.dataclass
    ... class Some:
    ...     size: int | None = None
    ...     name: str | None = None
    >>> list_filled_in_fields(Some(name="a"), Some(8, "b"))
    {'size': 8}
    """
    pairs = [(field.name, getattr(after, field.name)) for field in dataclasses.fields(before)]
    return {name: value for name, value in pairs if value is not None and getattr(before, name) is None}


def read_default(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a field; `dataclasses.MISSING` if it has none."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
