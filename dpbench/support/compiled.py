"""Compile loops with numba once per processor, and cache them in a folder that only the user can write.

numba caches compiled code as pickles, and whoever can write these can run code as the user. So they are read only from
an intact folder of the user's own (`own_folders`). Otherwise loops are compiled again, which takes a few seconds, and
dpbench prints the reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite
import numba
from numba.extending import intrinsic

from dpbench.errors import SpecError
from dpbench.support import progress
from dpbench.support.own_folders import create_entry, is_intact, open_own_folder

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Have numba compile a function as part of the kernels that call it; division by zero gives infinity."""
    loop: Any = numba.njit(error_model="numpy")(function)
    return cast(Function, loop)


def kernel(function: Function) -> Function:
    """Have numba compile a function that Python calls, without holding the interpreter's lock."""
    loop: Any = numba.njit(nogil=True, error_model="numpy")(function)
    return cast(Function, loop)


def instructions(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make numba replace calls of a function by the LLVM instructions that the function emits."""
    written: Callable[..., Any] = intrinsic(function)
    return written


def compile_kernels(kernels: Sequence[Any], sources: Path, call: Callable[[], object]) -> None:
    """Compile kernels for the argument types that `call` uses, or load what an earlier process compiled.

    Afterwards they accept no arguments of other types, so that nothing is compiled at a later call.

    Args:
        kernels: made by `kernel`.
        sources: the folder with the source code of all kernels.
        call: a function that calls each kernel once.

    Raises:
        SpecError: the environment turns numba's compiler off.
    """
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        raise SpecError("NUMBA_DISABLE_JIT is set, but dpbench's loops run only as compiled. Unset it.")
    folder, trouble = open_own_folder("kernels", "compiled loops")
    place = folder and folder / _kernels_key(sources)
    if place and place.exists() and (trouble := _load_kernels(kernels, place, call)):
        shutil.rmtree(place, ignore_errors=True)
    if trouble or not (place and place.exists()):
        progress.print_line(f"{trouble}Compiling loops for this processor, which takes some seconds.")
        _compile_into(kernels, place, call)
    if progress.is_verbose():
        progress.print_line(f"Linear heads are fitted by loops compiled for {llvmlite.binding.get_host_cpu_name()}.")
    for each in kernels:
        each.disable_compile()


def _load_kernels(kernels: Sequence[Any], place: Path, call: Callable[[], object]) -> str:
    """Load compiled kernels from a folder; return the reason if it fails, or an empty text."""
    try:
        if is_intact(place):
            _enable_cache(place, kernels)
            call()
            return ""
    except Exception:  # numba names no errors for a cache that is damaged
        pass
    return f"The compiled loops in {place} are damaged. "


def _compile_into(kernels: Sequence[Any], place: Path | None, call: Callable[[], object]) -> None:
    if place is None:
        call()
        return
    with create_entry(place) as new:
        _enable_cache(new, kernels)
        call()


def _enable_cache(folder: Path, kernels: Sequence[Any]) -> None:
    settings: Any = numba.config
    before, settings.CACHE_DIR = settings.CACHE_DIR, str(folder)
    try:
        for each in kernels:
            each.enable_caching()
    finally:
        settings.CACHE_DIR = before


def _kernels_key(sources: Path) -> str:
    """Return the cache key of kernels: a digest of their sources, this processor and the compilers' versions."""
    cpu = llvmlite.binding.get_host_cpu_name(), llvmlite.binding.get_host_cpu_features().flatten()
    forced = [os.environ.get(name, "") for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")]
    files = sorted(sources.glob("*.py"))
    texts = [(str(file), file.stat().st_mtime_ns, file.read_text(encoding="utf-8")) for file in files]
    parts = [numba.__version__, llvmlite.__version__, *cpu, *forced, texts]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
