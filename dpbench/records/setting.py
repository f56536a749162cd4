"""The settings of a run: described fields of records such as `Protocol`, `Search` and `RunOptions`.

Flags, TOML keys, checks, messages and printed commands are derived from a field's name, type, range, default and
description. `Flag` adds the few facts that only a shell needs.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

PARSED_TYPES = (bool, int, float, Path)
"""Types that the flag parser converts; it passes all others as text to the field's own validators."""


@dataclass(frozen=True)
class SwitchFlag:
    """A flag without an argument that sets a setting to a fixed value."""

    key: str
    value: str
    says: str  # its sentence in the help


@dataclass(frozen=True)
class FlagFacts:
    """Facts about a field that only a shell needs, besides its name, type and description."""

    key: str = ""  # the name of the flag and of the key in a file, where another field has the field's own name
    default: str = ""  # how the help tells the default, where that is no value
    auto: str = ""  # the word by which a user leaves the value to the dataset, as by saying nothing
    none: str = ""  # the word for None
    several: str = ""  # an example of several values, for commands that run each of them
    switch: SwitchFlag | None = None


@dataclass(frozen=True)
class Setting:
    """A field of a record as the user sees it: a key in files and a flag in the shell."""

    name: str  # of the field
    field: FieldInfo
    flag: FlagFacts

    @property
    def key(self) -> str:
        """The key in a file, which is also the name of a command's parameter."""
        return self.flag.key or self.name

    @property
    def option(self) -> str:
        """The flag in the shell.

        >>> from dpbench.records.search import Search
        >>> [setting.option for setting in list_record_settings(Search)][:2]
        ['--selection', '--space']
        """
        return format_flag_name(self.key)

    @property
    def types(self) -> tuple[Any, ...]:
        """The types that the field accepts, without None."""
        hint = self.field.annotation
        members = (hint,) if get_origin(hint) is Literal else get_args(hint) or (hint,)
        return tuple(member for member in members if member is not NoneType)

    @property
    def kind(self) -> type:
        """The type that the flag parser reads."""
        plain = len(self.types) == 1 and self.types[0] in PARSED_TYPES and not self.flag.auto
        return self.types[0] if plain else str

    @property
    def is_repeated(self) -> bool:
        """Whether the flag can be given several times: a table needs one flag per key."""
        return any(get_origin(hint) is dict for hint in self.types)

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that the field accepts; empty if it accepts others too. The word for None comes first."""
        (hint, *others) = self.types
        words = tuple(map(str, get_args(hint))) if get_origin(hint) is Literal and not others else ()
        return (self.flag.none, *words) if words and self.flag.none else words

    @property
    def default(self) -> str:
        """The default in the help; empty if the help shows none."""
        value = self.field.default
        if self.flag.default or self.flag.none or self.field.is_required() or value is None:
            return self.flag.default or self.flag.none
        return "" if isinstance(value, bool) else format_flag_value(value)[0]

    def words(self, record: BaseModel, *, defaults: bool = False) -> list[str]:
        """Return the shell words for the value that a record has for this setting; empty if the default suffices."""
        value = getattr(record, self.name)
        if self.flag.auto:
            silent = self.name not in record.model_fields_set or value == self.flag.auto
        elif defaults or self.flag.none:
            silent = value is None or value is False
        else:
            silent = value == self.field.default
        if silent:
            return []
        written = [self.flag.none] if value is None else format_flag_value(value)
        return [word for text in written for word in ([self.option] if value is True else [self.option, text])]


def list_record_settings(record: type[BaseModel]) -> Iterator[Setting]:
    """Yield the settings of a record: its fields that have a description, required settings first."""
    for name, field in sorted(record.model_fields.items(), key=lambda item: not item[1].is_required()):
        if field.description:
            flags = [extra for extra in field.metadata if isinstance(extra, FlagFacts)]
            yield Setting(name, field, flags[0] if flags else FlagFacts())


def describe_record_fields(
    record: BaseModel, kind: type[BaseModel], implied: Container[str] = ()
) -> Iterator[tuple[str, str]]:
    """Yield the title and the formatted value of each field of a record, as pages show them.

    Args:
        record: an instance of `kind` or of a class derived from it.
        kind: the class whose fields are described.
        implied: names of fields to leave out, because other fields determine their values.
    """
    for name, field in kind.model_fields.items():
        value = getattr(record, name)
        flag = next((extra for extra in field.metadata if isinstance(extra, FlagFacts)), FlagFacts())
        value = flag.none if value is None and flag.none else value
        if value is not None and name not in implied:
            yield field.title or name, _format_field_value(value, words=get_origin(field.annotation) is Literal)


def _format_field_value(value: Any, *, words: bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value).replace("_", " ") if words else format_flag_value(value)[0]


def join_with_or(words: Sequence[str]) -> str:
    """Join words with commas and a final `or`.

    >>> join_with_or(["pld", "rdp", "prv"]), join_with_or(["pld"])
    ('pld, rdp or prv', 'pld')
    """
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def format_flag_name(key: str) -> str:
    """Return the flag that belongs to a key.

    >>> format_flag_name("search_seed")
    '--search-seed'
    """
    return f"--{key.replace('_', '-')}"


def format_flag_value(value: Any) -> list[str]:
    """Format a value as arguments of a flag: one argument per key of a table, else a single one.

    >>> format_flag_value(0.5), format_flag_value(2.0), format_flag_value((0, 1, 2)), format_flag_value((7,))
    (['0.5'], ['2'], ['3'], ['7,'])
    >>> format_flag_value({"k": (3, 5)})
    ['k=3,5']
    """
    if isinstance(value, Mapping):
        return [f"{name}={','.join(map(str, values))}" for name, values in value.items()]
    if isinstance(value, tuple):
        return [_format_seeds(value)]
    return [str(value).removesuffix(".0") if isinstance(value, float) else str(value)]


def _format_seeds(seeds: Sequence[int]) -> str:
    """Return the number of seeds if they are 0, 1, 2, ..., otherwise the list of seeds; a single seed gets a comma."""
    if tuple(seeds) == tuple(range(len(seeds))):
        return str(len(seeds))
    return f"{','.join(map(str, seeds))}{',' * (len(seeds) == 1)}"
