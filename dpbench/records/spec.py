"""Read flags or TOML into one frozen `Spec` with a digest. Unknown keys are refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Container, Iterable, Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from dpbench.errors import SpecError
from dpbench.records.protocol import AUTO, OWN_UNIT, PIXELS, Component, ComponentField, Protocol, SplitRule
from dpbench.records.search import Search, list_ignored_search_keys
from dpbench.records.setting import FlagFacts, list_record_settings
from dpbench.support import progress
from dpbench.support.files import canonical_digest
from dpbench.support.validation import Origin, describe_validation_error, name_source_of_keys

AXES = ("dataset", "extractor", "train_fraction", "learner", "epsilon")
"""Keys whose flags accept several values, outermost loop first, so that runs with the same features are adjacent."""


class Spec(Protocol):
    """The request for a run: everything that decides its numbers, and nothing else."""

    learner: Annotated[ComponentField, FlagFacts(several="pillar,jl")] = Field(
        description="Learner, like pillar or pillar:k=40,center=false"
    )
    secure_rng: bool = Field(
        False,
        description="Use the operating system's randomness and exact discrete noise; needs dpbench-vision[secure]",
    )
    search: Search | None = None
    # No board has this key; not written where it is off: a spec keeps its digest.
    allow_overlap: bool = Field(
        False, exclude_if=lambda value: not value,
        description="Allow public images that are also private. No board accepts the result",
    )  # fmt: skip

    @model_validator(mode="before")
    @classmethod
    def _default_public_fraction_to_zero(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("public_dataset") is not None:
            return {"public_fraction": 0.0, **values}
        return values

    @property
    def split_rule(self) -> SplitRule:
        """The rule that divides the training split; `allow_overlap` keeps private images that equal a public image."""
        return dataclasses.replace(super().split_rule, keep_copies=self.allow_overlap)

    @property
    def data_key(self) -> str:
        """A key for the data: specs with equal keys have the same private, public and test features."""
        return f"{super().data_key}{' with copies' * self.allow_overlap}"

    @property
    def roles(self) -> dict[str, Component]:
        """The components by role; a second extractor has the role `extractor.2`."""
        first, *others = self.extractor.parts
        roles = {"learner": self.learner, "extractor": first}
        roles |= {f"extractor.{place}": part for place, part in enumerate(others, 2)}
        roles |= {"dataset": self.dataset}
        return roles if self.public_dataset is None else {**roles, "public_dataset": self.public_dataset}

    @property
    def user_values(self) -> dict[str, Any]:
        """The keys that the user set, with their values."""
        return {key: value for key, value in dict(self).items() if key in self.model_fields_set}

    def with_default(self, key: str, value: Any, *, given: bool) -> Self:
        """Return a copy with a value for a key that the user left out; `given` marks the key as set by the user."""
        changed = self.model_copy(update={key: value})
        if not given:
            changed.model_fields_set.discard(key)
        return changed

    @property
    def digest(self) -> str:
        """SHA-256 of the spec as canonical JSON; the file name of a result contains its first digits."""
        values = json.loads(self.model_dump_json())  # which spells infinity as JSON can
        if values["search"] is None:
            del values["search"]  # a spec without a search is named as it was before there were any
        return canonical_digest(values)


DATASET_KEYS = tuple(setting.name for setting in list_record_settings(Protocol) if setting.flag.auto == AUTO)
"""Keys whose defaults depend on the dataset."""
COMPONENTS = ("dataset", "extractor", "learner", "public_dataset")
TABLE_RECORDS: Mapping[str, type[BaseModel]] = {"": Spec, "search": Search, **dict.fromkeys(COMPONENTS, Component)}


def make_spec(values: Mapping[str, Any], origin: Origin, kind: type[Spec] = Spec) -> Spec:
    """Return the spec with these values and with defaults for all other keys.

    Args:
        values: the keys of `Spec`; components as `name:key=value` or as {name, options}. If `unit` or `extractor` is
            missing, resolving the spec fills in the dataset's own. If `delta` is missing, it is computed from the
            number of private units once the data is open. `auto` for extractor or delta is the same as
            leaving out the key.
        origin: the source of the values, for messages: "the command line", a file, or a function from a key to it.
        kind: the class of the spec.

    Raises:
        SpecError: a key or value does not fit; the message is one sentence with the key, the given and the expected
            value.
    """
    search = values.get("search")
    for name, why in list_ignored_search_keys(search if isinstance(search, Mapping) else {}):
        raise SpecError(f"Expected no {name} for search in {name_source_of_keys(origin, 'search')}: {why}.")
    given = {key: value for key, value in values.items() if not (key in DATASET_KEYS and value == AUTO)}
    try:
        spec = kind(**{"unit": OWN_UNIT, **given})
    except ValidationError as error:
        raise SpecError(describe_validation_error(error, origin, {**TABLE_RECORDS, "": kind})) from None
    searched = spec.search.space if spec.search and isinstance(spec.search.space, Mapping) else ()
    for name in sorted(spec.learner.options.keys() & searched):
        raise SpecError(
            f"Expected {name}={spec.learner.options[name]} for the learner or values of {name} in the search space, "
            f"got both in {name_source_of_keys(origin)}."
        )
    return spec


def format_flags(spec: Spec, *, defaults: bool = False, fixed: Container[str] = ()) -> list[str]:
    """Return the flags of `dpbench run` for this spec; parsing them gives the spec again.

    Args:
        spec: as the user requested it, or resolved.
        defaults: whether to include protocol settings that have their default value.
        fixed: keys to leave out, because a board fixes them, for example.
    """
    said = [
        word
        for setting in list_record_settings(type(spec))
        if setting.name not in spec.implied_keys and setting.name not in fixed
        for word in setting.words(spec, defaults=defaults)
    ]
    search = spec.search
    return (
        said
        if search is None
        else said + [word for setting in list_record_settings(type(search)) for word in setting.words(search)]
    )


def has_extractor_key(keys: Iterable[str]) -> bool:
    """Return whether the keys name an extractor, or one of its options such as `extractor.size`."""
    return any(key.partition(".")[0] == "extractor" for key in keys)


def add_default_extractor(keys: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Return the keys of a file; if no extractor is named, add the former default and print a notice."""
    if has_extractor_key(keys):
        return dict(keys)
    progress.print_progress_line(
        f"{origin} names no extractor, which means pixels until version 0.4, and then the dataset's own. Add "
        'extractor = "pixels", or "auto".'
    )
    return {**keys, "extractor": PIXELS}
