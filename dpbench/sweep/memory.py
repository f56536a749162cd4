"""What a worker remembers between cells, so that a cell costs little more than its learner's own time."""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import torch

from dpbench import registry
from dpbench.api import Budget, Curator, Learner, Predict, PublicData, Task
from dpbench.errors import DpbenchError
from dpbench.harness import roles as data
from dpbench.harness import run
from dpbench.harness.guarantee import state
from dpbench.learning.probes import Maps, stackable
from dpbench.privacy.plan import check_budget, check_plan
from dpbench.privacy.rows import Scratch
from dpbench.records import provenance
from dpbench.records.result import Privacy
from dpbench.records.spec import Spec
from dpbench.registry import Registry, components
from dpbench.registry.components import Parts
from dpbench.support.guard import guarded

MAPS = 16  # kept: each a few arrays of the size of public features' statistics, for one seed
KEPT = 4  # sets of roles: each holds a public split and the labels; features are memory-mapped
T = TypeVar("T")


class Once(Generic[T]):
    """Calls a function the first time, returns what it gave ever after, and lets go of what the function held."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function: Callable[[], T] | None = function
        self._value: list[T] = []

    def __call__(self) -> T:
        """Return the value."""
        if self._function is not None:
            self._value = [self._function()]
            self._function = None
        return self._value[0]


class Memory:
    """The roles of the last few sets of data, and every statement of privacy made so far.

    Roles depend on the spec's data alone (`data_of`), a statement on plan, budget and accountant alone: a cell gets
    what a run of its own would compute.
    """

    def __init__(self, plugins: Registry | None = None, kept: int = KEPT) -> None:
        self.plugins, self._kept = plugins or registry.load(), kept
        self._roles: OrderedDict[Hashable, data.Roles] = OrderedDict()
        self._stated: dict[Hashable, Privacy] = {}
        self._maps: OrderedDict[Hashable, Maps] = OrderedDict()
        self.means = run.Means(self._assign, self._state, functools.cache(provenance.collect), self._fit)

    def prepare(self, spec: Spec, device: torch.device) -> None:
        """Extract features and compare images, which the cache folder keeps for every process that comes after.

        Raises:
            DpbenchError: as `run` does.
        """
        parts = components.resolve(self.plugins, spec)
        roles = self._assign(parts, components.spelled_out(spec, parts), device)
        roles.test()
        roles.overlap()

    def work(self, spec: str, device: str, threads: int) -> str:
        """Run one cell: spec as JSON -> {"result": ...} or {"error": ...} as JSON."""
        torch.set_num_threads(threads)  # here, as some libraries count threads by the thread that asks
        try:
            result = run.run(Spec.model_validate_json(spec), device=device, plugins=self.plugins, means=self.means)
        except DpbenchError as error:
            return json.dumps({"error": str(error)})
        except Exception as error:  # a slip of dpbench's own ends a cell, not the sweep
            print(traceback.format_exc(), file=sys.stderr)
            return json.dumps({"error": f"{type(error).__name__}: {error} Its traceback is in the log of the worker."})
        return f'{{"result": {result.model_dump_json()}}}'

    def _assign(self, parts: Parts, spec: Spec, device: torch.device) -> data.Roles:
        key = (data_of(spec), str(device))
        if key in self._roles:
            self._roles.move_to_end(key)
            check_budget(Budget(spec.epsilon, spec.delta), self._roles[key].task)  # which `assign` does before it loads
            return _own(self._roles[key], spec)
        while len(self._roles) >= self._kept:
            self._roles.popitem(last=False)  # before the next is loaded: both might not fit
        roles = data.assign(parts, spec, device)
        self._roles[key] = dataclasses.replace(roles, test=Once(roles.test), overlap=Once(roles.overlap))
        return _own(self._roles[key], spec)

    def _state(self, parts: Parts, task: Task, spec: Spec) -> Privacy:
        if spec.search is not None:
            return state(parts, task, spec)
        budget = Budget(spec.epsilon, spec.delta, spec.adjacency)
        plan = check_plan(guarded(parts.who("learner", "plan"), parts.learner.plan, task, budget), parts.learner.name)
        key = (plan, budget, spec.accountant, spec.secure_rng)
        if key not in self._stated:
            self._stated[key] = state(parts, task, spec)
        return self._stated[key]

    def _fit(
        self, learner: Learner, spec: Spec, curator: Curator, public: PublicData, generator: torch.Generator
    ) -> Predict:
        """Fit; a probe with the map that an earlier cell made of the same public data and generator.

        So cells that differ in budget, steps, learning rate, clip ... alone make PILLAR's projection once. Rows and
        products stay each cell's own, and its numbers those of a run alone, to the last bit. Trained stacked, as a
        search trains its settings, cells would round otherwise (scores by up to 2e-5), and depend on their neighbours.
        """
        if not stackable(learner):
            return learner.fit(curator, public, generator)
        drawn = generator.get_state().numpy().tobytes()
        key = (learner.map_key, data_of(spec), str(curator.task.device), public.y is None, drawn)
        maps = self._maps.setdefault(key, Maps())
        self._maps.move_to_end(key)
        while len(self._maps) > MAPS:
            self._maps.popitem(last=False)
        features = maps.of(learner, curator.task, public, generator)
        return learner.fit_on(features, curator, public, generator)


def _own(roles: data.Roles, spec: Spec) -> data.Roles:
    """Return the roles with nothing in them that one cell could leave changed for the next."""
    private = dataclasses.replace(roles.private, scratch=Scratch())  # a fit that failed may not have given its own back
    if spec.search is None:
        return dataclasses.replace(roles, private=private)  # each fit gets a copy of the public data
    x, y = roles.public.x.clone(), roles.public.y
    return dataclasses.replace(roles, private=private, public=PublicData(x, None if y is None else y.clone()))


def data_of(spec: Spec) -> str:
    """Return what decides a spec's roles, budget aside."""
    fields: set[Any] = {
        "dataset", "extractor", "public_dataset", "public_fraction", "train_fraction", "split_seed"
    }  # fmt: skip
    return spec.model_dump_json(include=fields)
