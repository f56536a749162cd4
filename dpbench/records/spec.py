"""Flags or TOML -> one frozen `Spec` with a digest. Unknown keys are refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from dpbench.errors import SpecError
from dpbench.records.protocol import AUTO, OWN_UNIT, PIXELS, Component, ComponentField, Protocol, SplitRule
from dpbench.records.search import Search, unused_settings
from dpbench.support import progress
from dpbench.support.files import canonical_digest
from dpbench.support.validation import sentence


class Spec(Protocol):
    """One run: everything that decides its numbers, nothing that does not."""

    learner: ComponentField
    secure_rng: bool = False
    search: Search | None = None
    # Public images may be private ones. No board has this key; not written where it is off: a spec keeps its digest.
    allow_overlap: bool = Field(False, exclude_if=lambda value: not value)

    @model_validator(mode="before")
    @classmethod
    def _one_source_of_public_data(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("public_dataset") is not None:
            return {"public_fraction": 0.0, **values}
        return values

    @property
    def split_rule(self) -> SplitRule:
        """How the training split is cut; with `allow_overlap` private images that equal a public one stay."""
        return dataclasses.replace(super().split_rule, keep_copies=self.allow_overlap)

    @property
    def data_key(self) -> str:
        """What decides the roles of examples: equal for specs that can share them."""
        return f"{super().data_key}{' with copies' * self.allow_overlap}"

    @property
    def roles(self) -> dict[str, Component]:
        """Every component by its role; of several extractors, the second is `extractor.2`."""
        first, *others = self.extractor.parts
        roles = {"learner": self.learner, "extractor": first}
        roles |= {f"extractor.{place}": part for place, part in enumerate(others, 2)}
        roles |= {"dataset": self.dataset}
        return roles if self.public_dataset is None else {**roles, "public_dataset": self.public_dataset}

    @property
    def given(self) -> dict[str, Any]:
        """The keys that somebody gave, with their values."""
        return {key: value for key, value in dict(self).items() if key in self.model_fields_set}

    def with_default(self, key: str, value: Any, *, given: bool) -> Self:
        """Return the spec with a value for a key that nobody gave; `given` says whether it counts as given now."""
        changed = self.model_copy(update={key: value})
        if not given:
            changed.model_fields_set.discard(key)
        return changed

    @property
    def request(self) -> str:
        """JSON of what somebody asked for: keys that nobody gave are left out, as the data decides some of them."""
        return self.model_dump_json(exclude_unset=True)

    @property
    def digest(self) -> str:
        """SHA-256 of the spec as canonical JSON: the name of its result."""
        values = json.loads(self.model_dump_json())  # which spells infinity as JSON can
        if values["search"] is None:
            del values["search"]  # a spec without a search is named as it was before there were any
        return canonical_digest(values)


FOLLOWS = ("extractor", "delta")
"""Keys that the dataset decides where nobody gave them."""
COMPONENTS = ("dataset", "extractor", "learner", "public_dataset")
TABLES: Mapping[str, type[BaseModel]] = {"": Spec, "search": Search, **dict.fromkeys(COMPONENTS, Component)}


def make_spec(values: dict[str, Any], origin: str) -> Spec:
    """Return the spec that `values` describe, defaults filled in.

    Args:
        values: the keys of `Spec`; components as `name:key=value` or as {name, options}. Without `unit` it is the
            dataset's own, as soon as the spec is resolved. So is the extractor, and delta follows from the number of
            private units once the data is open; both may be given as `auto` too.
        origin: who gave them, for messages: "the command line" or a file.

    Raises:
        SpecError: one sentence that names the key, what came and what was expected.
    """
    seeds = values.get("seeds")
    if isinstance(seeds, int) and seeds < 1:
        raise SpecError(f"Expected at least one seed in {origin}, got seeds={seeds}: it is how many there are.")
    search = values.get("search")
    if isinstance(search, Mapping) and (unused := unused_settings(search)):
        rule = search.get("rule", Search.model_fields["rule"].default)
        raise SpecError(f"Expected no {unused[0]} for search in {origin}: {rule} does not use it.")
    given = {key: value for key, value in values.items() if not (key in FOLLOWS and value == AUTO)}
    try:
        spec = Spec(**{"unit": OWN_UNIT, **given})
    except ValidationError as error:
        raise SpecError(sentence(error, origin, TABLES)) from None
    searched = spec.search.space if spec.search and isinstance(spec.search.space, Mapping) else ()
    for name in sorted(spec.learner.options.keys() & searched):
        raise SpecError(
            f"Expected {name}={spec.learner.options[name]} for the learner or values of {name} in the search space, "
            f"got both in {origin}."
        )
    return spec


def with_pixels(keys: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Return the keys of a file that names no extractor with the one that it has meant until now, and say so."""
    progress.line(
        f"{origin} names no extractor, which means pixels until version 0.4, and then the dataset's own. Add "
        'extractor = "pixels", or "auto".'
    )
    return {**keys, "extractor": PIXELS}
