"""Put each mutant into a copy of the repository, run the tests that should notice, and say which did not."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import repeat
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.mutants import accounts, answers, elections, glue, purity, sums
from tests.mutants.mutant import Mutant, NoLongerApplies

ROOT = Path(__file__).parents[2]
MUTANTS: tuple[Mutant, ...] = (
    *answers.MUTANTS, *sums.MUTANTS, *purity.MUTANTS, *accounts.MUTANTS, *elections.MUTANTS, *glue.MUTANTS
)  # fmt: skip
COPIED = ("dpbench", "plugins", "tests", "leaderboard/boards", "pyproject.toml", "README.md")
CORES, LIMIT = 2, 300  # copies at once, and seconds for the tests of one mutant: what hangs was noticed too
AUDIT = ("lab/museum/test_museum.py::test_an_honest_core_passes_the_audit_that_broken_ones_fail",)
PROCESSES = multiprocessing.get_context("fork")  # importing torch and its like takes longer than most tests
LIBRARIES = (
    "torch", "torch.nn", "numpy", "scipy.stats", "scipy.optimize", "scipy.special", "hypothesis", "opacus.accountants",
    "dp_accounting.pld", "dp_accounting.rdp", "prv_accountant", "pydantic", "sklearn",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of one mutant."""

    mutant: Mutant
    killer: str | None  # the test that failed; None if all passed
    seconds: float


def main(words: Sequence[str]) -> int:
    """Try all mutants whose names contain one of `words`; return how many survived, or do not apply.

    With `--audit` among the words, say of each as well whether `dpbench audit` rejects a run on it.
    """
    audited, words = "--audit" in words, [word for word in words if word != "--audit"]
    wanted = [one for one in MUTANTS if not words or any(word in one.name for word in words)]
    stale = list(filter(None, map(_stale, wanted)))
    print(*stale, sep="\n", end="\n" * bool(stale), flush=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.dont_write_bytecode = True  # a file is edited and put back within the second that tells its bytecode's age
    for library in LIBRARIES:
        importlib.import_module(library)
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(CORES, PROCESSES) as pool:
        tests = sorted({test for mutant in wanted for test in mutant.tests})
        if broken := _failing(_copy(folder), tests, None):
            print(f"Without any mutant {broken} fails: nothing can be told. Fix it first.")
            return 1
        outcomes = [one for one in pool.map(_told, wanted, repeat(folder), repeat(audited)) if one is not None]
    survived = [one.mutant.name for one in outcomes if one.killer is None]
    print(f"{len(outcomes) - len(survived)} of {len(wanted)} killed; survived: {', '.join(survived) or 'none'}.")
    return len(survived) + len(stale)


def _stale(mutant: Mutant) -> str | None:
    try:
        mutant.applied(mutant.path(ROOT).read_text(encoding="utf-8"))
    except NoLongerApplies as error:
        return str(error)
    return None


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


def _told(mutant: Mutant, below: str, audited: bool) -> Outcome | None:
    folder, start = _copy(below), time.monotonic()
    file = mutant.path(folder)
    source = file.read_text(encoding="utf-8")
    try:
        file.write_text(mutant.applied(source), encoding="utf-8")
        outcome = Outcome(mutant, _failing(folder, mutant.tests, LIMIT), time.monotonic() - start)
        rejected = _failing(folder, AUDIT, LIMIT) if audited else None
    except NoLongerApplies:
        return None  # said already
    finally:
        file.write_text(source, encoding="utf-8")
    print(f"{'killed  ' if outcome.killer else 'SURVIVED'} {outcome.seconds:4.0f} s  {mutant.name}", flush=True)
    print(f"                 {outcome.killer or 'by none of ' + ', '.join(mutant.tests)}", flush=True)
    if audited:
        print(f"                 the audit {'rejects' if rejected else 'passes'} a run on it", flush=True)
    return outcome


def _failing(folder: Path, tests: Sequence[str], limit: float | None) -> str | None:
    """Return the first test that fails in a copy; None if none does."""
    told, tells = PROCESSES.Pipe(duplex=False)
    child = PROCESSES.Process(target=_run, args=(folder, tests, tells))
    child.start()
    tells.close()
    try:
        if not told.poll(limit):
            return f"it did not end within {limit} seconds"
        status, first = told.recv()
    except EOFError:
        raise SystemExit(f"pytest ended without a word for {', '.join(tests)}.") from None
    finally:
        child.kill()
        child.join()
    if (status == 0) != (first is None):  # pytest could not find a test, or not start
        raise SystemExit(f"pytest ended with {status} for {', '.join(tests)}.")
    return str(first) if first else None


def _run(folder: Path, tests: Sequence[str], tells: Connection) -> None:
    """Run some tests of a copy in this process, which has the libraries already and nothing of dpbench."""
    for name in [name for name in sys.modules if name.partition(".")[0] in {"tests", "dpbench"}]:
        del sys.modules[name]
    os.chdir(folder)
    sys.path[:0] = [str(folder), str(folder / "plugins")]
    first = First()
    words = ["-x", "-q", "-n", "0", "-m", "", "--no-header", "--no-summary", "--assert", "plain"]
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        status = pytest.main([*words, *(f"tests/{test}" for test in tests)], [first])
    tells.send((int(status), first.failed))


class First:
    """Remembers the first test that fails."""

    failed: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Be told by pytest how a test went."""
        if report.failed and self.failed is None:
            self.failed = report.nodeid


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
