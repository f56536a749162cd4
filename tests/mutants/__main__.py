"""Run the tests that should notice each broken core, in a copy of the repository, and say which did not."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from itertools import repeat
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from dpbench_lab.museum.cores import CORES
from dpbench_lab.museum.cores.broken_core import find_stale_patches
from dpbench_lab.museum.cores.patch import Patch, SourceEdit

ROOT = Path(__file__).parents[2]
MUTANTS = {core.name: core for core in CORES if core.tests}
COPIED = ("dpbench", "plugins", "tests", "leaderboard/boards", "pyproject.toml", "README.md")
COPIES, LIMIT = 2, 300  # of the repository at once, and seconds for the tests of one mutant: what hangs was noticed too
AUDIT = ("lab/museum/test_museum.py::test_an_honest_core_passes_the_audit_that_broken_ones_fail",)
OURS = {"tests", "dpbench", "dpbench_lab", "dpbench_plugins"}
PROCESSES = multiprocessing.get_context("fork")  # importing torch and its like takes longer than most tests
LIBRARIES = (
    "torch", "torch.nn", "numpy", "scipy.stats", "scipy.optimize", "scipy.special", "hypothesis", "opacus.accountants",
    "dp_accounting.pld", "dp_accounting.rdp", "prv_accountant", "pydantic", "sklearn",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of one mutant."""

    name: str
    killer: str | None  # the test that failed; None if all passed
    seconds: float


def main(words: Sequence[str]) -> int:
    """Try all mutants whose names contain one of `words`; return how many survived, or do not apply.

    With `--audit` among the words, say of each as well whether `dpbench audit` rejects a run on it.
    """
    audited, words = "--audit" in words, [word for word in words if word != "--audit"]
    named = [core for core in MUTANTS.values() if not words or any(word in core.name for word in words)]
    stale = find_stale_patches(named)
    print(*stale.values(), sep="\n", end="\n" * bool(stale), flush=True)
    wanted = [core.name for core in named if core.name not in stale]
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.dont_write_bytecode = True  # a file is edited and put back within the second that tells its bytecode's age
    for library in LIBRARIES:
        importlib.import_module(library)
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(COPIES, PROCESSES) as pool:
        tests = sorted({test for name in wanted for test in MUTANTS[name].tests})
        if broken := _failing(_copy(folder), tests, None):
            print(f"Without any mutant {broken} fails: nothing can be told. Fix it first.")
            return 1
        outcomes = list(pool.map(_try_mutant, wanted, repeat(folder), repeat(audited)))
    survived = [outcome.name for outcome in outcomes if outcome.killer is None]
    print(f"{len(outcomes) - len(survived)} of {len(named)} killed; survived: {', '.join(survived) or 'none'}.")
    return len(survived) + len(stale)


def _copy(below: str) -> Path:
    """Return this process' own copy of the repository."""
    folder = Path(below) / str(os.getpid())
    for name in COPIED if not folder.exists() else ():
        here, there = ROOT / name, folder / name
        there.parent.mkdir(parents=True, exist_ok=True)
        if here.is_dir():
            shutil.copytree(here, there, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(here, there)
    return folder


def _try_mutant(name: str, below: str, audited: bool) -> Outcome:
    folder, start, core = _copy(below), time.monotonic(), MUTANTS[name]
    with _edited(core.patch, folder):
        outcome = Outcome(name, _failing(folder, core.tests, name), time.monotonic() - start)
        rejected = _failing(folder, AUDIT, name) if audited else None
    print(f"{'killed  ' if outcome.killer else 'SURVIVED'} {outcome.seconds:4.0f} s  {name}", flush=True)
    print(f"                 {outcome.killer or 'by none of ' + ', '.join(core.tests)}", flush=True)
    if audited:
        print(f"                 the audit {'rejects' if rejected else 'passes'} a run on it", flush=True)
    return outcome


@contextmanager
def _edited(patch: Patch, folder: Path) -> Iterator[None]:
    """Edit a file of the copy for a while, if the core is broken by an edit."""
    if not isinstance(patch, SourceEdit):
        yield
        return
    file = folder / "dpbench" / patch.file
    source = file.read_text(encoding="utf-8")
    file.write_text(patch.edit_source(source), encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(source, encoding="utf-8")


def _failing(folder: Path, tests: Sequence[str], name: str | None) -> str | None:
    """Return the first test that fails in a copy on the core of this name; None if none does."""
    told, tells = PROCESSES.Pipe(duplex=False)
    child = PROCESSES.Process(target=_run, args=(folder, tests, name, tells))
    child.start()
    tells.close()
    try:
        if not told.poll(LIMIT if name else None):
            return f"it did not end within {LIMIT} seconds"
        status, first = told.recv()
    except EOFError:
        raise SystemExit(f"pytest ended without a word for {', '.join(tests)}.") from None
    finally:
        child.kill()
        child.join()
    if (status == 0) != (first is None):  # pytest could not find a test, or not start
        raise SystemExit(f"pytest ended with {status} for {', '.join(tests)}.")
    return str(first) if first else None


def _run(folder: Path, tests: Sequence[str], name: str | None, tells: Connection) -> None:
    """Run some tests of a copy in this process, which has the libraries already; it loads the copy's own dpbench."""
    for module in [module for module in sys.modules if module.partition(".")[0] in OURS]:
        del sys.modules[module]
    os.chdir(folder)
    sys.path[:0] = [str(folder), str(folder / "plugins")]
    first = First()
    words = ["-x", "-q", "-n", "0", "-m", "", "--no-header", "--no-summary", "--assert", "plain"]
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), _replaced(name):
        status = pytest.main([*words, *(f"tests/{test}" for test in tests)], [first])
    tells.send((int(status), first.failed))


def _replaced(name: str | None) -> AbstractContextManager[None]:
    """Replace functions of the copy's dpbench, if the core is broken by that."""
    if name is None or isinstance(MUTANTS[name].patch, SourceEdit):
        return nullcontext()
    from dpbench_lab.museum.cores import CORES as COPY  # as the copy has them
    from dpbench_lab.museum.cores.patch import Replacement

    (applied,) = (core.patch.apply() for core in COPY if core.name == name and isinstance(core.patch, Replacement))
    return applied


class First:
    """Remembers the first test that fails."""

    failed: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Be told by pytest how a test went."""
        if report.failed and self.failed is None:
            self.failed = report.nodeid


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
