"""Compile loops with numba once per processor, and cache them in a folder that only the user can write.

numba caches compiled code as pickles, and anyone who can write such a pickle can run code as the user. So dpbench reads
them only from an intact folder that nobody else can write to (`own_folders`). Otherwise it compiles the loops again,
which takes a few seconds, and prints the reason.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite
import numba
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

from dpbench.errors import SpecError
from dpbench.support import progress
from dpbench.support.folders import lock_folder
from dpbench.support.own_folders import create_cache_entry, is_cache_entry_intact, prepare_user_only_folder

Function = TypeVar("Function", bound=Callable[..., Any])
_njit: Any = numba.njit  # its type stubs lack the options that leave out wrappers


def has_avx512() -> bool:
    """Return whether numba compiles for a processor with AVX-512, whose vectors are twice as long."""
    forced: str | None = numba.config.CPU_FEATURES  # type: ignore[attr-defined]
    return "+avx512bw" in (get_host_cpu_features() if forced is None else forced)  # type: ignore[no-untyped-call]


def kernel_helper(function: Function) -> Function:
    """Have numba compile a function that only kernels can call; division by zero gives infinity or nan.

    A wrapper for calls from Python would take numba as long as some of these functions.
    """
    loop: Any = _njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    return cast(Function, loop)


def kernel(function: Function) -> Function:
    """Have numba compile a function that Python calls; it runs without the global interpreter lock (GIL)."""
    loop: Any = _njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True)(function)
    return cast(Function, loop)


def llvm_intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make numba replace calls of a function with the LLVM instructions that the function emits."""
    written: Callable[..., Any] = intrinsic(function)
    return written


def compile_kernels(kernels: Sequence[Any], sources: Path, call: Callable[[], object], use: str) -> None:
    """Compile kernels for the argument types that `call` uses, or load them from the cache of an earlier process.

    Afterwards the kernels reject arguments of other types, so later calls never compile.

    Args:
        kernels: functions decorated with `kernel`.
        sources: the folder with the source code of all kernels.
        call: a function that calls each kernel once.
        use: what the kernels do, as a sentence's beginning, such as "Linear heads are fitted".

    Raises:
        SpecError: the environment turns numba's compiler off.
    """
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        raise SpecError("NUMBA_DISABLE_JIT is set, but dpbench's loops run only as compiled. Unset it.")
    folder, trouble = prepare_user_only_folder("kernels", "compiled loops")
    place = folder and folder / _kernels_cache_key(sources)
    with contextlib.ExitStack() as turn:  # of processes that start together, only the first compiles
        if folder:
            with contextlib.suppress(OSError):  # it goes on without a lock
                turn.enter_context(lock_folder(folder, wait=True))
        if place and place.exists() and (trouble := _load_kernels(kernels, place, call)):
            shutil.rmtree(place, ignore_errors=True)
        if trouble or not (place and place.exists()):
            progress.print_progress_line(f"{trouble}Compiling loops for this processor, which takes some seconds.")
            _compile_and_cache(kernels, place, call)
    if progress.is_verbose():
        progress.print_progress_line(f"{use} by loops compiled for {llvmlite.binding.get_host_cpu_name()}.")
    for each in kernels:
        each.disable_compile()


def _load_kernels(kernels: Sequence[Any], entry: Path, call_kernels: Callable[[], object]) -> str:
    """Load compiled kernels from a folder; return the reason if this fails, otherwise an empty text."""
    try:
        if is_cache_entry_intact(entry):
            _enable_cache(entry, kernels)
            call_kernels()
            return ""
    except Exception:  # numba names no errors for a cache that is damaged
        pass
    return f"The compiled loops in {entry} are damaged. "


def _compile_and_cache(kernels: Sequence[Any], entry: Path | None, call_kernels: Callable[[], object]) -> None:
    if entry is None:
        call_kernels()
        return
    with create_cache_entry(entry) as new:
        _enable_cache(new, kernels)
        call_kernels()


def _enable_cache(folder: Path, kernels: Sequence[Any]) -> None:
    settings: Any = numba.config
    before, settings.CACHE_DIR = settings.CACHE_DIR, str(folder)
    try:
        for each in kernels:
            each.enable_caching()
    finally:
        settings.CACHE_DIR = before


def _kernels_cache_key(sources: Path) -> str:
    """Return the cache key of kernels: a digest of their sources, this processor and the compilers' versions."""
    cpu = llvmlite.binding.get_host_cpu_name(), llvmlite.binding.get_host_cpu_features().flatten()
    forced = [os.environ.get(name, "") for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")]
    files = sorted(sources.glob("*.py"))
    texts = [(str(file), file.stat().st_mtime_ns, file.read_text(encoding="utf-8")) for file in files]
    parts = [numba.__version__, llvmlite.__version__, *cpu, *forced, texts]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
