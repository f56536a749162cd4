"""Build the components that a spec names, spell out their options, and describe them if a call fails."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from dpbench.api import Dataset, Extractor, Learner
from dpbench.data import sources
from dpbench.data.concat import Concat
from dpbench.errors import SpecError
from dpbench.records.protocol import CONCAT, OWN_UNIT, PIXELS, Component
from dpbench.records.search import ResolvedSearch, Search, list_settings_chosen_by_hand
from dpbench.records.spec import Spec
from dpbench.registry import KINDS, ComponentKind, Registration, Registry, convert_fields
from dpbench.support.fields import list_changed_fields, list_free_text_fields, read_defaults
from dpbench.support.plugin_calls import call_plugin

HandRule = Literal["default", "by-hand"]
READS_WORDS = {"none": "nothing", "unlabelled": "features", "labelled": "features and labels"}
"""Declaration of a learner (`Learner.public`) -> words for the public data that it reads."""


@dataclasses.dataclass(frozen=True)
class BuiltComponents:
    """The built components of a spec, and the plugin that registered each component."""

    dataset: Dataset
    public_dataset: Dataset | None
    extractor: Extractor | Concat
    learner: Learner
    brought: dict[str, Registration]  # by the roles of the spec: of several extractors, each
    default_extractor: bool = False  # nobody named one: it is the dataset's own, or pixels where that cannot run here

    def describe_call(self, role: str, action: str) -> str:
        """Return a phrase for error messages: what was called, and the component of this role and its plugin."""
        return self.brought[role].describe_call(action)


@dataclasses.dataclass(frozen=True)
class ResolvedSpec:
    """A spec with its components built, and every option and the search space spelled out."""

    spec: Spec  # with everything spelled out
    parts: BuiltComponents
    search: ResolvedSearch | None
    named: Mapping[str, Any]  # settings of the learner that the user named

    @property
    def rule(self) -> HandRule:
        """The selection rule: `default` if the learner has its default settings, `by-hand` if the user changed any."""
        return find_selection_rule(self.parts.learner)

    def check_data(self) -> None:
        """Check that the datasets are on this machine.

        Raises:
            DataMissing: a dataset is not on this machine; the message says how to get it.
        """
        sources.check_datasets_present(*filter(None, (self.parts.dataset, self.parts.public_dataset)))

    def with_delta(self, delta: float) -> ResolvedSpec:
        """Return a copy of the spec with this delta, for specs whose delta depends on the data."""
        return dataclasses.replace(self, spec=self.spec.with_default("delta", delta, given=True))

    def with_learner(self, learner: Learner) -> ResolvedSpec:
        """Return a copy of the spec with this learner in place of its own."""
        spec = self.spec.model_copy(update={"learner": make_component_record(learner)})
        return dataclasses.replace(self, spec=spec, parts=dataclasses.replace(self.parts, learner=learner))


def resolve(spec: Spec, registry: Registry) -> ResolvedSpec:
    """Build the components of a spec and write out all options and the search space. Imports no torch.

    Raises:
        SpecError: a name or option is unknown (the message lists the known names), a value does not fit, or a search
            has no space.
    """
    default = "extractor" not in spec.model_fields_set
    if default:
        spec = spec.model_copy(update={"extractor": default_extractor(registry, spec.dataset)})
    brought = {role: registry.find(component_kind_of_role(role), part.name) for role, part in spec.roles.items()}
    parts = BuiltComponents(
        learner=build(registry, "learner", spec.learner),
        extractor=build(registry, "extractor", spec.extractor),
        dataset=build(registry, "dataset", spec.dataset),
        public_dataset=None if spec.public_dataset is None else build(registry, "dataset", spec.public_dataset),
        brought=brought,
        default_extractor=default,
    )
    named = _list_settings_named_by_user(spec.learner, parts.learner)
    search = None if spec.search is None else resolve_search(spec.search, parts.learner, named)
    unit = parts.dataset.default_unit() if spec.unit == OWN_UNIT else spec.unit
    whole = {
        "dataset": make_component_record(parts.dataset),
        "public_dataset": parts.public_dataset and make_component_record(parts.public_dataset),
        "extractor": make_component_record(parts.extractor),
        "learner": make_component_record(parts.learner),
        "search": None if search is None else Search(**dict(search)),
        "unit": None if unit == "image" else unit,
    }
    return ResolvedSpec(spec.model_copy(update=whole), parts, search, named)


def default_extractor(registry: Registry, dataset: Component) -> Component:
    """Return the default extractor of a dataset; pixels if its weights are not on this machine.

    Raises:
        SpecError: no dataset has this name or these options, or its default is not an extractor.
    """
    whole: Dataset = build(registry, "dataset", dataset)
    suggested: object = whole.default_extractor
    if not isinstance(suggested, str):
        raise SpecError(
            f"Expected default_extractor of dataset {dataset.name!r} as text, like pixels:size=16, got "
            f"{suggested!r:.80}."
        )
    chosen = Component.parse_extractor(suggested)
    extractor = build(registry, "extractor", chosen)
    parts = extractor.parts if isinstance(extractor, Concat) else (extractor,)
    here = all(call_plugin(f"present of extractor {part.name!r}", part.present) for part in parts)
    return chosen if here else Component(name=PIXELS)


def component_kind_of_role(role: str) -> ComponentKind:
    """Return the kind of component (dataset, extractor or learner) for a role of a spec.

    >>> component_kind_of_role("public_dataset"), component_kind_of_role("extractor.2")
    ('dataset', 'extractor')
    """
    return next(kind for kind in KINDS if kind in role)


def build(registry: Registry, kind: ComponentKind, component: Component) -> Any:
    """Build a component; for a concat, build each of its parts.

    Raises:
        SpecError: a name or option is unknown (the message lists the known names), or a value does not fit.
    """
    if kind == "extractor" and component.name == CONCAT:
        return Concat(tuple(build(registry, kind, part) for part in component.parts))
    return registry.build(kind, component.name, component.options)


def _list_settings_named_by_user(learner_request: Component, learner: Learner) -> Mapping[str, Any]:
    """Return the settings that the user named; if the user named the paper's settings, include these."""
    return {**learner.paper, **learner_request.options} if "" in learner_request.options else learner_request.options


