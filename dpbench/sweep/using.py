"""What a sweep runs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dpbench.errors import SpecError
from dpbench.sweep.jobs import Slurm

ExecutorName = Literal["local", "dask", "slurm"]


@dataclass(frozen=True)
class Using:
    """What a sweep runs on: nothing here changes a number, but for threads, whose sums may round otherwise."""

    executor: ExecutorName = "local"
    scheduler: str | None = None  # of Dask; none: workers of this machine
    workers: int | None = None  # none: so many that workers x threads = cores; one a GPU where there are any
    threads: int | None = None  # of each worker; none: 1, or all cores where there is one worker of this machine
    device: str = "auto"
    slurm: Slurm | None = None  # what each job asks for; none: as `Slurm()` does

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        if self.executor not in get_args(ExecutorName):
            raise SpecError(f"Expected --executor {self.executor} to be one of {', '.join(get_args(ExecutorName))}.")
        if self.scheduler is not None and (self.executor != "dask" or self.workers is not None):
            raise SpecError(
                "A scheduler has workers of its own: expected --scheduler with --executor dask, no --workers."
            )
        if self.executor == "slurm" and self.workers is None:
            raise SpecError("Expected --workers with --executor slurm: how many jobs to submit, each with one worker.")
        if self.executor != "slurm" and self.slurm is not None:
            raise SpecError(f"Expected --slurm with --executor slurm only, got it with --executor {self.executor}.")
        for name, value in (("workers", self.workers), ("threads", self.threads)):
            if value is not None and value < 1:
                raise SpecError(f"Expected {name}={value} to be at least 1.")

    @property
    def device_here(self) -> str:
        """What this machine prepares data on: a job of Slurm may have another device."""
        return "auto" if self.executor == "slurm" else self.device
