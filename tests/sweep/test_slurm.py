"""Sweeps through jobs of Slurm: commands that stand in for it start the job script that dask-jobqueue writes."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dpbench.errors import SpecError
from dpbench.sweep.conduct import sweep
from dpbench.sweep.resources import SlurmOptions, SweepResources, parse_slurm_options
from tests.helpers.commands import Refusal
from tests.sweep.test_processes import COMMAND, LINUX, alive, ended, numbers, results, started, until, written

SBATCH = """#!{python}
import os, pathlib, shutil, subprocess, sys
jobs, mood = pathlib.Path({jobs!r}), os.environ.get("SLURM_MOOD", "well")
if mood == "refusing":
    sys.exit("sbatch: error: invalid partition specified: fast")
job = os.getpid()
if mood != "queueing":
    bare = {{key: os.environ[key] for key in ("PATH", "HOME", "LD_LIBRARY_PATH") if key in os.environ}}
    script = shutil.copy(sys.argv[1], jobs / f"{{job}}.copy")
    with (jobs / f"{{job}}.log").open("w") as log:
        running = subprocess.Popen(["sh", script], env=bare, stdout=log, stderr=log, start_new_session=True)
    job = running.pid
shutil.copy(sys.argv[1], jobs / f"{{job}}.sh")
print("Submitted batch job", job)
"""
SCANCEL = """#!{python}
import os, pathlib, signal, sys
(pathlib.Path({jobs!r}) / f"{{sys.argv[1]}}.cancelled").touch()
try:
    os.killpg(int(sys.argv[1]), signal.SIGKILL)
except ProcessLookupError:
    sys.exit("scancel: error: Invalid job id specified")
