"""Ask the learner again for its plan and compare it with the stated plan, from which epsilon is derived."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from dpbench.api import Extractor, Learner, Planned, Task
from dpbench.board.verify.expectations import FieldComplaints
from dpbench.errors import DataMissing, DpbenchError
from dpbench.harness.plans import ask_learner_for_plan, find_rule_of_stated_settings, settle_by_stated_rule
from dpbench.harness.tuning.space import apply_setting
from dpbench.records.protocol import Component
from dpbench.records.result import Result
from dpbench.records.spec import Spec
from dpbench.records.stated_plan import PrivacyGuarantee
from dpbench.records.tolerance import agree_up_to_rounding
from dpbench.registry import Registry
from dpbench.registry.components import build
from dpbench.registry.same_code import SAME_CODE, compare_with_installed_code, load_stored_fingerprints
from dpbench.support.code import DPBENCH
from dpbench.support.fields import list_filled_in_fields

if TYPE_CHECKING:
    import torch
    from torch import nn


class _TailLoader:
    """Loads the network that follows the extractor's layer; records if a learner asked for it while it was missing."""

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


@dataclass(frozen=True)
class StatedFit:
    """A fit as stated by a result or a model: the learner's settings, public numbers of its task, and the plan."""

    spec: Spec
    options: Mapping[str, Any]  # of the learner, those that a search chose among them
    settled: Mapping[str, Any]  # settings that the learner chose from the budget
    privacy: PrivacyGuarantee
    example_shape: tuple[int, ...]
    classes: int
    private: int
    public: int

    @classmethod
    def from_result(cls, result: Result) -> StatedFit:
        """Return the fit that a result states; it is the same for all seeds."""
        task, options = result.task, result.spec.learner.options
        chosen = (result.search.chosen if result.search else None) or {}
        return cls(
            result.spec, {**options, **chosen}, result.settled, result.privacy, task.example_shape, len(task.classes),
            task.private, task.public,
        )  # fmt: skip

    def build_learner(self, plugins: Registry) -> Learner:
        """Build the learner with its stated settings; those that it chose from the budget are left open."""
        learner = self.spec.learner.model_copy(update={"options": {**self.options}})
        return apply_setting(build(plugins, "learner", learner), dict.fromkeys(self.settled))

    def restore_task(self, tail: _TailLoader | None = None) -> Task:
        """Return the task of the fit, on the CPU."""
        return _RestoredTask(
            self.example_shape, self.classes, self.private, cast("torch.device", None), self.public,
            same_source=self.spec.public_dataset is None, metric=self.spec.metric, tail=tail,
        )  # fmt: skip


def check_learner_plan(result: Result, plugins: Registry) -> FieldComplaints:
    """Ask the installed learner for settings and plan for the stated task; yield a complaint for each difference.

    The learner is not asked, or its answer is not compared, in four cases:

    - The learner is not installed, or only from another distribution, or only in another version that is not known to
      compute the same (`registry.same_code`; nothing is fitted to find out).
    - The run has no privacy, so its plan costs nothing.
    - A private search chose the settings, so the plan covers all settings of the search at once.
    - The learner needs the network that follows the extractor's layer, and this network is missing here.
    """
    item, brought = plugins.components["learner"].get(result.spec.learner.name), result.components.get("learner")
    if item is None or brought is None or math.isinf(result.spec.epsilon) or result.privacy.repeats is not None:
        return
    if item.distribution != brought.distribution:
        return
    if item.version != brought.version and not _has_equivalent_code(result, plugins):
        return
    yield from check_stated_plan(StatedFit.from_result(result), plugins) or ()


def check_stated_plan(fit: StatedFit, plugins: Registry) -> list[tuple[str, str]] | None:
    """Compare a fit's stated settings and plan with those of its installed learner; see `check_learner_plan`.

    Returns pairs of a field and its difference; None if the learner needs the network after the extractor's layer, and
    this network is missing.
    """
    spec, name = fit.spec, fit.spec.learner.name
    tail = None
    try:
        tail = _make_tail_loader(spec.extractor, plugins)
        asked, task = fit.build_learner(plugins), fit.restore_task(tail)
        who = lambda doing: f"{doing} of {name!r}"
        learner = settle_by_stated_rule(asked, fit.settled, who, task, spec.budget)
        plan = ask_learner_for_plan(learner, who, task, spec.budget)
    except DpbenchError as error:
        missing = tail is not None and tail.missing
        return None if missing else [("privacy.plan", f"learner {name!r} does not plan for this task: {error}")]
    return [*_compare_plans(fit, list_filled_in_fields(asked, learner), plan)]


def _compare_plans(fit: StatedFit, settled: Mapping[str, Any], plan: Sequence[Planned]) -> FieldComplaints:
    name, releases = fit.spec.learner.name, fit.privacy.releases
    for field, stated in fit.settled.items():
        if not agree_up_to_rounding(settled.get(field), stated):
            yield f"settled.{field}", f"expected {settled.get(field)!r}, as learner {name!r} settles, got {stated!r}"
    if plan != releases:
        expected, got = (", ".join(map(str, uses)) or "nothing" for uses in (plan, releases))
        yield "privacy.plan", f"expected {expected}, as learner {name!r} plans, got {got}"


def find_defaults_version(result: Result, plugins: Registry) -> str:
    """Return the earlier learner version whose rule chose a result's settings; "" if the current rule chose them.

    Returns the version that the result states if no known rule gives these settings. Returns "" if the learner chose no
    setting, is not installed from the same distribution, has no earlier rule, or cannot be built.
    """
    item, brought = plugins.components["learner"].get(result.spec.learner.name), result.components.get("learner")
    if not result.settled or item is None or brought is None or item.distribution != brought.distribution:
        return ""
    if item.cls.earlier_auto is Learner.earlier_auto:
        return ""
    try:
        fit = StatedFit.from_result(result)
        asked, task, budget = fit.build_learner(plugins), fit.restore_task(), fit.spec.budget
        found = find_rule_of_stated_settings(asked, fit.settled, item.describe_call, task, budget)
    except DpbenchError:
        return ""
    return brought.version if found is None else found[0]


def _has_equivalent_code(result: Result, plugins: Registry) -> bool:
    found = compare_with_installed_code(result, plugins, load_stored_fingerprints(), same_data=None, choices=False)
    return {found.get("learner"), found.get(DPBENCH)} <= {*SAME_CODE}


class _RestoredTask(Task):
    """The task of a result, on the CPU; torch is imported only if a learner asks for the device."""

    def __getattribute__(self, name: str) -> Any:
        if name != "device":
            return super().__getattribute__(name)
        import torch

        return torch.device("cpu")


def _make_tail_loader(extractor: Component, plugins: Registry) -> _TailLoader | None:
    """Return a loader of the network after the extractor's layer; None if examples are not activations of a layer."""
    if not extractor.options.get("layer"):
        return None
    if extractor.name not in plugins.components["extractor"]:
        return _TailLoader(None, _raise_not_installed)
    built: Extractor = build(plugins, "extractor", extractor)
    load = built.tail()
    return None if load is None else _TailLoader((type(built), str(extractor)), load)


def _raise_not_installed() -> nn.Module:
    raise DataMissing("The extractor is not installed. Install the package that brings it.")
