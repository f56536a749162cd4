"""How to read each type of object that a function can reach: the object's referents and its own state."""

from __future__ import annotations

import array
import ctypes
import datetime
import decimal
import functools
import logging
import operator
import random
import re
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from dpbench.privacy.core.chunk import BaseCurator
from dpbench.support.code import get_top_package

LIBRARIES = frozenset(sys.stdlib_module_names) | {
    "torch", "torchvision", "functorch", "opacus", "timm", "kymatio", "einops", "numpy", "scipy", "sklearn", "pandas",
    "PIL", "tqdm", "dpbench", "pytest", "_pytest",
}  # fmt: skip
"""Packages whose modules and classes are assumed to remember nothing about their arguments."""

ABSENT = object()
MOST_CHECKED_BYTES = 2**24  # bytes of an array that is compared around every chunk: numpy counts no versions
MOST_EXACT_BYTES, MOST_SUMMED_BYTES = (
    2**20,
    2**28,
)  # bytes up to which contents are compared one by one, and by checksum and sample
SAMPLE_SIZE = 1024

_Referents = Callable[[Any], tuple[Any, ...]]
_Names = Callable[[Any], Sequence[str]]
_State = Callable[[Any], object]


@dataclass(frozen=True, eq=False, slots=True)
class ObjectReader:
    """How to read one type of object: its referents, their names, its state and its contents."""

    referents: _Referents | None = None  # compared by identity
    names: _Names = lambda thing: ()  # of the referents, in order; a name that ends in a word with " of " is complete
    state: _State | None = None  # compared by value around every chunk
    contents: _State | None = None  # compared by value around chunks that are drawn


def read_cell(cell: types.CellType) -> Any:
    """Return the content of a closure's cell; `ABSENT` if the cell is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def _function_referents(function: types.FunctionType) -> tuple[Any, ...]:
    defaults, keywords, cells = function.__defaults__, function.__kwdefaults__, function.__closure__
    if not (defaults or keywords or cells or function.__dict__):  # as most are
        return (function.__code__,)
    named = (*(keywords or {}).values(), *function.__dict__.values())
    return (*map(read_cell, cells or ()), *(defaults or ()), *named, function.__code__)


def _function_names(function: types.FunctionType) -> list[str]:
    return [
        *(f"closure variable `{name}`" for name in function.__code__.co_freevars),
        *(f"default {place}" for place in range(len(function.__defaults__ or ()))),
        *(f"default of `{name}`" for name in function.__kwdefaults__ or ()),
        *(f"attribute `{name}`" for name in function.__dict__),
        "code",
    ]


@functools.lru_cache(1024)
def list_slots(cls: Any) -> tuple[str, ...]:
    """Return the names of all slots that a class, written in Python, declares or inherits."""
    declaring = [base for base in cls.__mro__ if "__slots__" in vars(base)]
    pairs = [pair for base in declaring for pair in vars(base).items()]
    return tuple(name for name, member in pairs if isinstance(member, types.MemberDescriptorType))


@functools.lru_cache(1024)
def _find_slot_reader(cls: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that reads all slots of such objects; it runs in C if the class computes no attributes."""
    names = list_slots(cls)

    def read_one_by_one(thing: Any) -> tuple[Any, ...]:
        return tuple(_read_attribute(thing, name, ABSENT) for name in names)

    if len(names) < 2 or cls.__getattribute__ is not object.__getattribute__ or hasattr(cls, "__getattr__"):
        return read_one_by_one
    read_all = operator.attrgetter(*names)

    def read_all_slots(thing: Any) -> tuple[Any, ...]:
        try:
            found: tuple[Any, ...] = read_all(thing)
        except AttributeError:  # of a slot that is empty
            return read_one_by_one(thing)
        return found

    return read_all_slots


@functools.lru_cache(1024)
def _has_attributes(cls: Any) -> bool:
    """Return whether objects of a class have a `__dict__`, real or computed by the class."""
    return any("__dict__" in vars(base) for base in cls.__mro__)


@functools.lru_cache(1024)
def list_cached_properties(cls: Any) -> frozenset[str]:
    """Return the names of a class's cached properties that a library defines: they are computed from the object."""
    known = [base for base in cls.__mro__ if get_top_package(base.__module__) in LIBRARIES]
    pairs = [pair for base in known for pair in vars(base).items()]
    return frozenset(name for name, value in pairs if isinstance(value, functools.cached_property))


def _instance_attributes(thing: Any) -> dict[str, Any]:
    cls: Any = type(thing)
    if not _has_attributes(cls):
        return {}
    held, lazy = _read_attribute(thing, "__dict__", {}), list_cached_properties(cls)
    if type(held) is not dict and not isinstance(held, Mapping):
        return {}
    return {name: value for name, value in held.items() if name not in lazy} if lazy else cast(dict[str, Any], held)


def instance_referents(thing: Any) -> tuple[Any, ...]:
    """Return the names and the values of an object's attributes, and the contents of its slots."""
    held, cls = _instance_attributes(thing), cast(Any, type(thing))
    return (*held, *held.values(), *_find_slot_reader(cls)(thing))


