"""Cells on jobs of Slurm, through dask-jobqueue: each job is one worker, which holds one cell at a time.

Jobs look for this machine's interpreter, the sweep's folder and the cache folder by the same paths: let these be on a
shared disk, and `DPBENCH_CACHE` name one there. A job whose worker was up and is gone, by its walltime or otherwise, is
submitted again while cells are left; a cell that ends two workers is taken for the cause. Jobs are cancelled when the
sweep ends, by Ctrl-C too; where it is killed, they end within a minute of not finding it, in the queue or out of it.

Not covered: Dask's scheduler asks for no password. Whoever reaches its port can run code as you, so let `interface`
name a network that you trust.
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
from dpbench.support.messages import duration
from dpbench.sweep.cluster import PATIENCE, SETTINGS, Remembering, connected, outcomes
from dpbench.sweep.executor import Outcome
from dpbench.sweep.folder import Folder
from dpbench.sweep.grid import Cell
from dpbench.sweep.jobs import Slurm
from dpbench.sweep.local import COUNTED

GIVEN_UP = 60  # seconds after which a worker that finds no scheduler ends


@dataclass
class Submitted:
    """What became of asking for jobs."""

    folder: Folder
    jobs: list[str] = field(default_factory=list)
    error: str = ""

    def note(self, job: str) -> None:
        """Note a job that Slurm has taken."""
        self.jobs.append(job)
        self.folder.log(f"job      {job} is submitted to Slurm")


class _Job(SLURMJob):
    def __init__(self, *place: Any, submitted: Submitted, **options: Any) -> None:
        super().__init__(*place, **options)  # type: ignore[no-untyped-call]
        self._submitted = submitted

    async def start(self) -> None:
        """Submit the job. What it fails of is kept: raised here, it would end in the log of an event loop."""
        try:
            await super().start()  # type: ignore[no-untyped-call]
            self._submitted.note(str(self.job_id))
        except (RuntimeError, ValueError, OSError) as error:
            said = str(error).rpartition("stderr:\n")[2] or str(error)  # as dask-jobqueue ends its report of a command
            self._submitted.error = " ".join(said.split()) or "no reason given."
            self.status = Status.running

    async def close(self) -> None:
        """Cancel the job."""
        await super().close()  # type: ignore[no-untyped-call]
        self.status = Status.closed


@dataclass
class SlurmJobs:
    """Jobs that are submitted when the cells are, and cancelled after the last one.

    Raises:
        SpecError: this machine cannot submit jobs.
    """

    jobs: int
    threads: int  # of each job's worker, which are its cores
    device: str  # as each job sees it
    slurm: Slurm
    folder: Folder
    workers: int = 0  # jobs whose worker is up

    def __post_init__(self) -> None:
        """Refuse a machine without Slurm, before anything is prepared."""
        if shutil.which("sbatch") is None:
            raise SpecError(
                "There is no sbatch on the PATH of this machine, so no job can be submitted. Run the sweep on a login "
                "node of a Slurm cluster, or choose --executor local or dask."
            )

    def run(self, cells: Sequence[Cell]) -> Generator[Outcome]:
        """Yield one outcome a cell, as soon as there is one; closing the iterator cancels all jobs.

        Raises:
            DpbenchError: Slurm refuses a job.
        """
        submitted = Submitted(self.folder)
        with ExitStack() as stack:
            cluster = stack.enter_context(self._started(submitted))
            client = stack.enter_context(connected(cluster))
            client.register_plugin(Remembering())
            cluster.scale(min(self.jobs, len(cells)))
            watch = _Watch(self, cluster, submitted, min(self.jobs, len(cells)))
            yield from outcomes(client, cells, self.device, self.threads, watch)

    def _started(self, submitted: Submitted) -> Any:
        log = self.folder.path.resolve() / "slurm-%j.log"
        job: Any = _Job
        try:
            with dask.config.set(SETTINGS):
                return SLURMCluster(
                    job_cls=job, submitted=submitted, cores=1, processes=1, job_cpu=self.threads,
                    queue=self.slurm.queue, account=self.slurm.account, walltime=self.slurm.walltime,
                    memory=self.slurm.memory.replace(" ", ""), interface=self.slurm.interface, job_name="dpbench",
                    job_extra_directives=[f'--output="{log}"', *self.slurm.job_extra_directives],
                    job_script_prologue=[*self._environment(), *self.slurm.job_script_prologue],
                    # Dask counts mapped features as memory, and would pause workers for it; Slurm keeps the limit.
                    worker_extra_args=["--memory-limit", "0", "--no-dashboard"], death_timeout=GIVEN_UP,
                    scheduler_options={"dashboard_address": ":0"}, silence_logs=logging.CRITICAL,
                )  # fmt: skip
        except (RuntimeError, ValueError, OSError) as error:
            raise DpbenchError(f"A Dask scheduler for Slurm's jobs could not be started here: {error}") from error

    def _environment(self) -> list[str]:
        """Return shell lines with what a worker needs to know, as some clusters do not pass on the environment."""
        own = {key: value for key, value in os.environ.items() if key.startswith("DPBENCH_") or key == "PYTHONPATH"}
        known = {**own, **dict.fromkeys(COUNTED, str(self.threads))}
        return [f"export {key}={shlex.quote(value)}" for key, value in sorted(known.items())]


class _Watch:
    """Looks after the jobs while cells are left."""

    def __init__(self, executor: SlurmJobs, cluster: Any, submitted: Submitted, jobs: int) -> None:
        self._executor, self._cluster, self._submitted, self._jobs = executor, cluster, submitted, jobs
        self._next_look = 0.0
        self._begin, self._pause = time.monotonic(), PATIENCE

    def __call__(self) -> None:
        """Count workers, submit jobs that ended again, and say so where no worker is up.

        Raises:
            DpbenchError: Slurm refuses a job.
        """
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + 1
        if self._submitted.error:
            raise DpbenchError(
                f"Slurm took no job: {self._submitted.error} What is finished is kept; with other --slurm settings, "
                "or fewer --workers, the same command goes on from there."
            )
        self._executor.workers = len(self._cluster.scheduler.workers)
        if len(self._cluster.workers) < self._jobs:
            self._cluster.scale(self._jobs)
        if self._executor.workers:
            self._begin, self._pause = now, PATIENCE
        elif now - self._begin > self._pause:
            self._say(now - self._begin)
            self._pause *= 2  # a queue may be days long

    def _say(self, seconds: float) -> None:
        folder, jobs = self._executor.folder, ", ".join(self._submitted.jobs[-self._jobs :])
        line = (
            f"No worker is up for {duration(seconds)}: Slurm's jobs {jobs} wait in its queue (squeue --me shows it), "
            f"or did not find {self._cluster.scheduler_address} ({folder.path}/slurm-*.log would tell). Ctrl-C cancels "
            "them."
        )
        folder.log(f"waiting  {line}")
        print(f"dpbench: {line}", file=sys.stderr, flush=True)
