"""Load the components of installed plugins. A broken plugin is reported and does not stop a command."""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import re
import sys
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from types import FunctionType, MethodType, ModuleType
from typing import Any, Literal, get_args

import pluggy
from pydantic import TypeAdapter, ValidationError

from dpbench import hooks
from dpbench.api import Dataset, Extractor, Learner
from dpbench.errors import DuplicateName, PluginError, SpecError, UnknownName
from dpbench.records.protocol import CONCAT
from dpbench.registry.moved import explain_moved_module
from dpbench.support.fields import describe_type, get_field_types, is_fully_described_type, is_required_field
from dpbench.support.messages import format_unknown_name_message
from dpbench.support.plugin_calls import call_plugin
from dpbench.support.settings import check_settings
from dpbench.support.validation import first_schema_violation, refuse_boolean

ComponentKind = Literal["dataset", "extractor", "learner"]
KINDS: Mapping[ComponentKind, type] = {"dataset": Dataset, "extractor": Extractor, "learner": Learner}
UNPACKAGED = ("notebook", "none", "unpublished")
"""Plugin, distribution and version that are stated for a component from outside any package."""
PLUGINS_VARIABLE = "DPBENCH_PLUGINS"
"""The environment variable with the names of the plugins to load; if it is not set, all are loaded."""
HOOKS: Mapping[str, ComponentKind] = {f"dpbench_{kind}s": kind for kind in KINDS}
_HOOK_TYPES = (FunctionType, MethodType, staticmethod, classmethod)


@dataclasses.dataclass(frozen=True)
class Registration:
    """A component, and the plugin and distribution that registered it."""

    cls: type[Any]
    plugin: str
    distribution: str
    version: str

    def describe_call(self, action: str) -> str:
        """Return a phrase for error messages: what was called, and the component and its plugin."""
        return f"{action} of {self.cls.name!r} (plugin {self.plugin!r}, {self.distribution} {self.version})"


@dataclasses.dataclass(frozen=True)
class BrokenPlugin:
    """A plugin that could not be loaded, and the reason."""

    plugin: str
    distribution: str
    reason: str

    def __str__(self) -> str:
        return f"Plugin {self.plugin!r} of distribution {self.distribution!r} is left out: {self.reason}"


@dataclasses.dataclass(frozen=True)
class NameClash:
    """A name that several plugins register; dpbench refuses to use it, whatever the loading order."""

    kind: ComponentKind
    name: str
    claims: tuple[Registration, ...]

    def __str__(self) -> str:
        claims = " and ".join(f"{claim.plugin!r} of distribution {claim.distribution!r}" for claim in self.claims)
        return (
            f"The {self.kind} {self.name!r} is left out: plugins {claims} claim that name. Uninstall one, or set "
            "DPBENCH_PLUGINS to the plugins that you need, including those of the dataset and the extractor."
        )


@dataclasses.dataclass(frozen=True)
class Registry:
    """Every component that the installed plugins provide, by kind and name."""

    components: Mapping[ComponentKind, Mapping[str, Registration]]
    broken: tuple[BrokenPlugin, ...] = ()
    clashes: tuple[NameClash, ...] = ()

    def find(self, kind: ComponentKind, name: str) -> Registration:
        """Return the registration of the component called `name`.

        Raises:
            UnknownName: no plugin registers the name; the message lists the known names and suggests the nearest name.
            DuplicateName: several plugins register the name; the message names the plugins.
        """
        self._check_clash(kind, name)
        known = self.components[kind]
        if name not in known:
            left_out = f" {len(self.broken)} broken plugin(s) were skipped, see `dpbench list`." if self.broken else ""
            chosen = os.environ.get(PLUGINS_VARIABLE)
            only = "" if chosen is None else f" {PLUGINS_VARIABLE}={chosen} excludes every other plugin."
            raise UnknownName(format_unknown_name_message(kind, name, known) + left_out + only)
        return known[name]

    def build(self, kind: ComponentKind, name: str, options: Mapping[str, object]) -> Any:
        """Return an instance of component `name` with its fields set from `options`, after checking their types.

        Strings are accepted for every type, as they come from the command line.

        Raises:
            SpecError: an option is unknown (the message lists the known options), a value does not fit, or an option
                without a default is missing.
            ComponentFailed: the component raised an error when it checked its own options.
        """
        item = self.find(kind, name)
        cls = item.cls
        if "" in options:
            options = _resolve_unnamed_option(options, cls, f"{kind} {name!r}")
        given = convert_fields(cls, options, f"{kind} {name!r}")
        for field in dataclasses.fields(cls):
            if is_required_field(field) and field.name not in given:
                raise SpecError(
                    f"Expected option {field.name!r} for {kind} {name!r}; it has no default. "
                    f"Write {name}:{field.name}=..."
                )
        return call_plugin(item.describe_call("Building"), lambda: check_settings(cls(**given)))

    def with_component(self, kind: ComponentKind, cls: type[Any]) -> Registry:
        """Return a copy of the registry with a class from outside any package, such as one defined in a notebook.

        Raises:
            PluginError: the class is not a valid component.
            DuplicateName: another component has its name.
        """
        given: object = cls
        if not (isinstance(given, type) and issubclass(given, KINDS[kind])):
            got = given.__name__ if isinstance(given, type) else type(given).__name__
            raise PluginError(f"Expected the {kind} as a name or as a dpbench.{KINDS[kind].__name__}, got {got}.")
        _check_component_class(cls, kind, f"This {kind}")
        self._check_clash(kind, cls.name)
        known = dict(self.components[kind])
        other = known.setdefault(cls.name, Registration(cls, *UNPACKAGED))
        if other.cls is not cls:
            raise DuplicateName(
                f"There is a {kind} {cls.name!r} already, of distribution {other.distribution!r}: give this one "
                "another name."
            )
        return dataclasses.replace(self, components={**self.components, kind: known})

    def report_broken_plugins(self) -> None:
        """Report on standard error which plugins were left out, and which names several plugins register."""
        for left_out in (*self.broken, *self.clashes):
            print(f"dpbench: {left_out}", file=sys.stderr)

    def _check_clash(self, kind: ComponentKind, name: str) -> None:
        for clash in self.clashes:
            if (clash.kind, clash.name) == (kind, name):
                raise DuplicateName(str(clash))