def _read_attribute(thing: Any, name: str, default: Any) -> Any:
    """Return an attribute that the object itself holds, ignoring `__getattr__` and `__getattribute__` of its class."""
    try:
        return object.__getattribute__(thing, name)
    except AttributeError:
        return default


def _instance_names(thing: Any) -> list[str]:
    held, cls = _instance_attributes(thing), cast(Any, type(thing))
    return [f"attribute `{name}`" for name in (*held, *held, *list_slots(cls))]


_BY_PYTHON = frozenset(
    {
        "__abstractmethods__", "__annotations__", "__dict__", "__firstlineno__", "__hash__", "__module__",
        "__orig_bases__", "__parameters__", "__qualname__", "__slotnames__", "__static_attributes__", "__weakref__",
        "_abc_impl",
    }
)  # fmt: skip
"""Attributes of a class that Python itself sets, some of them on first access."""


def _class_attributes(cls: type) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(cls).items()
        if name not in _BY_PYTHON or isinstance(value, types.FunctionType)
    }


def _item_names(things: Any) -> list[str]:
    return [f"item {place}" for place in range(len(things))]


def _dict_referents(mapping: Any) -> tuple[Any, ...]:
    return (*mapping, *mapping.values())


def _dict_names(mapping: Any) -> list[str]:
    values = (f"`{key}`" if isinstance(key, str) else f"value {place}" for place, key in enumerate(mapping))
    return [*(f"key {place}" for place in range(len(mapping))), *values]


def _partial_referents(thing: functools.partial[Any]) -> tuple[Any, ...]:
    return (thing.func, *thing.args, *thing.keywords, *thing.keywords.values(), *thing.__dict__.values())


def _partial_names(thing: functools.partial[Any]) -> list[str]:
    given = range(len(thing.args) + 2 * len(thing.keywords))
    return ["function", *(f"argument {place}" for place in given), *(f"attribute `{name}`" for name in thing.__dict__)]


def _tensor_referents(tensor: Tensor) -> tuple[Any, ...]:
    return (tensor.grad if tensor.is_leaf else None, *tensor.__dict__, *tensor.__dict__.values())


def _tensor_names(tensor: Tensor) -> list[str]:
    return ["gradient", *(f"attribute `{name}`" for name in (*tensor.__dict__, *tensor.__dict__))]


def _tensor_state(tensor: Tensor) -> object:
    try:
        return tensor._version, tensor.data_ptr(), tensor.shape, tensor.requires_grad
    except RuntimeError:  # made in inference mode, or without strides
        return tensor.shape


