"""Provide base classes for records in files, and describe pydantic's errors in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from dpbench.support.messages import format_unknown_name_message


class Record(BaseModel):
    """The base class of records in files. Records are frozen, refuse unknown keys and write infinities as text."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_inf_nan="strings",
        defer_build=True,  # until a record is first made: `dpbench list` makes few of fifty
    )  # fmt: skip

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy without the cached properties, which the copy computes anew when they are read."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied

    def __getstate__(self) -> dict[Any, Any]:
        """Return the state for pickle, without the cached properties, which take more space than the fields."""
        state, fields = super().__getstate__(), type(self).model_fields
        return {**state, "__dict__": {name: value for name, value in self.__dict__.items() if name in fields}}


class UserRecord(Record):
    """A record that users write. It refuses `true` and `false` for numbers; pydantic would read them as 1 and 0."""

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_boolean(cls, value: Any, info: ValidationInfo) -> Any:
        refuse_boolean(cls.model_fields[str(info.field_name)].annotation, value)
        return value


def refuse_boolean(hint: Any, value: object) -> None:
    """Refuse a boolean, alone or in a list, as the value of a type that has numbers but no booleans.

    >>> refuse_boolean(bool | int, True)
    >>> refuse_boolean(float | None, True)
    Traceback (most recent call last):
    ValueError: expected a number, got true

    Raises:
        ValueError: the value is or contains such a boolean.
    """
    values = value if isinstance(value, list | tuple) else (value,)
    found = [item for item in values if isinstance(item, bool)]
    if found and {int, float} & (types := _list_plain_types(hint)) and bool not in types:
        raise ValueError(f"expected a number, got {str(found[0]).lower()}")


def _list_plain_types(hint: Any) -> set[type]:
    """Return the classes that a type consists of: int and str for `tuple[int, ...] | Literal["auto"] | str`."""
    inner = set[type]().union(*map(_list_plain_types, get_args(hint)))
    return {hint, *inner} if isinstance(hint, type) else inner


class FiniteNumbersRecord(Record):
    """A record whose numbers must be finite."""

    model_config = ConfigDict(allow_inf_nan=False)


@dataclass(frozen=True)
class SchemaViolation:
    """The first value that does not fit a schema, or the first unknown or missing key."""

    field: str  # its path, such as seeds.0.accuracy; "file" where the whole does not fit
    said: str
    kind: Literal["unknown", "missing", "value"]
    value: Any

    def __str__(self) -> str:
        return f"{self.field}: {self.said}"


_UNION = re.compile(r"str|int|float|bool|\w+\[.*\]")  # which type of a union pydantic tried: no key that people write


def first_schema_violation(error: ValidationError) -> SchemaViolation:
    """Return pydantic's most helpful error. Unknown keys come first, because a misspelt key explains a missing one."""
    kinds: dict[str, Literal["unknown", "missing"]] = {
        "extra_forbidden": "unknown", "unexpected_keyword_argument": "unknown", "missing": "missing",
    }  # fmt: skip
    first = min(error.errors(include_url=False), key=lambda error: kinds.get(error["type"]) != "unknown")
    said = _rephrase_complaint(first["type"], first["msg"])
    field = ".".join(str(part) for part in first["loc"] if not _UNION.fullmatch(str(part))) or "file"
    return SchemaViolation(field, said[:1].lower() + said[1:], kinds.get(first["type"], "value"), first["input"])


EXPECTED_WORDS: Mapping[str, str] = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "string": "text",
    "dict": "a table", "model": "a table", "dataclass": "a table", "list": "a list", "tuple": "a list",
    "path": "a path",
}  # fmt: skip
"""The expected type in words, by the first word of pydantic's error type: `int` in `int_parsing`."""


def _rephrase_complaint(error_type: str, message: str) -> str:
    """Rephrase a pydantic complaint for users who write files and flags.

    >>> _rephrase_complaint("int_parsing", "Input should be a valid integer, unable to parse string as an integer")
    'expected a whole number'
    >>> _rephrase_complaint("less_than", "Input should be less than 1")
    'expected a value less than 1'
    >>> _rephrase_complaint("json_invalid", "Invalid JSON: recursion limit exceeded at line 1 column 8986")
    'nested too deeply'
    """
    if error_type == "json_invalid" and "recursion limit" in message:
        return "nested too deeply"
    expected, _, failure = error_type.partition("_")
    if expected in EXPECTED_WORDS and failure in {"type", "parsing", "from_float"}:
        return f"expected {EXPECTED_WORDS[expected]}"
    message = message.removeprefix("Value error, ").replace("Input should be", "expected")
    return message.replace("expected less", "expected a value less").replace(
        "expected greater", "expected a value greater"
    )


Origin = str | Callable[..., str]
"""The source of keys, for messages: its name, or a function that names the source of certain keys.

Without arguments, the function names the source of all keys.
"""


def name_source_of_keys(origin: Origin, *keys: str) -> str:
    """Return the name of the file or flags that gave these keys; without keys, the name for all keys."""
    return origin if isinstance(origin, str) else origin(*keys)


def describe_validation_error(
    error: ValidationError,
    origin: Origin,
    models: Mapping[str, type[BaseModel]],
    keys: Mapping[str, str] | None = None,
) -> str:
    """Describe in a sentence which key is unknown or missing, or which value is invalid.

    Args:
        error: the error that pydantic raised.
        origin: the source of the keys: a file, the flags of a command, or a function that returns the source of a key.
        models: the class of each key that holds a table, by key; under "", the class of the whole file.
        keys: the user's name for a field, by field, if it is not the field's own name.
    """
    found = first_schema_violation(error)
    root, dot, rest = found.field.partition(".")
    found = replace(found, field=f"{(keys or {}).get(root, root)}{dot}{rest}")
    table, _, key = found.field.rpartition(".")
    whole = found.field == "file" or found.kind == "missing"
    origin = name_source_of_keys(origin, *([] if whole else [found.field.partition(".")[0]]))
    owner = f"{table} in {origin}" if table else origin
    model = models.get(table.partition(".")[0], models[""])
    if found.kind == "unknown":
        return format_unknown_name_message("key", key, model.model_fields, owner)
    if found.kind == "missing":
        field = model.model_fields.get(key)
        meaning = field.description if field else None
        return f"Expected {found.field!r} in {origin}" + (
            f": {meaning[:1].lower()}{meaning[1:]}." if meaning else ". It has no default; please set it."
        )
    if found.field == "file":
        return f"Expected values that fit together in {origin}: {found.said}."
    return f"{found.field}={found.value!r:.80} in {origin} does not fit: {found.said}."
