"""Threads: as many as the work is worth or as were asked for, the same answers from any number, and none that spins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from threadpoolctl import threadpool_info

from dpbench.api import Task
from dpbench.errors import SpecError
from dpbench.harness import scoring
from dpbench.records.result import Result
from dpbench.records.spec import make_spec
from dpbench.support import threads
from dpbench.support.threads import MULTITHREADED_FROM, limit_threads
from tests.helpers.commands import call
from tests.helpers.sessions import session

LEARNERS = ("class-means", "dp-raft", "dp-sgd", "gep", "jl", "pillar", "thrift", "whitened")


@pytest.fixture(autouse=True)
def three() -> Iterator[None]:
    """Let torch use three threads, whatever the machine has, and put back what it had."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def fitted(learner: str, threads: int | None) -> Result:
    spec = make_spec({"learner": learner, "dataset": "digits", "seeds": 1}, "a test")
    return session(threads=threads).run(spec)


@pytest.mark.parametrize(("size", "expected"), [(MULTITHREADED_FROM // 50 - 1, 1), (MULTITHREADED_FROM // 50, 3)])
def test_a_small_head_has_one_thread_and_a_large_one_all(size: int, expected: int) -> None:
    task = Task((5, 10), 3, size, torch.device("cpu"))
    assert session().memo.get_thread_count(task) == expected
    assert session(threads=2).memo.get_thread_count(task) == 2


@pytest.mark.quick(1)
@pytest.mark.parametrize(("asked", "expected"), [(None, 1), (2, 2)])
def test_a_fit_and_its_scores_are_computed_by_as_many_threads_as_its_result_says(
    asked: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, honest = set(), scoring.predict_all

    def watched(*arguments: object) -> object:
        seen.add(torch.get_num_threads())
        seen.update(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        return honest(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("dpbench.harness.fitting.predict_all", watched)
    assert fitted("jl", asked).provenance["threads"] == expected
    assert seen == {expected}


def test_after_a_block_every_library_has_the_threads_that_it_had() -> None:
    before = threadpool_info()
    with pytest.raises(ZeroDivisionError), limit_threads(1):
        assert {pool["num_threads"] for pool in threadpool_info()} == {1}
        1 / 0  # noqa: B018
    assert torch.get_num_threads() == 3
    assert threadpool_info() == before


def test_libraries_are_looked_for_again_after_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    known = threads._find_thread_pools(len(sys.modules))
    assert threads._find_thread_pools(len(sys.modules)) is known
    monkeypatch.setitem(sys.modules, "a_library_of_this_test", ModuleType("a_library_of_this_test"))
    assert threads._find_thread_pools(len(sys.modules)) is not known


@pytest.mark.quick(1)
@pytest.mark.parametrize("learner", LEARNERS)
def test_a_private_learner_predicts_the_same_with_any_number_of_threads(learner: str) -> None:
    assert len({fitted(learner, threads).seeds[0].predictions for threads in (1, 3)}) == 1


@pytest.mark.quick(1)
@pytest.mark.parametrize(("flags", "expected"), [((), 1), (("--threads", "2"), 2)])
def test_run_takes_a_number_of_threads(
    flags: tuple[str, ...], expected: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fast = ("--learner", "class-means", "--seeds", "1", "--device", "cpu", "--out", str(tmp_path))
    assert call("run", *fast, "--json", *flags) == 0
    assert json.loads(capsys.readouterr().out)["provenance"]["threads"] == expected


@pytest.mark.slow
def test_a_spec_file_may_give_the_threads_and_several_runs_share_them(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text('learner = ["class-means", "jl"]\nseeds = 1\nthreads = 2\n')
    assert call("run", "--spec", str(tmp_path / "spec.toml"), "--device", "cpu", "--out", str(tmp_path)) == 0
    assert [Result.read(file).provenance["threads"] for file in tmp_path.glob("*.json")] == [2, 2]


def test_no_threads_are_refused() -> None:
    with pytest.raises(SpecError, match="threads=0 to be at least 1"):
        session(threads=0)


@pytest.mark.parametrize(("before", "after"), [(None, "passive"), ("active", "active")])
def test_the_command_line_lets_idle_threads_sleep_unless_the_environment_says_otherwise(
    before: str | None, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", before or "")  # so that what the command sets is put back
    if before is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    call("--version")
    assert os.environ["OMP_WAIT_POLICY"] == after


@pytest.mark.slow
def test_a_notebook_lets_idle_threads_sleep_before_torch_is_imported() -> None:
    code = (
        "import os, sys\n"
        "os.environ.pop('OMP_WAIT_POLICY', None)\n"
        "import dpbench\n"
        "assert 'torch' not in sys.modules\n"
        "dpbench.run\n"
        "print(os.environ['OMP_WAIT_POLICY'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "passive"


def test_work_is_done_by_this_thread_and_others_and_ends_with_them() -> None:
    meeting = threading.Barrier(2)

    def work() -> str:
        meeting.wait(10)
        return threading.current_thread().name

    mine, other = threads.run_in_threads(work, 2)
    assert mine == threading.current_thread().name
    assert other.startswith("dpbench-")
    assert threads.run_in_threads(lambda: 1, 1) == [1]


def test_what_fails_in_this_thread_waits_for_the_others() -> None:
    meeting, done = threading.Barrier(2), []

    def work() -> None:
        meeting.wait(10)
        if threading.current_thread() is threading.main_thread():
            raise ValueError("mine")
        time.sleep(0.05)
        done.append("other")

    with pytest.raises(ValueError, match="mine"):
        threads.run_in_threads(work, 2)
    assert done == ["other"]


def test_a_forked_process_has_threads_of_its_own() -> None:
    assert threads.start_in_thread(lambda: 3, 2)() == threads.start_in_thread(lambda: 3, 1)() == 3
    code = (
        "import multiprocessing\n"
        "from dpbench.support import threads\n"
        "def work(_=None): return threads.start_in_thread(lambda: 3, 2)()\n"
        "print(work(), multiprocessing.get_context('fork').Pool(1).map(work, [0]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "3 [3]"