def _tensor_contents(tensor: Tensor) -> object:
    if tensor.layout != torch.strided or tensor.device.type == "meta":
        return None
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    size = len(flat)
    if size <= MOST_EXACT_BYTES:
        return flat.cpu().numpy().tobytes()
    sample = flat[:: size // SAMPLE_SIZE].cpu().numpy().tobytes()
    return sample, int(flat[: size - size % 8].view(torch.int64).sum()) if size <= MOST_SUMMED_BYTES else 0


def _array_state(found: np.ndarray) -> object:
    content = _array_contents(found) if found.nbytes <= MOST_CHECKED_BYTES else None
    return found.shape, found.dtype, found.flags.writeable, content


def _array_contents(found: np.ndarray) -> object:
    if found.dtype.hasobject or not found.size:
        return None
    flat = np.ascontiguousarray(found).reshape(-1).view(np.uint8)
    size = len(flat)
    if size <= MOST_EXACT_BYTES:
        return flat.tobytes()
    total = int(flat[: size - size % 8].view(np.int64).sum()) if size <= MOST_SUMMED_BYTES else 0
    return flat[:: size // SAMPLE_SIZE].tobytes(), total


def _array_referents(found: np.ndarray) -> tuple[Any, ...]:
    return tuple(found.flat) if found.dtype.hasobject else ()


def bit_generator_state(generator: Any) -> object:
    """Return the state of one of numpy's bit generators."""
    if isinstance(generator, np.random.MT19937):  # 624 words and a place; as an array they would take 70 microseconds
        return ctypes.string_at(generator.ctypes.state_address, 2500)
    return repr(generator.state)


def torch_generator_state(generator: torch.Generator) -> object:
    """Return the state of one of torch's generators."""
    return generator.get_state().numpy().tobytes()


def _attribute_reader(*names: str) -> ObjectReader:
    referents: _Referents = lambda thing: tuple(getattr(thing, name, None) for name in names)
    return ObjectReader(referents, lambda _: [f"`{name}`" for name in names])


FUNCTION, INSTANCE = (
    ObjectReader(_function_referents, _function_names),
    ObjectReader(instance_referents, _instance_names),
)
CLASS = ObjectReader(
    lambda cls: tuple(_class_attributes(cls).values()),
    lambda cls: [f"attribute `{name}` of class `{cls.__name__}`" for name in _class_attributes(cls)],
)

_KINDS: tuple[tuple[tuple[type, ...], ObjectReader], ...] = (
    ((types.FunctionType,), FUNCTION),
    ((types.MethodType,), _attribute_reader("__func__", "__self__")),
    ((types.BuiltinMethodType, types.MethodWrapperType), _attribute_reader("__self__")),
    ((functools.partial,), ObjectReader(_partial_referents, _partial_names)),
    (
        (type(functools.lru_cache(len)),),
        ObjectReader(lambda it: (it.__wrapped__,), lambda _: ["what it caches"], lambda it: it.cache_info()),
    ),
    ((list, tuple, set, frozenset, deque), ObjectReader(tuple, _item_names)),
    ((dict, types.MappingProxyType), ObjectReader(_dict_referents, _dict_names)),
    ((property,), _attribute_reader("fget", "fset")),
    ((staticmethod, classmethod), _attribute_reader("__func__")),
    ((functools.cached_property,), _attribute_reader("func")),
    ((BaseException,), _attribute_reader("args", "__cause__", "__context__", "__traceback__")),
    ((types.CellType,), ObjectReader(lambda cell: (read_cell(cell),), lambda _: ["content"])),
    ((weakref.ref,), ObjectReader(lambda ref: (ref(),), lambda _: ["what it refers to"])),
    ((Tensor,), ObjectReader(_tensor_referents, _tensor_names, _tensor_state, _tensor_contents)),
    (
        (np.ndarray,),
        ObjectReader(_array_referents, lambda found: _item_names(found.flat), _array_state, _array_contents),
    ),
    ((bytearray, array.array), ObjectReader(state=len, contents=bytes)),
    ((torch.Generator,), ObjectReader(state=torch_generator_state)),
    ((np.random.Generator,), _attribute_reader("bit_generator")),
    ((np.random.RandomState,), ObjectReader(state=lambda it: bit_generator_state(it._bit_generator))),
    ((np.random.BitGenerator,), ObjectReader(state=bit_generator_state)),
    ((random.Random,), ObjectReader(state=lambda it: it.getstate())),
)

_COMPLETE_TYPES = (
    types.FunctionType,
    Tensor,
    functools.partial,
    functools.cached_property,
)  # read with their attributes
_CONSTANT_EXACT_TYPES: frozenset[type] = frozenset(
    {type(None), bool, int, float, complex, str, bytes, range, slice, type(...), type(NotImplemented), object}
)
_CONSTANT_TYPES = (
    type, types.ModuleType, types.CodeType, types.MemberDescriptorType, types.GetSetDescriptorType,
    types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType, types.GenericAlias,
    np.generic, np.dtype, np.ufunc, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo,
    torch.iinfo, re.Pattern, PurePath, datetime.date, datetime.time, datetime.timedelta, decimal.Decimal,
    type(threading.Lock()), type(threading.RLock()), logging.Logger,
)  # fmt: skip
"""Types whose objects are not read. Most of them never change. Modules and classes are read by the names in code, and
loggers need no reading because log output is withheld."""
_STATELESS_CALLABLES = frozenset({
    "operator.attrgetter", "operator.itemgetter", "operator.methodcaller", "builtins.fortran",
    "builtins.instancemethod", "nanobind.nb_func", "nanobind.nb_method",
})  # fmt: skip
"""C types without attributes whose objects are callable and remember nothing. Objects of other C types may remember
something, such as a connection to a database."""
_C_TYPES: tuple[Any, ...] = (ctypes.Array.__base__, ctypes.CDLL)  # whatever `ctypes` makes: memory of C, and ways to it


@functools.lru_cache(1024)
def find_readers(cls: Any) -> tuple[ObjectReader, ...] | None:
    """Return the readers of objects of this type: () if they never change, None if they cannot be read.

    Return () for dpbench's own curators too, because their state changes with every question.
    """
    if issubclass(cls, _C_TYPES):
        return None
    own = get_top_package(cls.__module__) == "dpbench" and issubclass(cls, BaseCurator)
    constant = issubclass(cls, _CONSTANT_TYPES) and get_top_package(cls.__module__) in LIBRARIES
    if (
        own
        or constant
        or cls in _CONSTANT_EXACT_TYPES
        or issubclass(cls, type)
        or cls.__module__ == "pybind11_builtins"
    ):
        return ()
    known = next((kind for types_, kind in _KINDS if issubclass(cls, types_)), None)
    has_attributes = cls.__dictoffset__ != 0 or any("__slots__" in vars(base) for base in cls.__mro__)
    if known is not None:
        whole = not has_attributes or issubclass(cls, _COMPLETE_TYPES)
        return (known,) if whole else (known, INSTANCE)
    if issubclass(cls, Iterator) and not isinstance(cls.__next__, types.FunctionType):
        return None
    if has_attributes:
        return (INSTANCE,)
    return () if f"{cls.__module__}.{cls.__qualname__}" in _STATELESS_CALLABLES else None