"""
SWEEP = """
name = "slurm"
fixed = {dataset = "digits", learner = "pillar:steps=20"}
[grid]
"learner.k" = [5, 10, 20]
"""
FLAGS = ("--executor", "slurm", "--workers", 2, "--threads", 1, "--device", "cpu", "--slurm", "interface=lo")


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, surroundings: None) -> Iterator[Path]:
    """A folder of all job scripts that were submitted, and of marks for those that were cancelled."""
    bin_, folder = tmp_path / "bin", tmp_path / "jobs"
    bin_.mkdir()
    folder.mkdir()
    for name, script in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (bin_ / name).write_text(script.format(python=sys.executable, jobs=str(folder)))
        (bin_ / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(bin_), prepend=":")
    monkeypatch.setenv("DPBENCH_PLUGINS", "sklearn,pixels,pillar")
    yield folder
    for file in folder.glob("*.sh"):
        assert not alive(int(file.stem)), "a job outlived its sweep"


def flags(*more: object) -> list[object]:
    """Return the usual flags but those that `more` gives, and `more`: each flag stands once, but for --slurm."""
    usual = zip(FLAGS[::2], FLAGS[1::2], strict=True)
    return [word for flag in usual if flag[0] not in more or flag[0] == "--slurm" for word in flag] + [*more]


def sweeping(out: Path, *more: object) -> subprocess.Popen[str]:
    return started(COMMAND, "sweep", written(SWEEP, out), "--out", out, *flags(*more))


def cancelled(jobs: Path) -> bool:
    names = {script.stem for script in jobs.glob("*.sh")}
    return bool(names) and names == {mark.stem for mark in jobs.glob("*.cancelled")}


@LINUX
def test_a_sweep_on_slurm_jobs_gives_the_numbers_of_this_machine(tmp_path: Path, jobs: Path) -> None:
    said = ended(sweeping(tmp_path / "out"), 0)
    assert "slurm: 3 cells run, 0 done before, 0 failed" in said
    assert len(list(jobs.glob("*.sh"))) == 2
    assert cancelled(jobs)
    sweep(tmp_path / "out.toml", tmp_path / "here", resources=SweepResources(workers=1, threads=1, device="cpu"))
    assert numbers(tmp_path / "out") == numbers(tmp_path / "here")
    assert len(results(tmp_path / "here")) == 3


@LINUX
def test_a_job_script_asks_for_what_was_said_and_starts_one_worker(
    tmp_path: Path, jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("queue=long", "account=us", "walltime=02:00:00", "memory=3GB", "job_extra_directives=--gres=gpu:1")
    more = [word for pair in (*asked, "job_script_prologue=module() { :; }") for word in ("--slurm", pair)]
    monkeypatch.setenv("SLURM_MOOD", "queueing")
    process = sweeping(tmp_path / "out", *more, "--threads", 2)
    until(lambda: len(list(jobs.glob("*.sh"))) == 2)
    process.send_signal(signal.SIGINT)
    ended(process, 130)
    script = next(jobs.glob("*.sh")).read_text()
    directives = re.findall(r"^#SBATCH (.*)$", script, re.MULTILINE)
    assert directives == [
        "-J dpbench", "-p long", "-A us", "-n 1", "--cpus-per-task=2", "--mem=3G", "-t 02:00:00",
        f'--output="{tmp_path}/out/slurm-%j.log"', "--gres=gpu:1",
    ]  # fmt: skip
    assert "export OMP_NUM_THREADS=2\n" in script
    assert "export DPBENCH_CACHE=" in script
    assert "module() { :; }\n" in script
    worker = script.splitlines()[-1]
    assert worker.startswith(f"{sys.executable} -m distributed.cli.dask_worker tcp://127.0.0.1:")
    assert "--nthreads 1 " in worker


@LINUX
def test_jobs_that_wait_are_said_and_cancelled_by_ctrl_c(
    tmp_path: Path, jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_MOOD", "queueing")
    log = tmp_path / "out" / "sweep.log"
    process = sweeping(tmp_path / "out")
    until(lambda: log.exists() and "waiting " in log.read_text())
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    said = ended(process, 130)
    assert re.search(r"No worker for [\d.]+ s: the Slurm jobs \d+, \d+ are waiting in the queue", said)
    assert cancelled(jobs)


@LINUX
def test_ctrl_c_amid_cells_ends_the_jobs_and_keeps_what_is_finished(tmp_path: Path, jobs: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    file = tmp_path / "long.toml"
    file.write_text(SWEEP.replace("5, 10, 20]", '5, 10]\n"learner.steps" = [10, 2000000]').replace(":steps=20", ""))
    process = started(COMMAND, "sweep", file, "--out", out, *FLAGS)
    until(lambda: results(out))
    process.send_signal(signal.SIGINT)
    assert "dpbench: Interrupted. Finished cells are kept" in ended(process, 130)
    assert cancelled(jobs)
    assert results(out)


@LINUX
def test_a_job_that_ends_is_submitted_again(tmp_path: Path, jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT", "1s")
    out = tmp_path / "out"
    out.mkdir()
    file = tmp_path / "long.toml"
    file.write_text(SWEEP.replace(":steps=20", ":steps=500"))
    process = started(COMMAND, "sweep", file, "--out", out, *flags("--workers", 1))
    until(lambda: results(out))
    (first,) = jobs.glob("*.sh")
    subprocess.run([shutil.which("scancel") or "", first.stem], check=True)
    assert "slurm: 3 cells run" in ended(process, 0)
    assert len(list(jobs.glob("*.sh"))) == 2
    assert cancelled(jobs)


def test_an_sbatch_that_fails_is_one_sentence(tmp_path: Path, jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_MOOD", "refusing")
    said = ended(sweeping(tmp_path / "out"), 1)
    assert said.startswith("dpbench: Slurm refused a job: sbatch: error: invalid partition specified: fast Finished")
    assert said.count("\n") == 1


def test_without_slurm_a_sweep_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DPBENCH_PLUGINS", "sklearn,pixels,pillar")
    with pytest.raises(SpecError, match="No sbatch on the PATH of this machine"):
        sweep(written(SWEEP, tmp_path / "out"), tmp_path / "out", resources=SweepResources("slurm", workers=1))


def test_without_dask_jobqueue_the_extra_is_named(tmp_path: Path, jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask_jobqueue.slurm", None)
    monkeypatch.delitem(sys.modules, "dpbench.sweep.slurm", raising=False)
    with pytest.raises(SpecError, match=re.escape("pip install 'dpbench-vision[slurm]'")):
        sweep(written(SWEEP, tmp_path / "out"), tmp_path / "out", resources=SweepResources("slurm", workers=1))


def test_a_device_that_no_machine_has_is_refused_before_jobs_are_submitted(tmp_path: Path, jobs: Path) -> None:
    with pytest.raises(SpecError, match="Expected --device gpu to be one of auto, cpu, cuda"):
        sweep(
            written(SWEEP, tmp_path / "out"),
            tmp_path / "out",
            resources=SweepResources("slurm", workers=1, device="gpu"),
        )
    assert not list(jobs.iterdir())


def test_slurm_options_are_typed_and_may_repeat_where_that_makes_sense() -> None:
    given = parse_slurm_options(["queue=long", "job_extra_directives=--gres=gpu:1", "job_extra_directives=--nice"])
    assert given == SlurmOptions(queue="long", job_extra_directives=("--gres=gpu:1", "--nice"))


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (lambda: parse_slurm_options(["queu=long"]),
         "Unknown key 'queu' of --slurm. Did you mean 'queue'? Available: account, interface, "),
        (lambda: parse_slurm_options(["cores=4"]), "A job's cores are its worker's --threads"),
        (lambda: parse_slurm_options(["queue"]), "Expected a value for 'queue' of --slurm, as in --slurm queue=VALUE"),
        (lambda: parse_slurm_options(["queue=a", "queue=b"]), "Expected 'queue' of --slurm once, got 'a' and 'b'"),
        (lambda: parse_slurm_options(["memory=much"]), "Expected memory=much of --slurm to be a size, like 8GB"),
        (lambda: SweepResources("slurm"), "Expected --workers with --executor slurm"),
        (lambda: SweepResources("local", slurm=SlurmOptions()), "Expected --slurm only with --executor slurm"),
    ],
)  # fmt: skip
def test_what_slurm_does_not_have_or_go_with_is_refused(
    refused: Callable[[], object], said: str, refusal: Refusal
) -> None:
    assert said in refusal(refused, SpecError)
