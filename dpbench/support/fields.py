"""The fields of a dataclass, which are the options of a component."""

from __future__ import annotations

import dataclasses
from typing import Any


def changed_fields(part: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that are not at their default, by name; one without a default is among them.

    >>> @dataclasses.dataclass
    ... class Some:
    ...     size: int = 8
    ...     names: list[str] = dataclasses.field(default_factory=list)
    >>> changed_fields(Some(size=9))
    {'size': 9}
    """
    fields = [field for field in dataclasses.fields(part) if field.init]
    return {field.name: value for field in fields if (value := getattr(part, field.name)) != _default(field)}


def filled_fields(before: Any, after: Any) -> dict[str, Any]:
    """Return the fields of `after` that were None in `before`, another of its class, and are not any more.

    >>> @dataclasses.dataclass
    ... class Some:
    ...     size: int | None = None
    ...     name: str | None = None
    >>> filled_fields(Some(name="a"), Some(8, "b"))
    {'size': 8}
    """
    pairs = [(field.name, getattr(after, field.name)) for field in dataclasses.fields(before)]
    return {name: value for name, value in pairs if value is not None and getattr(before, name) is None}


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
