"""Flags or TOML -> one frozen `Spec` with a digest. Unknown keys are refused."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from dpbench.api import Adjacency
from dpbench.errors import SpecError
from dpbench.records.search import Search
from dpbench.support.files import canonical_digest
from dpbench.support.messages import unknown


class Component(BaseModel):
    """A plugin's component by name, with the options that differ from its defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    options: dict[str, Any] = {}

    @classmethod
    def parse(cls, text: str) -> Component:
        """Read `name` or `name:key=value,key=value`; a first value without a key is that of `shorthand`.

        >>> Component.parse("pillar:k=40,center=false")
        Component(name='pillar', options={'k': '40', 'center': 'false'})
        >>> Component.parse("torchvision:resnet18,tag=DEFAULT")
        Component(name='torchvision', options={'': 'resnet18', 'tag': 'DEFAULT'})
        """
        name, _, rest = text.partition(":")
        options = {}
        for place, pair in enumerate(filter(None, rest.split(","))):
            key, equals, value = pair.partition("=")
            if place == 0 and key and not (equals and key.strip().isidentifier()):
                key, equals, value = "", "=", pair
            elif not equals or not key.strip():
                raise SpecError(
                    f"Expected key=value after {name!r}, got {pair!r}. Write it like pillar:k=40,center=false."
                )
            options[key.strip()] = value.strip()
        return cls(name=name, options=options)

    def __str__(self) -> str:
        options = ",".join(f"{key}={value}" if key else str(value) for key, value in self.options.items())
        return f"{self.name}:{options}" if options else self.name


def _component(value: object) -> object:
    return Component.parse(value) if isinstance(value, str) else value


Named = Annotated[Component, BeforeValidator(_component)]


def first_seeds(seeds: object) -> object:
    """Return seeds 0 to 4 for 5; seeds that are spelled out stay."""
    return tuple(range(seeds)) if isinstance(seeds, int) else seeds


class Spec(BaseModel):
    """One run: everything that decides its numbers, nothing that does not."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    dataset: Named = Component(name="digits")
    extractor: Named = Component(name="pixels")
    learner: Named
    epsilon: float = Field(1.0, gt=0)
    delta: float = Field(1e-5, gt=0, lt=1)
    accountant: Literal["pld", "rdp", "prv"] = "pld"
    adjacency: Adjacency = "add-or-remove-one"
    public_fraction: float = Field(0.1, ge=0, lt=1)
    public_dataset: Named | None = None
    public_labels: bool = False
    train_fraction: float = Field(1.0, gt=0, le=1)
    split_seed: int = Field(0, ge=0)
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(first_seeds)] = (0, 1, 2, 3, 4)
    secure_rng: bool = False
    search: Search | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_source_of_public_data(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("public_dataset") is not None:
            return {"public_fraction": 0.0, **values}
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Spec:
        if self.public_dataset is not None and self.public_fraction > 0:
            raise ValueError("public data comes from public_dataset or from public_fraction, not from both")
        if len(set(self.seeds)) != len(self.seeds) or not self.seeds:
            raise ValueError("seeds must be at least one, each once")
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of the spec as canonical JSON: the name of its result."""
        values = json.loads(self.model_dump_json())  # which spells infinity as JSON can
        if values["search"] is None:
            del values["search"]  # a spec without a search is named as it was before there were any
        return canonical_digest(values)


def make_spec(values: dict[str, Any], origin: str) -> Spec:
    """Return the spec that `values` describe, defaults filled in.

    Args:
        values: the keys of `Spec`; components as `name:key=value` or as {name, options}.
        origin: who gave them, for messages: "the command line" or a file.

    Raises:
        SpecError: one sentence that names the key, what came and what was expected.
    """
    try:
        return Spec(**values)
    except ValidationError as error:
        raise SpecError(_sentence(error, origin)) from None


def read_toml(path: Path) -> dict[str, Any]:
    """Return the keys of a TOML file.

    Raises:
        SpecError: the file cannot be read or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"Cannot read the spec {path}: {error}.") from error


def _sentence(error: ValidationError, origin: str) -> str:
    # A misspelt key explains a missing one, so it is said first.
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden" and len(first["loc"]) > 1:
        model = Search if first["loc"][0] == "search" else Component
        return unknown("key", str(first["loc"][-1]), model.model_fields, f"{first['loc'][0]} in {origin}")
    if first["type"] == "extra_forbidden":
        return unknown("key", key, Spec.model_fields, origin)
    if first["type"] == "missing":
        return f"Expected {key!r} in {origin}; it has no default."
    message = first["msg"].removeprefix("Value error, ")
    where = f"{key}={first['input']!r} in {origin} does not fit" if key else f"Expected otherwise in {origin}"
    return f"{where}: {message[0].lower()}{message[1:]}."
