"""Kinds of things that a function can reach: what each refers to, and what else its state is."""

from __future__ import annotations

import array
import ctypes
import datetime
import decimal
import functools
import logging
import random
import re
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpbench.privacy.core.chunk import Answerer
from dpbench.support.code import package_of

LIBRARIES = frozenset(sys.stdlib_module_names) | {
    "torch", "torchvision", "functorch", "opacus", "timm", "kymatio", "einops", "numpy", "scipy", "sklearn", "pandas",
    "PIL", "tqdm", "dpbench", "pytest", "_pytest",
}  # fmt: skip
"""Packages whose modules and classes are taken to remember nothing of what they are called with."""

ABSENT = object()
SMALL = 2**12  # bytes of an array that are compared around every chunk
EXACT, SUMMED = 2**20, 2**28  # bytes up to which contents are compared one by one, and by checksum and sample
SAMPLE = 1024

_Referents = Callable[[Any], tuple[Any, ...]]
_Names = Callable[[Any], Sequence[str]]
_State = Callable[[Any], object]


@dataclass(frozen=True, eq=False, slots=True)
class Kind:
    """How to read one kind of thing."""

    referents: _Referents | None = None  # compared by identity
    names: _Names = lambda thing: ()  # of the referents, in order; a name that ends in a word with " of " is complete
    state: _State | None = None  # compared by value around every chunk
    contents: _State | None = None  # compared by value around chunks that are drawn


def cell_of(cell: types.CellType) -> Any:
    """Return what a cell holds, `ABSENT` where it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def _of_function(function: types.FunctionType) -> tuple[Any, ...]:
    defaults, keywords = function.__defaults__ or (), function.__kwdefaults__ or {}
    cells = map(cell_of, function.__closure__ or ())
    return (*cells, *defaults, *keywords.values(), *function.__dict__.values(), function.__code__)


def _names_of_function(function: types.FunctionType) -> list[str]:
    return [
        *(f"closure variable `{name}`" for name in function.__code__.co_freevars),
        *(f"default {place}" for place in range(len(function.__defaults__ or ()))),
        *(f"default of `{name}`" for name in function.__kwdefaults__ or ()),
        *(f"attribute `{name}`" for name in function.__dict__),
        "code",
    ]


@functools.lru_cache(1024)
def slots_of(cls: Any) -> tuple[str, ...]:
    """Return the names of the slots that a class written in Python declares, itself or by inheritance."""
    declaring = [base for base in cls.__mro__ if "__slots__" in vars(base)]
    pairs = [pair for base in declaring for pair in vars(base).items()]
    return tuple(name for name, member in pairs if isinstance(member, types.MemberDescriptorType))


def _slots(thing: Any) -> tuple[str, ...]:
    cls: Any = type(thing)
    return slots_of(cls)


@functools.lru_cache(1024)
def lazy_of(cls: Any) -> frozenset[str]:
    """Return the cached properties of a library's classes: made of the object alone, whenever that is."""
    known = [base for base in cls.__mro__ if package_of(base.__module__) in LIBRARIES]
    pairs = [pair for base in known for pair in vars(base).items()]
    return frozenset(name for name, value in pairs if isinstance(value, functools.cached_property))


def _held(thing: Any) -> dict[str, Any]:
    cls: Any = type(thing)
    held, lazy = getattr(thing, "__dict__", {}), lazy_of(cls)
    return {name: value for name, value in held.items() if name not in lazy} if lazy else held


def _of_instance(thing: Any) -> tuple[Any, ...]:
    held = _held(thing)
    return (*held, *held.values(), *(getattr(thing, name, ABSENT) for name in _slots(thing)))


def _names_of_instance(thing: Any) -> list[str]:
    held = _held(thing)
    return [f"attribute `{name}`" for name in (*held, *held, *_slots(thing))]


