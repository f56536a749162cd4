"""What several runs may share, so that a cell of a sweep costs little more than its learner's own time.

All of it is a function of public values: each run gets what it would compute on its own, to the last bit.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import torch

from dpbench.api import Budget, PublicData, Task
from dpbench.errors import SpecError
from dpbench.harness import guarantee, roles
from dpbench.harness.maps import Maps
from dpbench.harness.roles import Roles
from dpbench.learning.linear import Transform
from dpbench.learning.probes import ProbeLearner
from dpbench.privacy.core.plan import check_budget
from dpbench.privacy.core.rows import Scratch
from dpbench.records import provenance
from dpbench.records.protocol import SplitRule
from dpbench.registry.components import Parts, write_component
from dpbench.support import threads

KEPT = 4  # sets of roles: each holds a public split and the labels; features are memory-mapped
T = TypeVar("T")


class LazyValue(Generic[T]):
    """The value of a function that is called once, at the first use, and then let go with all it holds."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function: Callable[[], T] | None = function
        self._value: list[T] = []

    def __call__(self) -> T:
        """Return the value."""
        if self._function is not None:
            self._value = [self._function()]
            self._function = None
        return self._value[0]


class SharedWork:
    """The roles of the last few sets of data, every statement of privacy made so far, and the last public maps.

    A run of its own has a fresh one; a worker of a sweep keeps one for all its cells. Roles depend on the data
    alone, a statement on plan, budget, accountant and kind of randomness alone.
    """

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise SpecError(f"Expected threads={threads} to be at least 1.")
        self.threads = threads  # of every run; None: as many as its work is worth
        self._roles: OrderedDict[Hashable, Roles] = OrderedDict()
        self._maps = Maps()
        self.state = functools.cache(guarantee.state)
        self._process = functools.cache(provenance.collect)

    def threads_for(self, task: Task) -> int:
        """Return with how many threads learners fit on this task."""
        return self.threads or threads.worth(task.size * math.prod(task.example_shape))

    def provenance(self, device: torch.device, threads: int) -> dict[str, Any]:
        """Return versions, commit and machine of this process, which are read once, and the threads of a fit."""
        return {**self._process(str(device)), "threads": threads}

    def roles(self, parts: Parts, rule: SplitRule, budget: Budget, device: torch.device) -> Roles:
        """Return `roles.assign`, with a scratch of this run's own: a fit that failed may not have returned its own."""
        named = [part and write_component(part).model_dump_json() for part in (parts.dataset, parts.public_dataset)]
        key = (*named, write_component(parts.extractor).model_dump_json(), rule, str(device))
        if key in self._roles:
            self._roles.move_to_end(key)
            kept = self._roles[key]  # `assign` checks it before copies are left out, and so does this
            check_budget(budget, dataclasses.replace(kept.task, size=kept.dealt))
        else:
            while len(self._roles) >= KEPT:
                self._roles.popitem(last=False)  # before the next is loaded: both might not fit
            fresh = roles.assign(parts, rule, budget, device)
            self._roles[key] = dataclasses.replace(
                fresh, test=LazyValue(fresh.test), compared=LazyValue(fresh.compared)
            )
        kept = self._roles[key]
        return dataclasses.replace(kept, private=dataclasses.replace(kept.private, scratch=Scratch()))

    def features(
        self, data_key: str, learner: ProbeLearner, task: Task, public: PublicData, generator: torch.Generator
    ) -> Transform:
        """Return `learner.features`, made once for all fits with the same public data and generator that leave it be.

        Rows and samples stay each cell's own: trained stacked, as a search trains its settings, cells would share
        samples, and a cell's result would depend on the cells beside it.
        """
        return self._maps.of(learner, task, public, generator, data_key)
