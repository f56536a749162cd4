"""Sweeps with real processes: the same numbers however they run, and whatever is killed on the way."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer

from dpbench.cli import sweep as command
from dpbench.errors import OutputError
from dpbench.records.result import Result
from dpbench.sweep.conduct import sweep
from dpbench.sweep.resources import SweepResources
from tests.conftest import built_once

COMMAND = """
from dpbench.cli import main
main()
"""
CLUSTER = """
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster:
        print(cluster.scheduler_address, flush=True)
        input()
"""
PLUGIN = """
import os, signal, time
from dataclasses import dataclass
from pathlib import Path
from dpbench import Learner, Release, hookimpl

@dataclass(frozen=True)
class Moody(Learner):
    '''Sums pixels by class, or does not.'''
    name = "moody"
    mood: str = "well"
    def plan(self, task, budget):
        return [Release("sums")]
    def fit(self, curator, public, generator):
        from torch.nn.functional import one_hot
        cheered = Path(os.environ["CHEER"]).exists()
        if self.mood == "deadly" and not cheered:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.mood == "sulking" and not cheered:
            raise RuntimeError("Not today.")
        print("what a plugin prints does not stand between answers")
        wide = lambda chunk: one_hot(chunk.y, 10).float()[:, :, None] * chunk.x.flatten(1)[:, None]
        sums = curator.noisy_sum(lambda chunk: wide(chunk).flatten(1), release="sums", clip=30.0).reshape(10, -1)
        return lambda x: x.flatten(1) @ sums.T

@hookimpl
def dpbench_learners():
    return [Moody]
"""
SWEEP = """
name = "tiny"
fixed = {dataset = "digits", seeds = 2}
[grid]
learner = ["pillar:steps=30", "jl:steps=30"]
"learner.k" = [5, 10]
epsilon = [0.5, 1.0, inf]
"""
MOODS = """
name = "moods"
fixed = {seeds = 1, learner = "moody", extractor = "pixels"}
grid = {"learner.mood" = ["deadly", "well", "sulking"]}
"""
LINUX = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes as Linux lists them")


@pytest.fixture(scope="module", autouse=True)
def cheer(tmp_path_factory: pytest.TempPathFactory, surroundings: None) -> Iterator[Path]:
    """Install a plugin for this process and those it starts; return the file that makes its learner well."""
    site = tmp_path_factory.mktemp("site")
    info = site / "moody_wheel-1.0.dist-info"
    info.mkdir()
    (site / "moody.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: moody-wheel\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dpbench]\nmoody = moody\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        patch.setenv("PYTHONPATH", str(site))
        patch.setenv("DPBENCH_PLUGINS", "sklearn,pixels,pillar,jl,moody")
        patch.setenv("CHEER", str(site / "cheer"))
        yield site / "cheer"


@pytest.fixture(scope="module")
def undisturbed(cheer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep that nothing happened to."""
    return built_once(tmp_path_factory, "undisturbed", _sweep)


def _sweep(out: Path) -> None:
    summary = sweep(tomllib.loads(SWEEP), out, resources=SweepResources(workers=2, threads=1, device="cpu"))
    assert (summary.ran, summary.skipped, summary.failed) == (12, 0, ())


def started(code: str, *arguments: object) -> subprocess.Popen[str]:
    command, pipe = [sys.executable, "-c", code, *map(str, arguments)], subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def sweeping(content: str, out: Path, *more: object) -> subprocess.Popen[str]:
    """Start a sweep as a program of its own."""
    flags = ("--out", out, "--threads", 1, "--device", "cpu")
    return started(COMMAND, "sweep", written(content, out), *flags, *more)


def written(content: str, out: Path) -> Path:
    out.mkdir(exist_ok=True)
    file = out.parent / f"{out.name}.toml"
    file.write_text(content)
    return file


def ended(process: subprocess.Popen[str], code: int) -> str:
    """Wait for a program, check its exit code and return what it said."""
    said, complained = process.communicate(timeout=120)
    assert process.returncode == code, complained
    assert "Traceback" not in complained
    return said + complained


def results(out: Path) -> dict[str, Result]:
    return {file.name: Result.read(file) for file in out.glob("*.json")}


def numbers(out: Path) -> dict[str, tuple[object, ...]]:
    """Return all that must not depend on where and when a cell ran, at full precision."""
    return {
        name: (result.spec, result.seeds, result.metrics, result.privacy, result.task, result.provenance["threads"])
        for name, result in results(out).items()
    }


def logged(out: Path, event: str) -> Counter[str]:
    lines = (out / "sweep.log").read_text().splitlines()
    return Counter(line.split()[2] for line in lines if line.split()[1:2] == [event])


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def until(condition: Callable[[], object], looks: int = 3000) -> None:
    for _ in range(looks):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("waited in vain")


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return " (" in (stat := Path(f"/proc/{pid}/stat").read_text()) and stat.rsplit(")", 1)[1].split()[0] != "Z"
    return False


