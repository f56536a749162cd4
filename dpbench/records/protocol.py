"""The protocol of a run: everything that decides its numbers except the learner, its search and the randomness.

A spec (`records.spec`) adds these three; a board (`records.board`) freezes a protocol for all of its entries.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from dpbench.api import Adjacency, Budget
from dpbench.errors import SpecError
from dpbench.privacy.core.accounting.accountant import AccountantName
from dpbench.records.metrics import RankMetric
from dpbench.records.setting import FlagFacts
from dpbench.support.validation import Record, UserRecord

EPSILON_RANGE = (1e-4, 1e4)
SMALLEST_DELTA = 1e-12  # below it accountants round, and no longer agree
"""Bounds on targets: epsilon lies in `EPSILON_RANGE` or is infinite, and delta is at least `SMALLEST_DELTA`."""
MAX_IMBALANCE = 1e4
MAX_SEEDS = 100_000
OWN_UNIT = "own"
"""Placeholder for the unit if the user names none; resolving the spec replaces it with the dataset's unit."""
AUTO = "auto"
"""The word with which a user requests the dataset-dependent default of `delta` or `extractor`."""
SUGGESTED_NETWORK = "efficientnet-lite0:size=128"
"""The extractor that dpbench suggests for images that are too large for raw pixels."""
PIXELS = "pixels"
"""The default extractor if the dataset suggests no other, or if the suggested weights are not on this machine."""
CONCAT = "concat"
"""The component that joins several extractors, with options `{"of": [{name, options}, ...]}`. Reserved for dpbench."""
_JOIN_PATTERN = re.compile(
    r"\s*\+\s*(?=[a-z][a-z0-9._-]*\s*(?::|\+|$))"
)  # before a name alone: 1e+1 and a+b/c are values
_UNIT_WORDS = re.compile(r"[a-z][a-z -]*")
_LIST_HINT = "Write it like pixels:size=8+scatternet."


