"""Describe the source of a fit's examples, which all seeds share or which are drawn anew for each seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Self

import torch

from dpbench.records.protocol import SplitRule
from dpbench.registry.components import BuiltComponents, make_component_record
from dpbench.support.files import canonical_digest


@dataclass(frozen=True)
class DataSource:
    """The datasets and the extractor of a fit, and the rule that splits the examples."""

    parts: BuiltComponents  # the datasets as they are drawn for a seed; the learner plays no part
    rule: SplitRule
    device: torch.device  # of an extractor, and of public features
    distribution: str = ""  # digest that names the data where they are drawn; empty where they are the same for all

    @classmethod
    def from_components(cls, parts: BuiltComponents, seed: int, rule: SplitRule, device: torch.device) -> Self:
        """Return the data source of a fit with this seed."""
        drawn = draw_datasets_for_seed(parts, seed)
        if drawn == parts:
            return cls(parts, rule, device)
        datasets = parts.dataset, parts.public_dataset
        named = canonical_digest([part and make_component_record(part).model_dump(mode="json") for part in datasets])
        return cls(drawn, rule, device, named)

    @property
    def key(self) -> Hashable:
        """The cache key of the examples; sources of the same examples have equal keys."""
        datasets = self.parts.dataset, self.parts.public_dataset
        named = [part and make_component_record(part).model_dump_json() for part in datasets]
        extractor = make_component_record(self.parts.extractor).model_dump_json()
        return (*named, extractor, self.rule, str(self.device), self.distribution)


def draw_datasets_for_seed(parts: BuiltComponents, seed: int) -> BuiltComponents:
    """Return the components with the datasets for this seed; datasets that draw examples at random draw them anew."""
    other = parts.public_dataset
    return dataclasses.replace(parts, dataset=parts.dataset.drawn(seed), public_dataset=other and other.drawn(seed))
