"""The plan asked for again: epsilon follows from it, so it has to be that of the learner whose accuracy is stated."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from dpbench.api import Extractor, Learner, Task
from dpbench.board.verify.expectations import Wrong
from dpbench.errors import DataMissing, DpbenchError
from dpbench.harness.plans import plan_of, settle
from dpbench.harness.tuning.space import candidate
from dpbench.records.result import Result
from dpbench.records.tolerance import close
from dpbench.registry import Registry
from dpbench.registry.components import build
from dpbench.registry.same_code import SAME, compare_code, stored_fingerprints
from dpbench.support.code import DPBENCH
from dpbench.support.fields import filled_fields

if TYPE_CHECKING:
    from torch import nn


class _Tail:
    """The network behind activations, which remembers whether it was looked for and is not here."""

    _loaded: ClassVar[dict[Hashable, nn.Module]] = {}  # many results of a figure have one network

    def __init__(self, network: Hashable, load: Callable[[], nn.Module]) -> None:
        self.network, self.load, self.missing = network, load, False

    def __call__(self) -> nn.Module:
        try:
            if self.network not in self._loaded:
                self._loaded[self.network] = self.load()
        except DataMissing:
            self.missing = True
            raise
        return copy.deepcopy(self._loaded[self.network])  # a learner may put adapters into it


def check_plan_of(result: Result, plugins: Registry) -> Wrong:
    """Yield where the learner settles or plans otherwise for the task that a result states.

    Not asked are a learner that is not installed, or in another version whose code is not known to compute the same
    (`registry.same_code`; nothing is fitted to find out); one without privacy, whose plan costs nothing;
    one whose settings a private search chose, which plans for all of them at once; and one that looks at the network
    behind activations, where that network is not here.
    """
    spec, name = result.spec, result.spec.learner.name
    item, brought = plugins.components["learner"].get(name), result.components.get("learner")
    if item is None or brought is None or math.isinf(spec.epsilon) or result.privacy.repeats is not None:
        return
    if item.distribution != brought.distribution:
        return
    if item.version != brought.version and not _computes_the_same(result, plugins):
        return
    tail = None
    try:
        tail = _tail(result, plugins)
        asked = candidate(_chosen(result, plugins), dict.fromkeys(result.settled))
        who, task = lambda doing: f"{doing} of {name!r}", _task(result, tail)
        learner = settle(asked, who, task, spec.budget)
        plan = plan_of(learner, who, task, spec.budget)
    except DpbenchError as error:
        if tail is not None and tail.missing:
            return
        yield "privacy.plan", f"learner {name!r} does not plan for this task: {error}"
        return
    settled = filled_fields(asked, learner)
    for field, stated in result.settled.items():
        if not _same(settled.get(field), stated):
            yield f"settled.{field}", f"expected {settled.get(field)!r}, as learner {name!r} settles, got {stated!r}"
    if plan != result.privacy.releases:
        got = ", ".join(map(str, result.privacy.releases)) or "nothing"
        yield "privacy.plan", f"expected {', '.join(map(str, plan)) or 'nothing'}, as learner {name!r} plans, got {got}"


def _computes_the_same(result: Result, plugins: Registry) -> bool:
    found = compare_code(result, plugins, stored_fingerprints(), same_data=None)
    return {found.get("learner"), found.get(DPBENCH)} <= {*SAME}


def _chosen(result: Result, plugins: Registry) -> Learner:
    chosen: Mapping[str, Any] = (result.search.chosen if result.search else None) or {}
    learner = result.spec.learner
    built: Learner = build(plugins, "learner", learner.model_copy(update={"options": {**learner.options, **chosen}}))
    return built


def _task(result: Result, tail: _Tail | None) -> Task:
    import torch

    task = result.task
    return Task(
        task.example_shape, len(task.classes), task.private, torch.device("cpu"), task.public,
        same_source=result.spec.public_dataset is None, metric=result.spec.metric, tail=tail,
    )  # fmt: skip


def _tail(result: Result, plugins: Registry) -> _Tail | None:
    """Return what loads the network behind activations, or says that it is not here; None for other examples."""
    extractor = result.spec.extractor
    if not extractor.options.get("layer"):
        return None
    if extractor.name not in plugins.components["extractor"]:
        return _Tail(None, _not_installed)
    built: Extractor = build(plugins, "extractor", extractor)
    load = built.tail()
    return None if load is None else _Tail((type(built), str(extractor)), load)


def _not_installed() -> nn.Module:
    raise DataMissing("The extractor is not installed. Install the package that brings it.")


def _same(one: Any, other: Any) -> bool:
    return close(one, other) if isinstance(one, float) and isinstance(other, float) else one == other