@pytest.mark.long
def test_a_sweep_on_a_dask_cluster_gives_the_same_numbers(undisturbed: Path, tmp_path: Path) -> None:
    cluster = started(CLUSTER)
    assert cluster.stdout is not None
    address = cluster.stdout.readline().strip()
    try:
        ended(sweeping(SWEEP, tmp_path / "out", "--executor", "dask", "--scheduler", address), 0)
    finally:
        cluster.communicate("\n", timeout=30)
    assert numbers(tmp_path / "out") == numbers(undisturbed)
    assert len(results(undisturbed)) == 12
    assert all(len(result.seeds) == 2 for result in results(undisturbed).values())


@pytest.mark.slow
def test_a_scheduler_that_cannot_be_reached_is_given_up(tmp_path: Path) -> None:
    process = sweeping(MOODS, tmp_path / "out", "--executor", "dask", "--scheduler", "tcp://127.0.0.1:1")
    said = ended(process, 1)
    assert said.startswith("dpbench: No Dask scheduler answers at tcp://127.0.0.1:1. Start one with `dask scheduler`")
    assert said.count("\n") == 1


@LINUX
@pytest.mark.long
def test_nothing_is_lost_or_done_twice_when_parent_and_worker_are_killed(undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    parent = sweeping(SWEEP, out, "--workers", 2)
    until(lambda: len(list(out.glob("*.json"))) >= 2)
    workers = children(parent.pid)
    assert len(workers) == 2
    parent.kill()
    parent.communicate()
    until(lambda: not any(map(alive, workers)), 5)
    before = set(results(out))  # each reads well
    assert 2 <= len(before) < 12

    parent = sweeping(SWEEP, out, "--workers", 2)
    until(lambda: len(list(out.glob("*.json"))) >= len(before) + 2)
    os.kill(children(parent.pid)[0], signal.SIGKILL)
    said = ended(parent, 0)
    assert f"{12 - len(before)} cells run, {len(before)} done before, 0 failed" in said
    assert max(logged(out, "done").values()) == 1
    assert sum(logged(out, "killed").values()) == 1
    assert numbers(out) == numbers(undisturbed)


@LINUX
@pytest.mark.long
def test_ctrl_c_ends_all_workers_and_keeps_what_is_finished(tmp_path: Path) -> None:
    out = tmp_path / "out"
    parent = sweeping(SWEEP, out, "--workers", 1)
    until(lambda: list(out.glob("*.json")))
    workers = children(parent.pid)
    parent.send_signal(signal.SIGINT)
    assert "dpbench: Interrupted. Finished cells are kept" in ended(parent, 130)
    assert not any(map(alive, workers))
    assert results(out)


@pytest.mark.long
def test_a_cell_that_fails_or_kills_is_on_record_and_run_again_only_when_asked(
    tmp_path: Path, cheer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    file = written(MOODS, out)

    def commanded(code: int, *, retry_failed: bool = False, dry_run: bool = False) -> str:
        left = contextlib.nullcontext() if code == 0 else pytest.raises(typer.Exit)
        with left:
            command.sweep(file, out, workers=1, threads=1, device="cpu", retry_failed=retry_failed, dry_run=dry_run)
        return capsys.readouterr().out

    said = commanded(1)
    assert "Failed: learner.mood=deadly: 2 worker processes died running it" in said
    assert "Failed: learner.mood=sulking: fit of 'moody' (plugin 'moody', moody-wheel 1.0) failed" in said
    assert "moods: 1 cells run, 0 done before, 2 failed; --retry-failed runs them again" in said
    assert "what a plugin prints" in (out / "sweep.log").read_text()
    assert sum(logged(out, "killed").values()) == 2

    assert "moods: 0 cells run, 1 done before, 2 failed" in commanded(1)
    assert "3 cells: 1 done, 2 failed, 0 to do" in commanded(0, dry_run=True)

    cheer.touch()
    assert "moods: 2 cells run, 1 done before, 0 failed" in commanded(0, retry_failed=True)
    assert len(results(out)) == 3
    assert not list((out / "failed").iterdir())


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Callable[[str], None]]:
    """Mount a disk of that size; yield what gives it another."""
    folder.mkdir()

    def mount(options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        subprocess.run(command, check=True, capture_output=True)

    try:
        mount(f"size={size}")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a small disk cannot be mounted here")
    try:
        yield lambda other: mount(f"remount,size={other}")
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.long
def test_a_full_disk_is_one_sentence_and_the_rest_follows(undisturbed: Path, tmp_path: Path) -> None:
    some = tomllib.loads(SWEEP.replace('"pillar:steps=30", ', ""))
    resources = SweepResources(workers=1, threads=1, device="cpu")
    with small_disk(tmp_path / "disk", "40k") as resized:
        out = tmp_path / "disk" / "out"
        with pytest.raises(OutputError, match=r"Cannot write .*No space left on device"):
            sweep(some, out, resources=resources)
        before = results(out)
        assert 0 < len(before) < 6
        resized("10m")
        summary = sweep(some, out, resources=resources)
        assert (summary.ran, summary.skipped) == (6 - len(before), len(before))
        expected = numbers(undisturbed)
        assert numbers(out) == {name: expected[name] for name in results(out)}
