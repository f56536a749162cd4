"""Read everything that a function can reach, and find out whether it has changed.

A reach is a list of objects. For each object, its referents are compared by identity and its own state by value. As
long as all objects have the same referents, the list is complete: reading it again compares everything that the
function can reach, so a single walk is enough.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import is_
from types import FunctionType, ModuleType
from typing import Any, cast

import numpy as np
import torch

from dpbench.errors import NotPure
from dpbench.privacy.purity.kinds import (
    ABSENT,
    CLASS,
    INSTANCE,
    LIBRARIES,
    ObjectReader,
    bit_generator_state,
    find_readers,
    instance_referents,
    torch_generator_state,
)
from dpbench.privacy.purity.names import LeftOut, library_data_reader, named_globals_reader, namespace_reader
from dpbench.support.code import get_top_package

MOST_OBJECTS = 100_000  # things: to compare more would take longer than the steps themselves
_WITHOUT_CLASSES = LIBRARIES | {"builtins"}
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None), torch.Size})

Referents = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class ReachedObject:
    """An object, and how it was reached: as referent number `at` of `parent`, or by `name` if it has no parent."""

    thing: Any
    kind: ObjectReader
    parent: ReachedObject | None
    at: int
    name: str = ""

    def path(self) -> str:
        """Return the path to the object, such as "attribute `mean` of closure variable `self` of `rows`"."""
        return self.name if self.parent is None else self.parent.referent_path(self.at)

    def referent_path(self, at: int) -> str:
        """Return the path to the object's referent number `at`."""
        step = self.kind.names(self.thing)[at]
        return step if " of module `" in step or " of class `" in step else f"{step} of {self.path()}"


@dataclass(frozen=True, slots=True)
class ReachState:
    """The referents and the states of all objects of a reach at one time."""

    referents: Referents
    flat: list[Any]
    states: list[object]

    def has_same_referents(self, other: ReachState) -> bool:
        """Return whether all objects have the same referents as in `other`; the reach is then still complete."""
        return (
            len(self.flat) == len(other.flat)
            and all(map(is_, self.flat, other.flat))
            and [*map(len, self.referents)] == [*map(len, other.referents)]
        )


