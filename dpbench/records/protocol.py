"""The protocol of a run, written once: all that decides its numbers but the learner, its search and the randomness.

A spec adds these (`records.spec`); a board freezes a protocol for all of its entries (`records.board`).
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from dpbench.api import Adjacency
from dpbench.errors import SpecError
from dpbench.privacy.accounting.accountant import AccountantName


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
        for number, pair in enumerate(filter(None, rest.split(","))):
            key, equals, value = pair.partition("=")
            if number == 0 and key and not (equals and key.strip().isidentifier()):
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


class Protocol(BaseModel):
    """Data, features, budget and seeds."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    dataset: Named = Component(name="digits")
    extractor: Named = Component(name="pixels")
    epsilon: float = Field(1.0, gt=0)
    delta: float = Field(1e-5, gt=0, lt=1)
    accountant: AccountantName = "pld"
    adjacency: Adjacency = "add-or-remove-one"
    public_fraction: float = Field(0.1, ge=0, lt=1)
    public_dataset: Named | None = None
    public_labels: bool = False
    train_fraction: float = Field(1.0, gt=0, le=1)
    split_seed: int = Field(0, ge=0)
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(first_seeds)] = (0, 1, 2, 3, 4)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.public_dataset is not None and self.public_fraction > 0:
            raise ValueError("public data comes from public_dataset or from public_fraction, not from both")
        if len(set(self.seeds)) != len(self.seeds) or not self.seeds:
            raise ValueError("seeds must be at least one, each once")
        return self