def _resolve_unnamed_option(options: Mapping[str, object], cls: type[Any], owner: str) -> Mapping[str, object]:
    """Give the unnamed value to the option that the class names in `shorthand`; return all options by name.

    If the value is `paper` and the class has settings of a paper, add these settings instead; other options override
    them.

    Raises:
        SpecError: the class names no such option, or the option was also given by name.
    """
    name, value, paper = getattr(cls, "shorthand", ""), options[""], getattr(cls, "paper", {})
    if value == "paper" and paper:
        return {**paper, **{key: given for key, given in options.items() if key}}
    if not name:
        known = " The setting of its paper is 'paper'." if paper else ""
        raise SpecError(
            f"Expected key=value after {owner}, got {value!r}. Write it like pillar:k=40,center=false.{known}"
        )
    if name in options:
        raise SpecError(f"Expected option {name!r} of {owner} once, got {value!r} and {options[name]!r}.")
    return {name: value, **{key: given for key, given in options.items() if key}}


def convert_fields(cls: type, options: Mapping[str, object], owner: str) -> dict[str, Any]:
    """Return `options` as keyword arguments of dataclass `cls`, with types checked; see `Registry.build`."""
    types = get_field_types(cls)
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    values = {}
    for key, value in options.items():
        if key not in names:
            raise SpecError(format_unknown_name_message("option", key, names, owner))
        values[key] = _convert_value(f"{key}={value} in {owner}", value, types[key], _make_type_adapter(cls, key))
    return values


@lru_cache(4096)
def _make_type_adapter(cls: type, field: str) -> TypeAdapter[Any]:
    hint = get_field_types(cls)[field]
    return TypeAdapter(Any if isinstance(hint, str) else hint)


def _convert_value(description: str, value: object, hint: Any, adapter: TypeAdapter[Any]) -> Any:
    text = value.strip().lower() if isinstance(value, str) else value
    try:
        refuse_boolean(hint, value)
        typed = adapter.validate_python(None if text in ("none", "auto") and type(None) in get_args(hint) else value)
    except ValueError as error:  # pydantic's is one too
        why = (
            f": {first_schema_violation(error).said}"
            if isinstance(error, ValidationError) and not is_fully_described_type(hint)
            else ""
        )
        raise SpecError(f"Expected {description} to be {describe_type(hint)}{why}.") from None
    if isinstance(typed, float) and math.isnan(typed):  # no comparison refuses it, so a component would take it
        raise SpecError(f"Expected {description} to be a number, got nan.")
    return typed


class _PluginManager(pluggy.PluginManager):
    """A plugin manager that skips module globals that cannot be hooks; inspecting them takes half of `load`'s time."""

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        if isinstance(plugin, ModuleType) and not isinstance(vars(plugin).get(name), _HOOK_TYPES):
            return None
        return super().parse_hookimpl_opts(plugin, name)