class Reach:
    """Everything that `root` can reach through closures, attributes and containers.

    Args:
        root: where to start, such as a row function.
        thorough: also follow classes, and the names in the code of each function, looked up in its module and in
            modules that the code names; and read the contents of tensors and arrays. Functions and classes of
            `LIBRARIES` are not followed, but library data that code names is read.
        generators: with `thorough`, include the global generators.
        settings: include the library settings in which a row function could hide a value.
        left_out: whether a module, given its name, counts as absent.
        own_package: skip objects that cannot be compared, such as iterators, and objects of packages other than this
            one that hold such an object, such as a zip file with its open file. None skips nothing.

    Raises:
        NotPure: `root` can reach too many objects, or (without `own_package`) one that cannot be compared.
    """

    def __init__(
        self,
        root: Any,
        thorough: bool,
        generators: bool = True,
        settings: bool = False,
        left_out: LeftOut = lambda module: False,
        own_package: str | None = None,
    ) -> None:
        self.root, self._thorough, self._own_package = root, thorough, own_package
        self._names = named_globals_reader(left_out)
        self._entries = list(_global_generators()) if thorough and generators else []
        self._entries += _list_library_settings() if settings else ()
        self._collect_entries(root)
        self._holders = [(entry.kind.referents, entry.thing) for entry in self._entries if entry.kind.referents]
        self._stateful = [
            (read, entry) for entry in self._entries if (read := self._choose_state_function(entry.kind)) is not None
        ]
        self._states = [(read, entry.thing) for read, entry in self._stateful]

    def read(self) -> ReachState:
        """Read the referents and the states of all objects now."""
        referents = [read(thing) for read, thing in self._holders]
        return ReachState(referents, [*chain.from_iterable(referents)], [read(thing) for read, thing in self._states])

    def find_change(self, before: ReachState, after: ReachState) -> str | None:
        """Return the path to the first object that differs between two readings, without values; None if none does."""
        if not before.has_same_referents(after):
            holders = [entry for entry in self._entries if entry.kind.referents]
            for entry, old, new in zip(holders, before.referents, after.referents, strict=True):
                if told := _describe_change(entry, old, new):
                    return told
        if before.states != after.states:
            pairs = zip(self._stateful, before.states, after.states, strict=True)
            changed = next(entry for (_, entry), old, new in pairs if old != new)
            kind = (
                "" if changed.thing is None else f"{_describe_object(changed.thing)}, "
            )  # a global generator is no thing
            return f"{changed.path()} ({kind}changed in place)"
        return None

    def list_arrays(self) -> Iterator[ReachedObject]:
        """Yield each tensor, array of numbers and pandas table (as an array of its numbers) in the reach."""
        table = getattr(sys.modules.get("pandas"), "DataFrame", ())
        for entry in self._entries:
            thing = entry.thing
            if isinstance(thing, table):
                yield replace(entry, thing=thing.select_dtypes(["number", "bool"]).to_numpy(np.float64))
            array = isinstance(thing, np.ndarray) and thing.dtype.kind in "biuf"
            if array or (isinstance(thing, torch.Tensor) and thing.layout == torch.strided and not thing.is_meta):
                yield entry

    def _choose_state_function(self, kind: ObjectReader) -> Any:
        return kind.contents if self._thorough and kind.contents else kind.state

    def _collect_entries(self, root: Any) -> None:
        seen: dict[int, Any] = {}  # holds what it has seen: an address is a name only while its owner lives
        ends: list[tuple[Any, ReachedObject | None, int]] = [(root, None, 0)]
        while ends:
            thing, parent, at = ends.pop()
            if type(thing) in _PLAIN or id(thing) in seen:
                continue
            seen[id(thing)] = thing
            for kind in self._kinds(thing, parent, at):
                entry = ReachedObject(thing, kind, parent, at, _quote_name_of_root(root))
                self._entries.append(entry)
                if kind.referents:
                    ends += [(referent, entry, place) for place, referent in enumerate(kind.referents(thing))]
            if len(seen) > MOST_OBJECTS:
                raise NotPure(
                    f"{_quote_name_of_root(root)} reaches more than {MOST_OBJECTS:,} objects, too many to compare. "
                    "Give it tensors."
                )

    def _kinds(self, thing: Any, parent: ReachedObject | None, at: int) -> Sequence[ObjectReader]:
        if self._thorough and _is_library_definition(thing):
            return ()
        cls: Any = type(thing)
        kinds = find_readers(cls)
        if self._own_package is not None and self._is_opaque(thing, kinds):
            return ()
        if kinds is None:
            where = parent.referent_path(at) if parent else _quote_name_of_root(thing)
            raise NotPure(
                f"{where} is a {cls.__name__}, whose state cannot be compared: an iterator advances, and an object of "
                "another library may keep state. Give a row function values, such as tensors."
            )
        if not self._thorough:
            return kinds
        if isinstance(thing, FunctionType):
            known = get_top_package(thing.__globals__.get("__name__")) in LIBRARIES
            return kinds if known else (*kinds, self._names, library_data_reader(thing))
        classes = (_CLASSES,) if _list_classes(thing) else ()
        return (*kinds, CLASS, *classes) if isinstance(thing, type) and classes else (*kinds, *classes)

    def _is_opaque(self, thing: Any, kinds: Sequence[ObjectReader] | None) -> bool:
        """Return whether an object cannot be compared, or belongs to another package and holds one that cannot."""
        if kinds is None or INSTANCE not in kinds:
            return kinds is None
        held: tuple[Any, ...] = instance_referents(thing)
        foreign = get_top_package(type(thing).__module__) != self._own_package
        return foreign and any(find_readers(cast(Any, type(value))) is None for value in held)


class ModuleReach(Reach):
    """All globals of `modules`, whether or not code names them, and everything that these globals can reach.

    Objects that cannot be read, and functions and classes of other packages, are compared by identity alone. A module
    counts as absent if `left_out` returns True for its name.
    """

    def __init__(self, modules: Sequence[ModuleType], left_out: LeftOut) -> None:
        self._namespace, self._modules = namespace_reader(left_out), frozenset(map(id, modules))
        self._packages = {get_top_package(module.__name__) for module in modules}
        super().__init__(tuple(modules), thorough=True, generators=False, left_out=left_out)
        self.first = self.read()

    def _kinds(self, thing: Any, parent: ReachedObject | None, at: int) -> Sequence[ObjectReader]:
        if isinstance(thing, ModuleType):
            return (self._namespace,) if id(thing) in self._modules else ()
        cls: Any = type(thing)
        kinds = find_readers(cls)
        if kinds is None or (isinstance(thing, type | FunctionType) and self._is_foreign(thing)):
            return ()
        if isinstance(thing, FunctionType):  # the globals that it names are here whether it does or not
            return kinds
        return super()._kinds(thing, parent, at)

    def _is_foreign(self, thing: type | FunctionType) -> bool:
        """Return whether another package defines a class or function.

        For a function, its globals decide, because `functools.wraps` copies `__module__`.
        """
        known = thing.__globals__.get("__name__") if isinstance(thing, FunctionType) else thing.__module__
        return get_top_package(known) not in self._packages


