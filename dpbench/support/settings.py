"""Declare the settings of a component with defaults, ranges and meanings; check them when a component is built."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from typing_extensions import deprecated

from dpbench.errors import SpecError
from dpbench.support.fields import (
    describe_type,
    format_setting_value,
    get_field_types,
    has_type,
    is_required_field,
    read_default,
)

T = TypeVar("T")
LIMITS = "limits"  # the key of a field's metadata


@dataclasses.dataclass(frozen=True)
class SettingLimits:
    """The range of a setting and its meaning."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    choices: tuple[Any, ...] = ()
    says: str = ""

    def allows(self, value: Any) -> bool:
        """Return whether a value, or every value of a list or mapping, is in range; nan is never in range.

        Bounds apply to numbers only, not to the text that a type such as `int | Literal["auto"]` also allows.
        """
        if isinstance(value, list | tuple | dict):
            return all(map(self.allows, value.values() if isinstance(value, dict) else value))
        if not issubclass(type(value), Real):
            return value is None or not self.choices or value in self.choices
        return bool(
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
            and (not self.choices or value in self.choices)
        )

    @property
    def condition(self) -> str:
        """The range, worded to follow "Expected k=3" in a message."""
        return f"to be {self}" if self.choices else str(self)

    def __str__(self) -> str:
        """Return the range as text.

        >>> print(SettingLimits(ge=1), SettingLimits(ge=0, lt=1), SettingLimits(gt=0, lt=math.inf), sep="; ")
        >= 1; in [0, 1); > 0 and finite
        >>> print(SettingLimits(choices=(28, 64)))
        one of 28, 64
        """
        if self.choices:
            return f"one of {', '.join(map(str, self.choices))}"
        low = self.ge if self.gt is None else self.gt
        high = self.le if self.lt is None else self.lt
        opening = ">=" if self.gt is None else ">"
        if low is None or high is None:
            closing = "<=" if self.lt is None else "<"
            return f"{opening} {low}" if low is not None else f"{closing} {high}" if high is not None else ""
        if self.lt == math.inf:
            return f"{opening} {low} and finite"
        return f"in {'[' if self.gt is None else '('}{low}, {high}{']' if self.lt is None else ')'}"


def setting(  # noqa: PLR0913 - one for each fact
    default: T = ...,  # type: ignore[assignment]
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    choices: Sequence[T] = (),
    says: str = "",
    added: bool = False,
    earlier: Mapping[str, Any] = MappingProxyType({}),
    kw_only: bool = False,
) -> T:
    """Declare a setting of a learner, dataset or extractor: a dataclass field that states its range and its meaning.

    When a component is built, dpbench refuses a value of another type or out of range. `dpbench list NAME` shows range
    and meaning. If the type includes None, None is always in range:
    `k: int | None = setting(None, ge=1, says="components kept")`.

    Args:
        default: the default value; without it, users must set one.
        ge: the smallest value.
        gt: the exclusive lower bound.
        le: the largest value.
        lt: the exclusive upper bound; `math.inf` allows finite numbers only.
        choices: the only values; for text, declare a `Literal` instead.
        says: the meaning, a noun phrase such as "noisy gradient steps".
        added: whether the setting is newer than published results; specs leave it out at its default.
        earlier: former defaults by version, like `{"0.2.0": 1.0}`: a result of that version with that value still
            counts as one with default settings.
        kw_only: whether the setting is keyword-only, as in `dataclasses.field`.
    """
    metadata = {LIMITS: SettingLimits(ge, gt, le, lt, tuple(choices), says), "added": added, "earlier": earlier}
    keyword = True if kw_only else dataclasses.MISSING  # which leaves it to the class
    start: Any = dataclasses.MISSING if default is ... else default
    field: T = dataclasses.field(default=start, kw_only=keyword, metadata=metadata)
    return field


