"""Run cells on Slurm jobs, through dask-jobqueue; each job is a worker that runs one cell at a time.

Jobs use this machine's paths for the Python interpreter, the sweep's folder and the cache folder: keep all three on a
shared disk, with `DPBENCH_CACHE` set to a folder there. If a job's worker was up and is gone, because of its walltime
or for another reason, the job is submitted again while cells are left. If two workers die during the same cell, the
cell is taken to be the cause. Jobs are cancelled when the sweep ends, also by Ctrl-C. If the sweep is killed, a job
ends within a minute of its start, or of losing the sweep's scheduler.

Security: Dask's scheduler asks for no password. Anyone who reaches its port can run code as you, so set `interface` to
a network that you trust.
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import dask
from dask_jobqueue.slurm import SLURMCluster, SLURMJob
from distributed.core import Status

from dpbench.errors import DpbenchError, SpecError
from dpbench.support.messages import format_duration
from dpbench.sweep.cell_files import SweepFolder
from dpbench.sweep.dask_cluster import CONNECT_TIMEOUT, CellWorkerPlugin, connect_client, stream_outcomes
from dpbench.sweep.executor import MAX_TRIES, THREAD_VARIABLES, CellOutcome
from dpbench.sweep.grid import Cell
from dpbench.sweep.resources import SlurmOptions

DEATH_TIMEOUT = 60  # seconds after which a worker that finds no scheduler exits
DASK_CONFIG = {"distributed.scheduler.allowed-failures": MAX_TRIES - 1, "distributed.scheduler.worker-saturation": 1.0}


@dataclass
class SlurmSubmissions:
    """The jobs that Slurm accepted, or the error that it reported."""

    folder: SweepFolder
    jobs: list[str] = field(default_factory=list)
    error: str = ""

    def add_job(self, job: str) -> None:
        """Record a job that Slurm accepted."""
        self.jobs.append(job)
        self.folder.log(f"job      {job} is submitted to Slurm")


class _SlurmJob(SLURMJob):
    def __init__(self, *arguments: Any, submissions: SlurmSubmissions, **options: Any) -> None:
        super().__init__(*arguments, **options)  # type: ignore[no-untyped-call]
        self._submissions = submissions

    async def start(self) -> None:
        """Submit the job and store any error, because an error raised here would go to the log of an event loop."""
        try:
            await super().start()  # type: ignore[no-untyped-call]
            self._submissions.add_job(str(self.job_id))
        except (RuntimeError, ValueError, OSError) as error:
            said = str(error).rpartition("stderr:\n")[2] or str(error)  # how dask-jobqueue ends its report of a command
            self._submissions.error = " ".join(said.split()) or "no reason given."
            self.status = Status.running

    async def close(self) -> None:
        """Cancel the job."""
        await super().close()  # type: ignore[no-untyped-call]
        self.status = Status.closed


@dataclass
class SlurmJobs:
    """Runs cells on Slurm jobs, which are submitted together with the cells and cancelled after the last cell.

    Raises:
        SpecError: this machine cannot submit jobs.
    """

    jobs: int
    threads: int  # per worker: the job's cores
    device: str  # as seen from each job
    slurm: SlurmOptions
    folder: SweepFolder
    workers: int = 0  # jobs whose worker is up

    def __post_init__(self) -> None:
        """Check that this machine has Slurm before data is prepared."""
        if shutil.which("sbatch") is None:
            raise SpecError(
                "No sbatch on the PATH of this machine, so no job can be submitted. Run the sweep on a login "
                "node of a Slurm cluster, or choose --executor local or dask."
            )

    def run(self, cells: Sequence[Cell]) -> Generator[CellOutcome]:
        """Run cells and yield the outcome of each cell as it arrives; closing the iterator cancels all jobs.

        Raises:
            DpbenchError: Slurm refuses a job.
        """
        submissions = SlurmSubmissions(self.folder)
        with ExitStack() as stack:
            cluster = stack.enter_context(self._start_cluster(submissions))
            client = stack.enter_context(connect_client(cluster))
            client.register_plugin(CellWorkerPlugin())
            cluster.scale(min(self.jobs, len(cells)))
            watch = _SlurmJobMonitor(self, cluster, submissions, min(self.jobs, len(cells)))
            yield from stream_outcomes(client, cells, self.device, self.threads, watch)

    def _start_cluster(self, submissions: SlurmSubmissions) -> Any:
        log = self.folder.path.resolve() / "slurm-%j.log"
        job: Any = _SlurmJob
        try:
            with dask.config.set(DASK_CONFIG):
                return SLURMCluster(
                    job_cls=job, submissions=submissions, cores=1, processes=1, job_cpu=self.threads,
                    queue=self.slurm.queue, account=self.slurm.account, walltime=self.slurm.walltime,
                    memory=self.slurm.memory.replace(" ", ""), interface=self.slurm.interface, job_name="dpbench",
                    job_extra_directives=[f'--output="{log}"', *self.slurm.job_extra_directives],
                    job_script_prologue=[*self._environment_lines(), *self.slurm.job_script_prologue],
                    # Dask counts memory-mapped features and would pause workers for it; Slurm enforces the limit.
                    worker_extra_args=["--memory-limit", "0", "--no-dashboard"], death_timeout=DEATH_TIMEOUT,
                    scheduler_options={"dashboard_address": ":0"}, silence_logs=logging.CRITICAL,
                )  # fmt: skip
        except (RuntimeError, ValueError, OSError) as error:
            raise DpbenchError(f"The Dask scheduler for the Slurm jobs could not be started here: {error}") from error

    def _environment_lines(self) -> list[str]:
        """Return shell lines that set a worker's variables, because some clusters do not pass on the environment."""
        own = {key: value for key, value in os.environ.items() if key.startswith("DPBENCH_") or key == "PYTHONPATH"}
        known = {**own, **dict.fromkeys(THREAD_VARIABLES, str(self.threads))}
        return [f"export {key}={shlex.quote(value)}" for key, value in sorted(known.items())]


