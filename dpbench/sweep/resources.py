"""The resources of a sweep: processes of this machine, a Dask cluster or Slurm jobs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from dpbench.errors import SpecError
from dpbench.support.messages import format_unknown_name_message

ExecutorName = Literal["local", "dask", "slurm"]
MAX_THREADS = 1_024  # of far more, libraries end the process without a word
REPEATABLE_KEYS = ("job_extra_directives", "job_script_prologue")  # keys of --slurm that may be given more than once
MEMORY_SIZE = re.compile(r"\d+(\.\d+)? ?[kKMGT](i?B)?")


@dataclass(frozen=True)
class SlurmOptions:
    """The resources of each Slurm job, named as in `dask_jobqueue.SLURMCluster`; a worker has one thread per core."""

    queue: str | None = None  # a partition; None: the cluster's default
    account: str | None = None
    walltime: str = "01:00:00"  # a job that reaches it is submitted again while cells are left
    memory: str = "8GB"
    interface: str | None = None  # the network on which jobs reach this machine, like ib0; None: that of its hostname
    job_extra_directives: tuple[str, ...] = ()  # for #SBATCH, like --gres=gpu:1
    job_script_prologue: tuple[str, ...] = ()  # shell commands that run before the worker, like module load cuda

    def __post_init__(self) -> None:
        """Check that Slurm can parse the memory size; Slurm itself reports other invalid values."""
        if not MEMORY_SIZE.fullmatch(self.memory):
            raise SpecError(f"Expected memory={self.memory} of --slurm to be a size, like 8GB or 500MB.")


@dataclass(frozen=True)
class SweepResources:
    """The resources of a sweep.

    They do not affect noisy answers, but the number of threads may change how the output of a public map is rounded.
    """

    executor: ExecutorName = "local"
    scheduler: str | None = None  # address of a Dask scheduler; None: processes of this machine, as with "local"
    workers: int | None = None  # None: one per GPU, or as many as keep workers x threads = cores
    threads: int | None = None  # per worker; None: 1, or all cores for a single worker on this machine
    device: str = "auto"
    slurm: SlurmOptions | None = None  # what each job requests; None: the defaults of `SlurmOptions`

    def __post_init__(self) -> None:
        """Check that the executor is known, options are compatible, and counts are in range."""
        if self.executor not in get_args(ExecutorName):
            raise SpecError(f"Expected --executor {self.executor} to be one of {', '.join(get_args(ExecutorName))}.")
        if self.scheduler is not None and (self.executor != "dask" or self.workers is not None):
            raise SpecError(
                "Expected --scheduler with --executor dask and without --workers: a scheduler has its own workers."
            )
        if self.executor == "slurm" and self.workers is None:
            raise SpecError("Expected --workers with --executor slurm: the number of jobs, each with one worker.")
        if self.executor != "slurm" and self.slurm is not None:
            raise SpecError(f"Expected --slurm only with --executor slurm, got it with --executor {self.executor}.")
        for name, value in (("workers", self.workers), ("threads", self.threads)):
            if value is not None and value < 1:
                raise SpecError(f"Expected {name}={value} to be at least 1.")
        if self.threads is not None and self.threads > MAX_THREADS:
            raise SpecError(f"Expected threads={self.threads} to be at most {MAX_THREADS:,}.")

    @property
    def local_device(self) -> str:
        """The device on which this machine prepares data; Slurm jobs may use another device."""
        return "auto" if self.executor == "slurm" else self.device


def parse_slurm_options(texts: Sequence[str]) -> SlurmOptions:
    """Parse the KEY=VALUE texts of --slurm.

    Raises:
        SpecError: a key is unknown, has no value, or is repeated although it may be given only once.
    """
    keys = [field.name for field in dataclasses.fields(SlurmOptions)]
    given: dict[str, Any] = {}
    for text in texts:
        key, _, value = text.partition("=")
        if key not in keys:
            raise SpecError(
                f"{format_unknown_name_message('key', key, keys, '--slurm')} A job's cores are its worker's --threads."
            )
        if not value.strip():
            raise SpecError(f"Expected a value for {key!r} of --slurm, as in --slurm {key}=VALUE, got none.")
        if key in given and key not in REPEATABLE_KEYS:
            raise SpecError(f"Expected {key!r} of --slurm once, got {given[key]!r} and {value!r}.")
        given[key] = (*given.get(key, ()), value) if key in REPEATABLE_KEYS else value
    return SlurmOptions(**given)