def load() -> Registry:
    """Import the installed plugins and collect their components; `DPBENCH_PLUGINS` (comma-separated) limits them.

    If several plugins register the same name, dpbench refuses only requests for that name.

    Raises:
        UnknownName: `DPBENCH_PLUGINS` names a plugin that is not installed.
    """
    manager = _PluginManager("dpbench")
    manager.add_hookspecs(hooks)
    claims: dict[ComponentKind, dict[str, list[Registration]]] = {kind: {} for kind in KINDS}
    broken, named = [], cache(_read_name_and_version)
    for point in _select_entry_points(list(entry_points(group="dpbench"))):
        try:
            found = _load_components(manager, point, named(point.dist))
        except (Exception, SystemExit) as error:  # whatever a stranger's module raises
            reason = explain_moved_module(error) or f"{type(error).__name__}: {error}"
            broken.append(BrokenPlugin(point.name, named(point.dist)[0], reason))
            continue
        for kind, item in found:
            claims[kind].setdefault(item.cls.name, []).append(item)
    components: dict[ComponentKind, dict[str, Registration]] = {kind: {} for kind in KINDS}
    clashes = []
    for kind, known in claims.items():
        for name, (item, *others) in known.items():
            if others:
                clashes.append(NameClash(kind, name, (item, *others)))
            else:
                components[kind][name] = item
    return Registry(components, tuple(broken), tuple(clashes))


def _select_entry_points(points: list[EntryPoint]) -> list[EntryPoint]:
    chosen = os.environ.get(PLUGINS_VARIABLE)
    if chosen is None:
        return sorted(points, key=lambda point: point.name)
    names = [name.strip() for name in chosen.split(",") if name.strip()]
    for name in names:
        if name not in {point.name for point in points}:
            raise UnknownName(
                format_unknown_name_message(f"plugin in {PLUGINS_VARIABLE}", name, {point.name for point in points})
            )
    return [point for point in points if point.name in names]


def _load_components(
    manager: pluggy.PluginManager, point: EntryPoint, distribution: tuple[str, str]
) -> list[tuple[ComponentKind, Registration]]:
    module = point.load()
    try:
        manager.register(module, name=point.name)
        manager.check_pending()
        callers = manager.get_hookcallers(module) or []
        if not callers:
            raise PluginError("it implements none of the hooks dpbench_datasets, dpbench_extractors, dpbench_learners.")
        found = []
        for caller in callers:
            for impl in caller.get_hookimpls():
                if impl.plugin is module:
                    found += _collect_hook_components(caller.name, impl, point.name, distribution)
        return found
    except Exception:
        if manager.is_registered(module):
            manager.unregister(module)
        raise


def _collect_hook_components(
    hook: str, impl: pluggy.HookImpl, plugin: str, distribution: tuple[str, str]
) -> list[tuple[ComponentKind, Registration]]:
    if impl.hookwrapper or impl.wrapper:
        raise PluginError(f"{hook} is a hook wrapper; a plugin may add components, not change those of others.")
    kind = HOOKS[hook]
    found = []
    classes: Any = impl.function()
    for cls in classes:
        _check_component_class(cls, kind, hook)
        found.append((kind, Registration(cls, plugin, *distribution)))
    return found


def _check_component_class(cls: type[Any], kind: ComponentKind, hook: str) -> None:
    base = KINDS[kind]
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise PluginError(f"{hook} returned {cls!r}; expected subclasses of dpbench.{base.__name__}.")
    name = getattr(cls, "name", None)
    if not isinstance(name, str):
        raise PluginError(f"{cls.__name__} has no `name`; expected a class variable, such as name = 'mine'.")
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
        raise PluginError(f"{cls.__name__} is called {name!r}; expected lower-case letters, digits, dots and dashes.")
    if name == CONCAT:
        raise PluginError(f"{cls.__name__} is called {name!r}, which dpbench keeps for A+B. Give it another name.")
    if inspect.isabstract(cls):
        missing: frozenset[str] = getattr(cls, "__abstractmethods__", frozenset())
        raise PluginError(f"{cls.__name__} does not define {', '.join(sorted(missing))}.")
    parameters = getattr(cls, "__dataclass_params__", None)
    if parameters is None or not parameters.frozen:
        raise PluginError(f"{cls.__name__} is not a frozen dataclass; decorate it with @dataclass(frozen=True).")


def _read_name_and_version(distribution: Distribution | None) -> tuple[str, str]:
    """Return a distribution's name and version. Slow: each access parses all metadata of the distribution."""
    return (distribution.name, distribution.version) if distribution else ("unknown", "unknown")
