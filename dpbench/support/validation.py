"""What every model of a file is, and what pydantic refuses, as one complaint and one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from dpbench.support.messages import unknown_name


class Record(BaseModel):
    """What is read from a file or written to one: frozen, no unknown keys, infinities written as text."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class FiniteRecord(Record):
    """A record whose numbers are finite."""

    model_config = ConfigDict(allow_inf_nan=False)


@dataclass(frozen=True)
class Misfit:
    """The first value that does not fit a schema."""

    field: str  # its path, such as seeds.0.accuracy; "file" where the whole does not fit
    said: str
    kind: Literal["unknown", "missing", "value"]
    value: Any

    def __str__(self) -> str:
        return f"{self.field}: {self.said}"


def misfit(error: ValidationError) -> Misfit:
    """Return the complaint that says most: a misspelt key explains a missing one, so it goes first."""
    first = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    said = first["msg"].removeprefix("Value error, ")
    kinds: dict[str, Literal["unknown", "missing"]] = {"extra_forbidden": "unknown", "missing": "missing"}
    field = ".".join(str(part) for part in first["loc"]) or "file"
    return Misfit(field, said[:1].lower() + said[1:], kinds.get(first["type"], "value"), first["input"])


def sentence(error: ValidationError, origin: str, models: Mapping[str, type[BaseModel]]) -> str:
    """Say in one sentence what somebody's keys lack, or which of their values does not fit.

    Args:
        error: what pydantic raised.
        origin: who gave the keys: a file, or the flags of a command.
        models: by name, the tables that the keys may hold; the whole is "".
    """
    found = misfit(error)
    table, _, key = found.field.rpartition(".")
    owner = f"{table} in {origin}" if table else origin
    model = models.get(table.partition(".")[0], models[""])
    if found.kind == "unknown":
        return unknown_name("key", key, model.model_fields, owner)
    if found.kind == "missing":
        field = model.model_fields.get(key)
        meaning = field.description if field else None
        return f"Expected {found.field!r} in {origin}" + (
            f": {meaning}." if meaning else ". It has no default; please set it."
        )
    if found.field == "file":
        return f"Expected values that fit together in {origin}: {found.said}."
    return f"{found.field}={found.value!r:.80} in {origin} does not fit: {found.said}."