class _SlurmJobMonitor:
    """While cells are left, resubmits jobs that ended, and reports if no worker is up."""

    def __init__(self, executor: SlurmJobs, cluster: Any, submissions: SlurmSubmissions, jobs: int) -> None:
        self._executor, self._cluster, self._submissions, self._jobs = executor, cluster, submissions, jobs
        self._next_look = 0.0
        self._begin, self._pause = time.monotonic(), CONNECT_TIMEOUT

    def __call__(self) -> None:
        """Count workers, resubmit jobs that ended, and report if no worker is up.

        Raises:
            DpbenchError: Slurm refuses a job.
        """
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + 1
        if self._submissions.error:
            raise DpbenchError(
                f"Slurm refused a job: {self._submissions.error} Finished cells are kept; to continue, repeat the "
                "command with other --slurm options or fewer --workers."
            )
        self._executor.workers = len(self._cluster.scheduler.workers)
        if len(self._cluster.workers) < self._jobs:
            self._cluster.scale(self._jobs)
        if self._executor.workers:
            self._begin, self._pause = now, CONNECT_TIMEOUT
        elif now - self._begin > self._pause:
            self._report_waiting(now - self._begin)
            self._pause *= 2  # jobs may wait for days

    def _report_waiting(self, seconds: float) -> None:
        folder, jobs = self._executor.folder, ", ".join(self._submissions.jobs[-self._jobs :])
        line = (
            f"No worker for {format_duration(seconds)}: the Slurm jobs {jobs} are waiting in the queue (see squeue "
            f"--me), or cannot reach {self._cluster.scheduler_address} (see {folder.path}/slurm-*.log). "
            "Ctrl-C cancels them."
        )
        folder.log(f"waiting  {line}")
        print(f"dpbench: {line}", file=sys.stderr, flush=True)