_BY_PYTHON = frozenset(
    {
        "__abstractmethods__", "__annotations__", "__dict__", "__firstlineno__", "__hash__", "__module__",
        "__orig_bases__", "__parameters__", "__qualname__", "__slotnames__", "__static_attributes__", "__weakref__",
        "_abc_impl",
    }
)  # fmt: skip
"""Attributes of a class that Python fills in, some of them when they are first asked for."""


def _attributes_of_class(cls: type) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(cls).items()
        if isinstance(value, types.FunctionType) or name not in _BY_PYTHON
    }


def _items(things: Any) -> list[str]:
    return [f"item {place}" for place in range(len(things))]


def _of_dict(held: Any) -> tuple[Any, ...]:
    return (*held, *held.values())


def _names_of_dict(held: Any) -> list[str]:
    values = (f"`{key}`" if isinstance(key, str) else f"value {place}" for place, key in enumerate(held))
    return [*(f"key {place}" for place in range(len(held))), *values]


def _of_partial(thing: functools.partial[Any]) -> tuple[Any, ...]:
    return (thing.func, *thing.args, *thing.keywords, *thing.keywords.values(), *thing.__dict__.values())


def _names_of_partial(thing: functools.partial[Any]) -> list[str]:
    given = range(len(thing.args) + 2 * len(thing.keywords))
    return ["function", *(f"argument {place}" for place in given), *(f"attribute `{name}`" for name in thing.__dict__)]


def _of_tensor(tensor: Tensor) -> tuple[Any, ...]:
    return (tensor.grad if tensor.is_leaf else None, *tensor.__dict__, *tensor.__dict__.values())


def _names_of_tensor(tensor: Tensor) -> list[str]:
    return ["gradient", *(f"attribute `{name}`" for name in (*tensor.__dict__, *tensor.__dict__))]


def _state_of_tensor(tensor: Tensor) -> object:
    try:
        return tensor._version, tensor.data_ptr(), tensor.shape, tensor.requires_grad
    except RuntimeError:  # made in inference mode, or without strides
        return tensor.shape


