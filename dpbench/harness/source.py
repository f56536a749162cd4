"""Where the examples of a run come from: the same for every seed, or drawn anew by a dataset that draws them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch

from dpbench.api import Budget
from dpbench.harness.roles import Roles, select_public
from dpbench.harness.shared import SharedWork
from dpbench.records.protocol import SplitRule
from dpbench.registry.components import Parts, write_component
from dpbench.support.files import canonical_digest


@dataclass(frozen=True)
class DataSource:
    """The data of a run, split and extracted for each seed; `shared` keeps what several seeds have in common."""

    parts: Parts
    rule: SplitRule
    budget: Budget  # whose delta has to be below 1/n
    device: torch.device
    shared: SharedWork
    metric: str = "accuracy"  # what learners are told to aim for

    def roles(self, seed: int) -> Roles:
        """Return the examples that a fit with this seed has, each in its role.

        Raises:
            DpbenchError: as `roles.assign` does.
        """
        parts = draw_data(self.parts, seed)
        roles = self.shared.roles(parts, self.rule, self.budget, self.device)
        if parts != self.parts:  # a digest names the distribution, whichever the draw
            datasets = self.parts.dataset, self.parts.public_dataset
            named = canonical_digest([part and write_component(part).model_dump(mode="json") for part in datasets])
            roles = dataclasses.replace(roles, digests=dict.fromkeys(roles.digests, named))
        count = len(select_public(roles.public, self.parts.learner).x)
        return dataclasses.replace(roles, task=dataclasses.replace(roles.task, public=count, metric=self.metric))

    def alike(self, seed: int, other: int) -> bool:
        """Return whether fits with these seeds have the same data."""
        return draw_data(self.parts, seed) == draw_data(self.parts, other)


def draw_data(parts: Parts, seed: int) -> Parts:
    """Return the parts with the data that a fit with this seed sees: of a dataset whose examples are drawn, its own."""
    other = parts.public_dataset
    return dataclasses.replace(parts, dataset=parts.dataset.drawn(seed), public_dataset=other and other.drawn(seed))