class ReachSnapshot:
    """The state of a thorough `Reach` of `root`, kept to find out later what has changed."""

    def __init__(self, root: Any, generators: bool = True, left_out: LeftOut = lambda module: False) -> None:
        self.reach = Reach(root, thorough=True, generators=generators, left_out=left_out)
        self._before = self.reach.read()

    def find_change(self) -> str | None:
        """Return the path to the first object that has changed since the snapshot; None if none has."""
        return self.reach.find_change(self._before, self.reach.read())


def _describe_change(entry: ReachedObject, before: tuple[Any, ...], after: tuple[Any, ...]) -> str | None:
    if len(before) != len(after):
        known = {name for name in before if isinstance(name, str)}
        added = [name for name in getattr(entry.thing, "__dict__", ()) if name not in known]
        if added:
            return f"attribute `{added[0]}` of {entry.path()} (new)"
        each = 2 if isinstance(entry.thing, dict) else 1
        old, new = len(before) // each, len(after) // each
        return f"{entry.path()} ({type(entry.thing).__name__}, had {old} items, has {new})"
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        if old is not new and not _are_equal_states(old, new):
            return f"{entry.referent_path(place)} ({_describe_object(old)}, replaced by {_describe_object(new)})"
    return None


def _are_equal_states(old: Any, new: Any) -> bool:
    if isinstance(old, tuple) and isinstance(new, tuple) and len(old) == len(new):
        return all(a is b or _are_equal_states(a, b) for a, b in zip(old, new, strict=True))
    return type(old) is type(new) and type(old) in _PLAIN and bool(old == new)


def _describe_object(thing: Any) -> str:
    if thing is ABSENT:
        return "nothing"
    shape = f" {tuple(thing.shape)}" if isinstance(thing, (torch.Tensor, np.ndarray)) else ""
    return f"{type(thing).__name__}{shape}"


def _quote_name_of_root(root: Any) -> str:
    return f"`{getattr(root, '__name__', type(root).__name__)}`"


def _is_library_definition(thing: Any) -> bool:
    """Return whether a library holds this function or class under its own name, so it is not a plugin's wrapper."""
    try:
        module, name = getattr(thing, "__module__", None), getattr(thing, "__name__", None)
    except Exception:  # an object that makes up attributes may raise anything
        return False
    if not isinstance(module, str) or not isinstance(name, str) or get_top_package(module) not in LIBRARIES:
        return False
    return getattr(sys.modules.get(module), name, None) is thing


def _list_classes(thing: Any) -> tuple[type, ...]:
    cls = thing if isinstance(thing, type) else type(thing)
    return tuple(base for base in cls.__mro__ if get_top_package(base.__module__) not in _WITHOUT_CLASSES)


_CLASSES = ObjectReader(_list_classes, lambda thing: [f"class `{cls.__name__}`" for cls in _list_classes(thing)])


def _list_library_settings() -> Iterator[ReachedObject]:
    """Yield the library settings in which a row function could hide a value."""
    kinds = {
        "numpy's error handling": ObjectReader(state=lambda _: np.geterr()),
        "numpy's print options": ObjectReader(state=lambda _: repr(np.get_printoptions())),
        "torch's print options": ObjectReader(state=lambda _: repr(vars(torch._tensor_str.PRINT_OPTS))),
        "torch's number of threads": ObjectReader(state=lambda _: torch.get_num_threads()),
        "torch's default type": ObjectReader(state=lambda _: torch.get_default_dtype()),
        "Python's recursion limit": ObjectReader(state=lambda _: sys.getrecursionlimit()),
    }
    for name, kind in kinds.items():
        yield ReachedObject(None, kind, None, 0, name)


def _global_generators() -> Iterator[ReachedObject]:
    kinds = {
        "torch's global generator": ObjectReader(state=lambda _: torch_generator_state(torch.default_generator)),
        "numpy's global generator": ObjectReader(
            state=lambda _: bit_generator_state(np.random.mtrand.get_bit_generator())
        ),
        "a GPU's global generator": ObjectReader(
            state=lambda _: [*map(torch_generator_state, torch.cuda.default_generators)]
        ),
    }
    others = [thread for thread in threading.enumerate() if get_top_package(type(thread).__module__) != "tqdm"]
    if len(others) == 1:  # threads of other libraries draw from it: Dask's, a notebook's
        kinds["the global generator of `random`"] = ObjectReader(state=lambda _: random.getstate())
    for name, kind in kinds.items():
        yield ReachedObject(None, kind, None, 0, name)