def resolve_search(search: Search, learner: Learner, fixed: Mapping[str, Any]) -> ResolvedSearch:
    """Return the search with its space written out.

    A space that the user wrote is used whole. The learner's own space and its paper's space leave out the settings that
    the user `fixed`.

    Raises:
        SpecError: the space names a field that the learner lacks, a value does not fit, or the space is empty.
    """
    space: Mapping[str, Sequence[Any]]
    if isinstance(search.space, dict):
        space = search.space
    else:
        known = learner.search_space if search.space == "own" else learner.paper_space
        space = {name: values for name, values in known.items() if name not in fixed}
    if not space:
        raise SpecError(
            f"Learner {learner.name!r} has nothing to search beyond what is set already: its space "
            f"{search.space!r} is empty. Name fields and values, like --space steps=30,60."
        )
    who = f"learner {learner.name!r}, in the search space"
    typed = {
        name: tuple(dict.fromkeys(convert_fields(type(learner), {name: value}, who)[name] for value in values))
        for name, values in space.items()
    }
    for name, values in typed.items():
        if not values:
            raise SpecError(f"Expected values for {name!r} in the search space of learner {learner.name!r}, got none.")
    return ResolvedSearch(**{**dict(search), "space": typed})


def find_selection_rule(learner: Learner, space: Mapping[str, Sequence[Any]] = MappingProxyType({})) -> HandRule:
    """Return `by-hand` if the user changed a setting that no search over `space` chose, otherwise `default`."""
    changed, texts = list_changed_fields(learner), list_free_text_fields(type(learner))
    hand = list_settings_chosen_by_hand(changed, read_defaults(learner), space, texts)
    return "by-hand" if hand else "default"


def make_component_record(part: Any) -> Component:
    """Return a built component as a spec records it, with every option written out; a concat lists its parts.

    Options that a component gained after results were published are declared with `setting(..., added=True)`. An option
    of this kind is left out if it has its default value, so that the digests of earlier specs do not change.
    """
    if isinstance(part, Concat):
        return Component(name=CONCAT, options={"of": [make_component_record(extractor) for extractor in part.parts]})
    changed = list_changed_fields(part)
    options = [item for item in dataclasses.fields(part) if item.init]
    kept = [item.name for item in options if item.name in changed or not item.metadata.get("added")]
    return Component(name=part.name, options={name: getattr(part, name) for name in kept})


def make_component_shortener(registry: Registry) -> Callable[[ComponentKind, Component], str]:
    """Return a function that formats a component without the options that equal the installed defaults."""

    def shorten_component(kind: ComponentKind, part: Component) -> str:
        known = registry.components[kind].get(part.name)
        defaults = {field.name: field.default for field in dataclasses.fields(known.cls)} if known else {}
        left = {name: value for name, value in part.options.items() if name not in defaults or value != defaults[name]}
        return str(Component(name=part.name, options=left))

    return lambda kind, component: "+".join(shorten_component(kind, part) for part in component.parts)


def read_docstring_summary(cls: type) -> str:
    """Return the first paragraph of a component's docstring: its idea in a sentence."""
    return " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())
