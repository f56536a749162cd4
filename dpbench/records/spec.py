"""Flags or TOML -> one frozen `Spec` with a digest. Unknown keys are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field, ValidationError, model_validator

from dpbench.errors import SpecError
from dpbench.records.protocol import OWN_UNIT, Component, ComponentField, Protocol
from dpbench.records.search import Search, unused_settings
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
    def roles(self) -> dict[str, Component]:
        """Every component by its role; of several extractors, the second is `extractor.2`."""
        first, *others = self.extractor.parts
        roles = {"learner": self.learner, "extractor": first}
        roles |= {f"extractor.{place}": part for place, part in enumerate(others, 2)}
        roles |= {"dataset": self.dataset}
        return roles if self.public_dataset is None else {**roles, "public_dataset": self.public_dataset}

    @property
    def digest(self) -> str:
        """SHA-256 of the spec as canonical JSON: the name of its result."""
        values = json.loads(self.model_dump_json())  # which spells infinity as JSON can
        if values["search"] is None:
            del values["search"]  # a spec without a search is named as it was before there were any
        return canonical_digest(values)


COMPONENTS = ("dataset", "extractor", "learner", "public_dataset")
TABLES: Mapping[str, type[BaseModel]] = {"": Spec, "search": Search, **dict.fromkeys(COMPONENTS, Component)}


def make_spec(values: dict[str, Any], origin: str) -> Spec:
    """Return the spec that `values` describe, defaults filled in.

    Args:
        values: the keys of `Spec`; components as `name:key=value` or as {name, options}. Without `unit` it is the
            dataset's own, as soon as the spec is resolved.
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
    try:
        spec = Spec(**{"unit": OWN_UNIT, **values})
    except ValidationError as error:
        raise SpecError(sentence(error, origin, TABLES)) from None
    searched = spec.search.space if spec.search and isinstance(spec.search.space, Mapping) else ()
    for name in sorted(spec.learner.options.keys() & searched):
        raise SpecError(
            f"Expected {name}={spec.learner.options[name]} for the learner or values of {name} in the search space, "
            f"got both in {origin}."
        )
    return spec