class Component(Record):
    """A plugin's component: its name and options. An option that is left out has its default."""

    name: str
    options: dict[str, Any] = Field(default={}, validate_default=True)

    @field_validator("options")
    @classmethod
    def _dump_concat_parts(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Check a concat's options and store its parts as plain values, so that its JSON gives an equal component."""
        if info.data.get("name") != CONCAT:
            return options
        of = options.get("of")
        try:
            parts = (
                [cls.model_validate(_parse_component(component)) for component in of]
                if isinstance(of, list | tuple)
                else []
            )
        except ValidationError:
            parts = []
        if options.keys() != {"of"} or len(parts) < 2 or any(part.name == CONCAT for part in parts):
            raise ValueError("concat has one option, of: a list of two or more extractors, none of them concat")
        return {"of": [{"name": part.name, "options": part.options} for part in parts]}

    @classmethod
    def parse(cls, text: str) -> Component:
        """Parse `name` or `name:key=value,key=value`; a first value without a key belongs to the `shorthand` option.

        >>> Component.parse("pillar:k=40,center=false")
        Component(name='pillar', options={'k': '40', 'center': 'false'})
        >>> Component.parse("torchvision:resnet18,tag=DEFAULT")
        Component(name='torchvision', options={'': 'resnet18', 'tag': 'DEFAULT'})
        """
        name, _, rest = text.partition(":")
        if name.strip() == CONCAT:
            raise SpecError(f"Expected extractors joined by '+', got {text!r}. {_LIST_HINT}")
        options = {}
        for number, pair in enumerate(filter(None, rest.split(","))):
            key, equals, value = pair.partition("=")
            if number == 0 and key and not (equals and key.strip().isidentifier()):
                key, equals, value = "", "=", pair
            elif not equals or not key.strip():
                raise SpecError(
                    f"Expected key=value after {name!r}, got {pair!r}. Write it like pillar:k=40,center=false."
                )
            if key.strip() in options:
                raise SpecError(f"Expected option {key.strip()!r} of {name!r} once, got it twice in {text!r}.")
            options[key.strip()] = value.strip()
        return cls(name=name, options=options)

    @classmethod
    def parse_extractor(cls, text: str) -> Component:
        """Parse an extractor as `parse` does, or several extractors joined by `+`, each with its own options.

        A `+` separates extractors if it is followed by a name and then by `:`, `+` or the end of the text.

        >>> str(Component.parse_extractor("pixels:size=8,flat=true + scatternet"))
        'pixels:size=8,flat=true+scatternet'
        """
        parts = [cls.parse(part) for part in _JOIN_PATTERN.split(text)]
        if not all(part.name.strip() for part in parts) or any("+" in part.name for part in parts):
            raise SpecError(f"Expected the name of an extractor on both sides of each '+' in {text!r}. {_LIST_HINT}")
        return parts[0] if len(parts) == 1 else cls(name=CONCAT, options={"of": parts})

    @property
    def parts(self) -> tuple[Component, ...]:
        """The parts of a concat; for any other component, the component itself."""
        return tuple(Component(**part) for part in self.options["of"]) if self.name == CONCAT else (self,)

    def with_parts(self, parts: Sequence[Component]) -> Component:
        """Return a concat of these parts or, if this component is no concat, the only part."""
        return Component(name=CONCAT, options={"of": parts}) if self.name == CONCAT else parts[0]

    @property
    def names(self) -> str:
        """The names of all parts, joined by `+`."""
        return "+".join(part.name for part in self.parts)

    def __str__(self) -> str:
        if self.name == CONCAT:
            return "+".join(map(str, self.parts))
        options = ",".join(f"{key}={value}" if key else str(value) for key, value in self.options.items())
        return f"{self.name}:{options}" if options else self.name


def _parse_component(value: object) -> object:
    return Component.parse(value) if isinstance(value, str) else _check_component_table(value)


def _parse_extractor(value: object) -> object:
    return Component.parse_extractor(value) if isinstance(value, str) else _check_component_table(value)


def _check_component_table(value: object) -> object:
    if not isinstance(value, Mapping | Component):
        raise ValueError("expected text, like name:key=value, or a table, like {name = 'pillar', options = {k = 40}}")
    return value


ComponentField = Annotated[Component, BeforeValidator(_parse_component)]
ExtractorField = Annotated[Component, BeforeValidator(_parse_extractor)]


def _normalise_unit(unit: object) -> object:
    if isinstance(unit, str) and not _UNIT_WORDS.fullmatch(unit):
        raise ValueError("expected a word in lower case, like patient")
    return None if unit == "image" else unit


def parse_seeds(seeds: object) -> object:
    """Expand a number of seeds (5 or "5") to seeds 0 to 4; parse text like "3,7"; return lists unchanged."""
    if isinstance(seeds, str) and re.fullmatch(r"-?\d+", seeds.strip()):
        seeds = int(seeds)
    elif isinstance(seeds, str) and re.fullmatch(r"\d+(,\d+)*,?", seeds):
        seeds = [int(seed) for seed in seeds.split(",") if seed]
    if not isinstance(seeds, int | list | tuple):
        raise ValueError("expected how many seeds there are, or a list of them")
    if isinstance(seeds, int) and seeds > MAX_SEEDS:
        raise ValueError(f"at most {MAX_SEEDS:,} seeds")
    if isinstance(seeds, int) and seeds < 1:
        raise ValueError("expected at least one seed")
    return tuple(range(seeds)) if isinstance(seeds, int) else seeds


@dataclass(frozen=True)
class SplitRule:
    """The rule that divides the published training split into public and private examples."""

    public_fraction: float
    train_fraction: float  # of what is not public
    imbalance: float | None
    seed: int
    unit: str | None = None  # whose epsilon it is, where that is not an image's
    keep_copies: bool = False  # private images that equal a public one stay private


class Protocol(UserRecord):
    """The data, features, budget and seeds of a run."""

    dataset: Annotated[ComponentField, FlagFacts(several="A,B")] = Field(
        Component(name="digits"), title="Dataset", description="Dataset with the private and test data"
    )
    extractor: Annotated[ExtractorField, FlagFacts(default="the dataset's own", auto=AUTO, several="A,B")] = Field(
        Component(name=PIXELS), title="Extractor", description="Feature extractor; A+B joins the features of both"
    )
    epsilon: Annotated[float, FlagFacts(several="0.1,1")] = Field(
        1.0, gt=0, title="ε", description="Target epsilon in nats; inf for no privacy"
    )
    delta: Annotated[float, FlagFacts(default=AUTO, auto=AUTO)] = Field(
        1e-5, gt=0, lt=1, title="δ",
        description="Target delta, or auto: 1e-5, or the largest power of ten of at most 1/(2n)",
    )  # fmt: skip
    accountant: AccountantName = Field("pld", title="Accountant", description="Accountant")
    adjacency: Adjacency = Field("add-or-remove-one", title="Neighbours")  # the only one: no setting
    public_fraction: float = Field(
        0.1, ge=0, lt=1, title="Public share of the training split",
        description="Share of the training split made public",
    )  # fmt: skip
    public_dataset: ComponentField | None = Field(
        None, title="Public dataset", description="Dataset to use as public data instead"
    )
    public_labels: bool = Field(False, title="Public labels", description="Let the learner read public labels")
    train_fraction: Annotated[float, FlagFacts(several="0.1,1")] = Field(
        1.0, gt=0, le=1, title="Private share kept", description="Share of the private split to keep"
    )
    # Not written where there is none: such a protocol keeps its digest.
    imbalance: float | None = Field(
        None, gt=1, allow_inf_nan=False, exclude_if=lambda value: value is None,
        title="Images of the first class for one of the last",
        description="Make classes unequal: 20 keeps 20 images of the first class for every image of the last, with a "
        "constant ratio from class to class. Does not change --public-dataset",
    )  # fmt: skip
    split_seed: int = Field(0, ge=0, title="Split seed", description="Seed of the public/private split")
    # None is an image, and then it is not written.
    unit: Annotated[
        str | None,
        BeforeValidator(_normalise_unit),
        FlagFacts(default="the dataset's own", auto=OWN_UNIT, none="image"),
    ] = Field(
        None, pattern=f"^{_UNIT_WORDS.pattern}$", exclude_if=lambda value: value is None, title="Unit of the guarantee",
        description="Unit of the guarantee: image, or a unit that the dataset identifies, such as patient",
    )  # fmt: skip
    # Public, and a learner may aim for it. Not written where it is accuracy.
    metric: RankMetric = Field(
        default="accuracy", exclude_if=lambda value: value == "accuracy", title="Ranked by",
        description="Metric that learners aim for and results are ranked by",
    )  # fmt: skip
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(parse_seeds)] = Field(
        (0, 1, 2, 3, 4), title="Seeds", description="Number of seeds: 5 means 0 to 4; or the seeds, like 3,7"
    )

    @property
    def implied_keys(self) -> frozenset[str]:
        """The keys whose values other keys determine: with a public dataset, `public_fraction` is 0."""
        return frozenset({"public_fraction"} if self.public_dataset is not None else ())

    @property
    def budget(self) -> Budget:
        """The privacy budget of a run."""
        return Budget(self.epsilon, self.delta, self.adjacency)

    @property
    def split_rule(self) -> SplitRule:
        """The rule that divides the training split."""
        return SplitRule(self.public_fraction, self.train_fraction, self.imbalance, self.split_seed, self.unit)

    @property
    def data_key(self) -> str:
        """A key for the data: protocols with equal keys have the same private, public and test features."""
        fields: set[Any] = {
            "dataset", "extractor", "public_dataset", "public_fraction", "train_fraction", "imbalance", "split_seed",
            "unit",
        }  # fmt: skip
        return self.model_dump_json(include=fields)

    @field_validator("epsilon")
    @classmethod
    def _check_epsilon(cls, epsilon: float) -> float:
        low, high = EPSILON_RANGE
        if not (low <= epsilon <= high or epsilon == math.inf):
            raise ValueError(f"accountants answer, and agree, for epsilon from {low:g} to {high:g}; inf is no privacy")
        return epsilon

    @field_validator("delta")
    @classmethod
    def _check_delta(cls, delta: float) -> float:
        if delta < SMALLEST_DELTA:
            raise ValueError(f"accountants answer, and agree, for delta from {SMALLEST_DELTA:g}")
        return delta

    @field_validator("imbalance")
    @classmethod
    def _check_imbalance(cls, imbalance: float | None) -> float | None:
        if imbalance is not None and imbalance > MAX_IMBALANCE:
            raise ValueError(
                f"at most {MAX_IMBALANCE:g} of the first class to 1 of the last, or few have an example left"
            )
        return imbalance

    @model_validator(mode="after")
    def _check_public_source_and_seeds(self) -> Self:
        if self.public_dataset is not None and self.public_fraction > 0:
            raise ValueError("public data comes from public_dataset or from public_fraction, not from both")
        if len(set(self.seeds)) != len(self.seeds) or not self.seeds:
            raise ValueError("seeds must be at least one, each once")
        return self