class ComponentWithSettings:
    """The base class of learners, datasets and extractors; it checks the settings of every instance.

    A subclass may define its own `__post_init__` for checks across settings. It runs after the checks of the single
    settings, even if it does not call the `__post_init__` of its base class.
    """

    def __post_init__(self) -> None:
        """Check the type and range of every setting."""
        check_settings(self)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.__post_init__ = _add_settings_check(cls.__post_init__)  # type: ignore[method-assign]


def _add_settings_check(post_init: Callable[..., None]) -> Callable[..., None]:
    """Return a `__post_init__` that checks every setting and then calls the original, `post_init`."""

    @functools.wraps(post_init)
    def check_then_post_init(self: Any, *arguments: Any) -> None:
        check_settings(self)
        post_init(self, *arguments)

    return check_then_post_init


def check_settings(component: T) -> T:
    """Check the type and range of every declared setting of a component, and return the component.

    `ComponentWithSettings` calls this function when Python builds a component. The registry, and `Learner.settle`
    before every plan, call it again, because a class may have an `__init__` or `__post_init__` that skips this check or
    changes a setting.

    Raises:
        SpecError: a value does not fit; the message names the setting, value, range, meaning and component.
    """
    cls: type = type(component)
    for field, limits, hint in _list_fields_with_limits(cls):
        value = getattr(component, field.name)
        fits = has_type(value, hint)
        if fits and (value is None or limits.allows(value)):
            continue
        owner, name = _component_kind(cls), getattr(cls, "name", cls.__name__)
        got = f"{value!s:.80} {limits.condition}" if fits else f"{value!r:.80} to be {describe_type(hint, str(limits))}"
        meaning = f": {limits.says}" if limits.says else ""
        default = "" if is_required_field(field) else f" or leave it out ({format_setting_value(field.default)})"
        raise SpecError(
            f"Expected {field.name}={got} in {owner} {name!r}{meaning}. Set {name}:{field.name}=...{default}."
        )
    return component


@functools.lru_cache(1024)
def _list_fields_with_limits(cls: type) -> list[tuple[dataclasses.Field[Any], SettingLimits, Any]]:
    types, found = get_field_types(cls), ((item, _find_limits(cls, item.name)) for item in dataclasses.fields(cls))
    return [(item, limits, types[item.name]) for item, limits in found if limits is not None]


def _find_limits(cls: type, name: str) -> SettingLimits | None:
    """Return the limits that a class or its nearest base class declares for a field; None if no class declares any."""
    fields = (vars(base).get("__dataclass_fields__", {}).get(name) for base in cls.__mro__)
    return next((field.metadata[LIMITS] for field in fields if field and LIMITS in field.metadata), None)


def _component_kind(cls: type) -> str:
    """Return the kind of a component, such as "learner".

    It is the lower-case name of the base class that is directly below `ComponentWithSettings`.
    """
    return next(base.__name__.lower() for base in cls.__mro__ if ComponentWithSettings in base.__bases__)


class SettingRow(NamedTuple):
    """A row of a table of settings."""

    name: str
    default: str  # as a user writes it, or `required`
    values: str
    meaning: str


def list_settings(cls: type) -> list[SettingRow]:
    """Return the rows of a component's table of settings."""
    rows, types = [], get_field_types(cls)
    for field in dataclasses.fields(cls):
        limits = _find_limits(cls, field.name) or SettingLimits()
        default = "required" if is_required_field(field) else format_setting_value(read_default(field))
        rows.append(SettingRow(field.name, default, describe_type(types[field.name], str(limits)), limits.says))
    return rows


def require_setting(setting: T | None) -> T:
    """Return the value of a setting that could be `auto`, after `Learner.settle` has chosen it.

    Raises:
        SpecError: the setting is still None.
    """
    if setting is None:
        raise SpecError("Expected a number, but the setting is still auto. Call learner.settle(task, budget) first.")
    return setting


@deprecated("dpbench.settled is called require_setting. The old name will be removed in version 0.4.")
def settled(setting: T | None) -> T:
    """Return the result of `require_setting`, which had this name until version 0.2."""
    return require_setting(setting)
