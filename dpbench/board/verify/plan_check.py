"""Ask the learner again for its plan and compare it with the stated plan, from which epsilon is derived."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

from dpbench.api import Extractor, Learner, Task
from dpbench.board.verify.expectations import FieldComplaints
from dpbench.errors import DataMissing, DpbenchError
from dpbench.harness.plans import ask_plan, settle_as_stated, settle_learner
from dpbench.harness.tuning.space import set_options
from dpbench.records.result import Result
from dpbench.records.tolerance import agree_up_to_rounding
from dpbench.registry import Registry
from dpbench.registry.components import build
from dpbench.registry.same_code import SAME_CODE, compare_code, stored_fingerprints
from dpbench.support.code import DPBENCH
from dpbench.support.fields import filled_fields

if TYPE_CHECKING:
    import torch
    from torch import nn


class _TailLoader:
    """Loads the network behind activations, and records whether a learner needed it while it was missing."""

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


def check_learner_plan(result: Result, plugins: Registry) -> FieldComplaints:
    """Yield differences between the stated settings and plan and those that the learner makes for the stated task.

    The learner is not asked in four cases: it is not installed, or only in another version that is not known to compute
    the same (`registry.same_code`; nothing is fitted to find out); the run has no privacy, so that its plan costs
    nothing; a private search chose its settings, so that it plans for all of them at once; or it needs the network
    behind activations and this network is missing here.
    """
    spec, name = result.spec, result.spec.learner.name
    item, brought = plugins.components["learner"].get(name), result.components.get("learner")
    if item is None or brought is None or math.isinf(spec.epsilon) or result.privacy.repeats is not None:
        return
    if item.distribution != brought.distribution:
        return
    if item.version != brought.version and not _is_known_equivalent(result, plugins):
        return
    tail = None
    try:
        tail = _make_tail_loader(result, plugins)
        asked = set_options(_build_learner(result, plugins), dict.fromkeys(result.settled))
        who, task = lambda doing: f"{doing} of {name!r}", _restore_task(result, tail)
        learner = settle_as_stated(asked, result.settled, who, task, spec.budget)
        plan = ask_plan(learner, who, task, spec.budget)
    except DpbenchError as error:
        if tail is not None and tail.missing:
            return
        yield "privacy.plan", f"learner {name!r} does not plan for this task: {error}"
        return
    settled = filled_fields(asked, learner)
    for field, stated in result.settled.items():
        if not agree_up_to_rounding(settled.get(field), stated):
            yield f"settled.{field}", f"expected {settled.get(field)!r}, as learner {name!r} settles, got {stated!r}"
    if plan != result.privacy.releases:
        got = ", ".join(map(str, result.privacy.releases)) or "nothing"
        yield "privacy.plan", f"expected {', '.join(map(str, plan)) or 'nothing'}, as learner {name!r} plans, got {got}"


def has_earlier_defaults(result: Result, plugins: Registry) -> bool:
    """Return whether the installed learner would choose other settings for the budget of a result than it states."""
    item, brought = plugins.components["learner"].get(result.spec.learner.name), result.components.get("learner")
    if not result.settled or item is None or brought is None or item.distribution != brought.distribution:
        return False
    if item.cls.earlier_auto is Learner.earlier_auto:
        return False
    try:
        asked = set_options(_build_learner(result, plugins), dict.fromkeys(result.settled))
        today = settle_learner(asked, item.describe_call, _restore_task(result, None), result.spec.budget)
    except DpbenchError:
        return False
    return any(not agree_up_to_rounding(getattr(today, name), value) for name, value in result.settled.items())


def _is_known_equivalent(result: Result, plugins: Registry) -> bool:
    found = compare_code(result, plugins, stored_fingerprints(), same_data=None, choices=False)
    return {found.get("learner"), found.get(DPBENCH)} <= {*SAME_CODE}


def _build_learner(result: Result, plugins: Registry) -> Learner:
    chosen: Mapping[str, Any] = (result.search.chosen if result.search else None) or {}
    learner = result.spec.learner
    built: Learner = build(plugins, "learner", learner.model_copy(update={"options": {**learner.options, **chosen}}))
    return built


class _RestoredTask(Task):
    """The task of a result, on the processor; torch is imported only if a learner asks for the device."""

    def __getattribute__(self, name: str) -> Any:
        if name != "device":
            return super().__getattribute__(name)
        import torch

        return torch.device("cpu")


def _restore_task(result: Result, tail: _TailLoader | None) -> Task:
    task = result.task
    return _RestoredTask(
        task.example_shape, len(task.classes), task.private, cast("torch.device", None), task.public,
        same_source=result.spec.public_dataset is None, metric=result.spec.metric, tail=tail,
    )  # fmt: skip


def _make_tail_loader(result: Result, plugins: Registry) -> _TailLoader | None:
    """Return a loader of the network behind activations, which may be missing; None if examples are not activations."""
    extractor = result.spec.extractor
    if not extractor.options.get("layer"):
        return None
    if extractor.name not in plugins.components["extractor"]:
        return _TailLoader(None, _raise_not_installed)
    built: Extractor = build(plugins, "extractor", extractor)
    load = built.tail()
    return None if load is None else _TailLoader((type(built), str(extractor)), load)


def _raise_not_installed() -> nn.Module:
    raise DataMissing("The extractor is not installed. Install the package that brings it.")
