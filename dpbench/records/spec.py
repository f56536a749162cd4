"""Flags or TOML -> one frozen `Spec` with a digest. Unknown keys are refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Container, Iterable, Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from dpbench.errors import SpecError
from dpbench.records.protocol import AUTO, OWN_UNIT, PIXELS, Component, ComponentField, Protocol, SplitRule
from dpbench.records.search import Search, find_unused_settings
from dpbench.records.setting import Flag, settings
from dpbench.support import progress
from dpbench.support.files import canonical_digest
from dpbench.support.validation import Origin, misfit_sentence, name_origin


class Spec(Protocol):
    """A run: everything that decides its numbers, and nothing else."""

    learner: Annotated[ComponentField, Flag(several="pillar,jl")] = Field(
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
    def _one_source_of_public_data(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("public_dataset") is not None:
            return {"public_fraction": 0.0, **values}
        return values

    @property
    def split_rule(self) -> SplitRule:
        """The rule that cuts the training split; `allow_overlap` keeps private images that equal a public image."""
        return dataclasses.replace(super().split_rule, keep_copies=self.allow_overlap)

    @property
    def data_key(self) -> str:
        """Everything that decides the roles of examples: specs with equal keys can share them."""
        return f"{super().data_key}{' with copies' * self.allow_overlap}"

    @property
    def roles(self) -> dict[str, Component]:
        """Every component by role; the second of several extractors is `extractor.2`."""
        first, *others = self.extractor.parts
        roles = {"learner": self.learner, "extractor": first}
        roles |= {f"extractor.{place}": part for place, part in enumerate(others, 2)}
        roles |= {"dataset": self.dataset}
        return roles if self.public_dataset is None else {**roles, "public_dataset": self.public_dataset}

    @property
    def given(self) -> dict[str, Any]:
        """The keys that the user gave, with their values."""
        return {key: value for key, value in dict(self).items() if key in self.model_fields_set}

    def with_default(self, key: str, value: Any, *, given: bool) -> Self:
        """Return the spec with a value for a key that the user left out; `given` makes it count as given."""
        changed = self.model_copy(update={key: value})
        if not given:
            changed.model_fields_set.discard(key)
        return changed

    @property
    def digest(self) -> str:
        """SHA-256 of the spec as canonical JSON: the name of its result."""
        values = json.loads(self.model_dump_json())  # which spells infinity as JSON can
        if values["search"] is None:
            del values["search"]  # a spec without a search is named as it was before there were any
        return canonical_digest(values)


DATASET_KEYS = tuple(setting.name for setting in settings(Protocol) if setting.flag.auto == AUTO)
"""Keys that the dataset decides where nobody gave them."""
COMPONENTS = ("dataset", "extractor", "learner", "public_dataset")
TABLE_RECORDS: Mapping[str, type[BaseModel]] = {"": Spec, "search": Search, **dict.fromkeys(COMPONENTS, Component)}


def make_spec(values: Mapping[str, Any], origin: Origin, kind: type[Spec] = Spec) -> Spec:
    """Return the spec with these `values`, defaults filled in.

    Args:
        values: the keys of `Spec`; components as `name:key=value` or as {name, options}. Without `unit` it is the
            dataset's own, as soon as the spec is resolved. So is the extractor, and delta follows from the number of
            private units once the data is open; both may be given as `auto` too.
        origin: who gave them, for messages: "the command line", a file, or what names it by key.
        kind: the class of the spec.

    Raises:
        SpecError: one sentence that names the key, what came and what was expected.
    """
    search = values.get("search")
    for name, why in find_unused_settings(search if isinstance(search, Mapping) else {}):
        raise SpecError(f"Expected no {name} for search in {name_origin(origin, 'search')}: {why}.")
    given = {key: value for key, value in values.items() if not (key in DATASET_KEYS and value == AUTO)}
    try:
        spec = kind(**{"unit": OWN_UNIT, **given})
    except ValidationError as error:
        raise SpecError(misfit_sentence(error, origin, {**TABLE_RECORDS, "": kind})) from None
    searched = spec.search.space if spec.search and isinstance(spec.search.space, Mapping) else ()
    for name in sorted(spec.learner.options.keys() & searched):
        raise SpecError(
            f"Expected {name}={spec.learner.options[name]} for the learner or values of {name} in the search space, "
            f"got both in {name_origin(origin)}."
        )
    return spec


def write_flags(spec: Spec, *, defaults: bool = False, fixed: Container[str] = ()) -> list[str]:
    """Return the flags of `dpbench run` that ask for a spec: the inverse of reading them.

    Args:
        spec: as it was asked for or as it was resolved.
        defaults: spell out the settings of the protocol that are at their default, too.
        fixed: keys that are said elsewhere, as by a board.
    """
    said = [
        word
        for setting in settings(type(spec))
        if setting.name not in spec.implied and setting.name not in fixed
        for word in setting.words(spec, defaults=defaults)
    ]
    search = spec.search
    return (
        said
        if search is None
        else said + [word for setting in settings(type(search)) for word in setting.words(search)]
    )


def names_extractor(keys: Iterable[str]) -> bool:
    """Return whether keys of a file name an extractor, or an option of an extractor, like `extractor.size`."""
    return any(key.partition(".")[0] == "extractor" for key in keys)


def fill_extractor(keys: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Return the keys of a file; if they name no extractor, add the former default and say so."""
    if names_extractor(keys):
        return dict(keys)
    progress.print_line(
        f"{origin} names no extractor, which means pixels until version 0.4, and then the dataset's own. Add "
        'extractor = "pixels", or "auto".'
    )
    return {**keys, "extractor": PIXELS}
