"""Choose the executor for the cells of a sweep, and the numbers of workers, threads and GPUs."""

from __future__ import annotations

import os
import signal

import torch

from dpbench.errors import SpecError
from dpbench.support.device import find_device
from dpbench.sweep.cell_files import SweepFolder
from dpbench.sweep.executor import SweepExecutor
from dpbench.sweep.local import LocalPool
from dpbench.sweep.resources import SlurmOptions, SweepResources


def make_sweep_executor(resources: SweepResources, folder: SweepFolder) -> SweepExecutor:
    """Create the executor for these resources.

    Raises:
        SpecError: the device cannot be used, a package that the executor needs is not installed, or this machine
            cannot submit Slurm jobs.
        DpbenchError: no Dask scheduler answers.
    """
    if resources.executor == "slurm":
        return _make_slurm_executor(resources, folder)
    gpus = _list_visible_gpus(resources.device)
    device = resources.device.partition(":")[0] if gpus else resources.device  # each worker sees only one
    workers, threads = _choose_workers_and_threads(resources, len(gpus))
    if resources.executor == "local" or resources.scheduler is None:
        return LocalPool(workers, threads, device, gpus, folder)
    try:
        from dpbench.sweep.dask_cluster import DaskCluster
    except ImportError as error:
        raise SpecError(f"Dask is not installed ({error}). Install it: pip install 'dpbench-vision[dask]'.") from error
    return DaskCluster(resources.scheduler, threads, device)


def _make_slurm_executor(resources: SweepResources, folder: SweepFolder) -> SweepExecutor:
    ctrl_c = signal.getsignal(signal.SIGINT)
    try:
        from dpbench.sweep.slurm import SlurmJobs
    except ImportError as error:
        raise SpecError(
            f"dask-jobqueue is not installed ({error}). Install it: pip install 'dpbench-vision[slurm]'."
        ) from error
    finally:
        if signal.getsignal(signal.SIGINT) is not ctrl_c:  # dask-jobqueue 0.9 makes it call sys.exit on import
            signal.signal(signal.SIGINT, ctrl_c)
    try:
        torch.device("cpu" if resources.device == "auto" else resources.device)
    except RuntimeError as error:
        raise SpecError(f"Expected --device {resources.device} to be one of auto, cpu, cuda, cuda:1 ...") from error
    return SlurmJobs(
        resources.workers or 1, resources.threads or 1, resources.device, resources.slurm or SlurmOptions(), folder
    )


def _choose_workers_and_threads(resources: SweepResources, gpus: int) -> tuple[int, int]:
    """Return the number of workers (one per GPU, or enough to use all cores), and the threads per worker."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = resources.workers or gpus or max(1, cores // (resources.threads or 1))
    return workers, resources.threads or max(1, cores // workers)


def _list_visible_gpus(device: str) -> tuple[str, ...]:
    """Return the GPUs to share among workers, named as in CUDA_VISIBLE_DEVICES; empty for cells on the CPU."""
    if find_device(device).type != "cuda":
        return ()
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    names = visible or [str(index) for index in range(torch.cuda.device_count())]
    _, colon, index = device.partition(":")
    return (names[int(index)],) if colon else tuple(names)