def _contents_of_tensor(tensor: Tensor) -> object:
    if tensor.layout != torch.strided or tensor.device.type == "meta":
        return None
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    size = len(flat)
    if size <= EXACT:
        return flat.cpu().numpy().tobytes()
    sample = flat[:: size // SAMPLE].cpu().numpy().tobytes()
    return sample, int(flat[: size - size % 8].view(torch.int64).sum()) if size <= SUMMED else 0


def _state_of_array(found: np.ndarray) -> object:
    small = found.nbytes <= SMALL and not found.dtype.hasobject
    return found.shape, found.dtype, found.flags.writeable, found.tobytes() if small else b""


def _contents_of_array(found: np.ndarray) -> object:
    if found.dtype.hasobject or not found.size:
        return None
    return _contents_of_tensor(torch.from_numpy(np.ascontiguousarray(found).reshape(-1).view(np.uint8)))


def _of_array(found: np.ndarray) -> tuple[Any, ...]:
    return tuple(found.flat) if found.dtype.hasobject else ()


def words_of(generator: Any) -> object:
    """Return the state of one of numpy's bit generators."""
    if isinstance(generator, np.random.MT19937):  # 624 words and a place; as an array they would take 70 microseconds
        return ctypes.string_at(generator.ctypes.state_address, 2500)
    return repr(generator.state)


def torch_state(generator: torch.Generator) -> object:
    """Return the state of one of torch's generators."""
    return generator.get_state().numpy().tobytes()


def _attributes(*names: str) -> Kind:
    referents: _Referents = lambda thing: tuple(getattr(thing, name, None) for name in names)
    return Kind(referents, lambda _: [f"`{name}`" for name in names])


FUNCTION, INSTANCE = Kind(_of_function, _names_of_function), Kind(_of_instance, _names_of_instance)
CLASS = Kind(
    lambda cls: tuple(_attributes_of_class(cls).values()),
    lambda cls: [f"attribute `{name}` of class `{cls.__name__}`" for name in _attributes_of_class(cls)],
)

_KINDS: tuple[tuple[tuple[type, ...], Kind], ...] = (
    ((types.FunctionType,), FUNCTION),
    ((types.MethodType,), _attributes("__func__", "__self__")),
    ((types.BuiltinMethodType, types.MethodWrapperType), _attributes("__self__")),
    ((functools.partial,), Kind(_of_partial, _names_of_partial)),
    (
        (type(functools.lru_cache(len)),),
        Kind(lambda it: (it.__wrapped__,), lambda _: ["what it caches"], lambda it: it.cache_info()),
    ),
    ((list, tuple, set, frozenset, deque), Kind(tuple, _items)),
    ((dict, types.MappingProxyType), Kind(_of_dict, _names_of_dict)),
    ((property,), _attributes("fget", "fset")),
    ((staticmethod, classmethod), _attributes("__func__")),
    ((functools.cached_property,), _attributes("func")),
    ((BaseException,), _attributes("args", "__cause__", "__context__", "__traceback__")),
    ((types.CellType,), Kind(lambda cell: (cell_of(cell),), lambda _: ["content"])),
    ((weakref.ref,), Kind(lambda ref: (ref(),), lambda _: ["what it refers to"])),
    ((Tensor,), Kind(_of_tensor, _names_of_tensor, _state_of_tensor, _contents_of_tensor)),
    ((np.ndarray,), Kind(_of_array, lambda found: _items(found.flat), _state_of_array, _contents_of_array)),
    ((bytearray, array.array), Kind(state=len, contents=bytes)),
    ((torch.Generator,), Kind(state=torch_state)),
    ((np.random.Generator,), _attributes("bit_generator")),
    ((np.random.RandomState,), Kind(state=lambda it: words_of(it._bit_generator))),
    ((np.random.BitGenerator,), Kind(state=words_of)),
    ((random.Random,), Kind(state=lambda it: it.getstate())),
)

_WHOLE = (types.FunctionType, Tensor, functools.partial, functools.cached_property)  # read with their attributes
_EXACTLY: frozenset[type] = frozenset(
    {type(None), bool, int, float, complex, str, bytes, range, slice, type(...), type(NotImplemented), object}
)
_CONSTANT = (
    type, types.ModuleType, types.CodeType, types.MemberDescriptorType, types.GetSetDescriptorType,
    types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType, types.GenericAlias,
    np.generic, np.dtype, np.ufunc, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo,
    torch.iinfo, re.Pattern, PurePath, datetime.date, datetime.time, datetime.timedelta, decimal.Decimal,
    type(threading.Lock()), type(threading.RLock()), logging.Logger,
)  # fmt: skip
"""What never changes; modules and classes are read by the names that code uses. What a logger is told is withheld."""
_IN_C: tuple[Any, ...] = (ctypes.Array.__base__, ctypes.CDLL)  # whatever `ctypes` makes: memory of C, and ways to it


@functools.lru_cache(1024)
def kinds_of(cls: Any) -> tuple[Kind, ...] | None:
    """Return how to read things of a type: nothing of what never changes, None if they cannot be read.

    The harness's own curators are left alone: they hold what changes with every question, and nothing else.
    """
    if issubclass(cls, _IN_C):
        return None
    own = package_of(cls.__module__) == "dpbench" and issubclass(cls, Answerer)
    constant = issubclass(cls, _CONSTANT) and package_of(cls.__module__) in LIBRARIES
    if own or constant or cls in _EXACTLY or issubclass(cls, type) or cls.__module__ == "pybind11_builtins":
        return ()
    known = next((kind for types_, kind in _KINDS if issubclass(cls, types_)), None)
    has_attributes = cls.__dictoffset__ != 0 or any("__slots__" in vars(base) for base in cls.__mro__)
    if known is not None:
        whole = not has_attributes or issubclass(cls, _WHOLE)
        return (known,) if whole else (known, INSTANCE)
    if issubclass(cls, Iterator) and not isinstance(cls.__next__, types.FunctionType):
        return None
    if has_attributes:
        return (INSTANCE,)
    return () if issubclass(cls, Callable) else None  # type: ignore[arg-type]
