"""What jobs of Slurm ask for, and how a command line says it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpbench.errors import SpecError
from dpbench.support.messages import unknown

SEVERAL = ("job_extra_directives", "job_script_prologue")  # keys that may be given more than once
SIZE = re.compile(r"\d+(\.\d+)? ?[kKMGT](i?B)?")


@dataclass(frozen=True)
class Slurm:
    """What each job asks for, by the names of `dask_jobqueue.SLURMCluster`; its cores are its worker's threads."""

    queue: str | None = None  # a partition; none: the cluster's own default
    account: str | None = None
    walltime: str = "01:00:00"  # a job that is ended by it is submitted again while cells are left
    memory: str = "8GB"
    interface: str | None = None  # a network by which jobs reach this machine, such as ib0; none: that of its name
    job_extra_directives: tuple[str, ...] = ()  # of #SBATCH, such as --gres=gpu:1
    job_script_prologue: tuple[str, ...] = ()  # shell commands before the worker's, such as module load cuda

    def __post_init__(self) -> None:
        """Refuse what Slurm could not read; it says itself what it does not have."""
        if not SIZE.fullmatch(self.memory):
            raise SpecError(f"Expected memory={self.memory} of --slurm to be a size, such as 8GB or 500MB.")


def slurm_settings(settings: Sequence[str]) -> Slurm:
    """Return what KEY=VALUE settings say.

    Raises:
        SpecError: a key that there is not, or one without value, or twice.
    """
    keys = [field.name for field in dataclasses.fields(Slurm)]
    given: dict[str, Any] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in keys:
            raise SpecError(f"{unknown('key', key, keys, '--slurm')} A job's cores are its worker's --threads.")
        if not value.strip():
            raise SpecError(f"Expected a value for {key!r} of --slurm, as in --slurm {key}=VALUE, got none.")
        if key in given and key not in SEVERAL:
            raise SpecError(f"Expected {key!r} of --slurm once, got {given[key]!r} and {value!r}.")
        given[key] = (*given.get(key, ()), value) if key in SEVERAL else value
    return Slurm(**given)
