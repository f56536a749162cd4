"""Compiled loops: kept for the user alone, compiled again where they cannot be trusted, and never a reason to stop."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import pytest

from dpbench.errors import SpecError
from dpbench.support.compiled import compile_kernels, has_avx512

CODE = """
import multiprocessing, sys
from pathlib import Path
from dpbench.support.compiled import compile_kernels, kernel

@kernel
def double(number):
    return 2 * number

def call():
    compile_kernels([double], Path(sys.argv[1]), lambda: double(1), "Numbers are doubled")
    return double(21)

if __name__ == "__main__":
    print(call())
    try:
        double("two")
    except TypeError:
        print("of these types alone")
    if "fork" in sys.argv:
        for method in ("fork", "spawn"):
            with multiprocessing.get_context(method).Pool(2) as pool:
                print(pool.apply(call))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "sources").mkdir()
    file = tmp_path / "sources" / "doubling.py"
    file.write_text(CODE)
    return file


def run(program: Path, cache: Path, *arguments: str) -> tuple[str, str]:
    """Return what a process that compiles prints, and what it says."""
    environment = os.environ | {"DPBENCH_CACHE": str(cache)}
    command = [sys.executable, str(program), str(program.parent), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout, done.stderr.replace(str(cache), "CACHE")


COMPILES = "Compiling loops for this processor, which takes some seconds.\n"


@pytest.mark.slow
def test_a_second_process_reads_what_the_first_compiled_until_the_code_changes(program: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert run(program, cache) == ("42\nof these types alone\n", "dpbench: " + COMPILES)
    assert run(program, cache) == ("42\nof these types alone\n", "")
    assert (cache / "kernels").stat().st_mode & 0o777 == 0o700
    program.write_text(CODE + "# edited\n")
    assert run(program, cache)[1] == "dpbench: " + COMPILES


@pytest.mark.slow
def test_of_processes_that_start_together_one_compiles(program: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        ran = [pool.submit(run, program, tmp_path / "cache") for _ in range(3)]
        said = [each.result()[1] for each in ran]
    assert sorted(said) == ["", "", "dpbench: " + COMPILES]


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["garbage", "missing", "added", "no list"])
def test_loops_that_are_damaged_are_compiled_again(program: Path, tmp_path: Path, damage: str) -> None:
    cache = tmp_path / "cache"
    run(program, cache)
    (index,) = cache.rglob("*.nbi")
    if damage == "garbage":
        index.write_bytes(b"cos\nsystem\n(S'echo owned'\ntR.")
    elif damage == "missing":
        index.unlink()
    elif damage == "added":
        index.with_name("other.nbc").write_bytes(b"")
    else:
        next(cache.rglob("digests.json")).write_text("[")
    printed, said = run(program, cache)
    assert printed.startswith("42")
    assert said.startswith("dpbench: The compiled loops in CACHE/kernels/")
    assert said.endswith(f" are damaged. {COMPILES}")
    assert run(program, cache)[1] == ""


@pytest.mark.slow
@pytest.mark.parametrize("shared", ["", "kernels"])
def test_loops_are_not_kept_where_others_may_write(program: Path, tmp_path: Path, shared: str) -> None:
    cache = tmp_path / "cache"
    (cache / "kernels").mkdir(parents=True, mode=0o700)
    (cache / shared).chmod(0o777)
    printed, said = run(program, cache)
    assert printed.startswith("42")
    assert said.startswith("dpbench: Others may write to CACHE")
    assert said.endswith(f"so compiled loops are not kept there. {COMPILES}")
    assert not [*cache.rglob("*.nbi")]


def test_a_home_that_cannot_be_written_is_no_reason_to_stop(program: Path, tmp_path: Path) -> None:
    file = tmp_path / "a file"
    file.write_text("")
    printed, said = run(program, file)
    assert printed.startswith("42")
    assert said.startswith("dpbench: Cannot keep compiled loops in CACHE/kernels: ")
    assert said.endswith(COMPILES)


@pytest.mark.slow
def test_forked_and_spawned_workers_compute(program: Path, tmp_path: Path) -> None:
    printed, said = run(program, tmp_path / "cache", "fork")
    assert printed.splitlines() == ["42", "of these types alone", "42", "42"]
    assert said == "dpbench: " + COMPILES


def test_compiling_needs_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("numba.config.DISABLE_JIT", True)
    with pytest.raises(SpecError, match="NUMBA_DISABLE_JIT is set"):
        compile_kernels([], tmp_path, dict, "Nothing is done")


@pytest.mark.parametrize(("features", "found"), [("+avx2,+avx512bw", True), ("+avx,+avx2", False), ("", False)])
def test_vectors_are_as_long_as_the_features_that_numba_compiles_for(
    monkeypatch: pytest.MonkeyPatch, features: str, found: bool
) -> None:
    monkeypatch.setattr(numba.config, "CPU_FEATURES", features)
    assert has_avx512() == found
