"""What happens before the first cell: workers are counted, and data prepared that all of them share."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import torch

from dpbench.errors import DpbenchError, OutputError, SpecError
from dpbench.harness.shared import data_of
from dpbench.registry import Registry
from dpbench.support.device import device_named
from dpbench.sweep.executor import Executor
from dpbench.sweep.folder import Folder
from dpbench.sweep.grid import Cell
from dpbench.sweep.jobs import Slurm
from dpbench.sweep.local import LocalPool
from dpbench.sweep.memory import Memory
from dpbench.sweep.using import Using


def executor(using: Using, folder: Folder) -> Executor:
    """Return what runs the cells.

    Raises:
        SpecError: a device that cannot be used, or what the executor needs is not installed.
    """
    if using.executor == "slurm":
        return _slurm(using, folder)
    gpus = _gpus(using.device)
    device = using.device.partition(":")[0] if gpus else using.device  # a worker sees one GPU: its first
    workers, threads = _counts(using, len(gpus))
    if using.executor == "local":
        return LocalPool(workers, threads, device, gpus, folder)
    try:
        from dpbench.sweep.cluster import DaskCluster
    except ImportError as error:
        raise SpecError(f"Dask is not installed ({error}). Install it: pip install 'dpbench-vision[dask]'.") from error
    return DaskCluster(using.scheduler, workers, threads, device, gpus, folder.log_file)


def _slurm(using: Using, folder: Folder) -> Executor:
    ctrl_c = signal.getsignal(signal.SIGINT)
    try:
        from dpbench.sweep.slurm import SlurmJobs
    except ImportError as error:
        raise SpecError(
            f"dask-jobqueue is not installed ({error}). Install it: pip install 'dpbench-vision[slurm]'."
        ) from error
    finally:
        if signal.getsignal(signal.SIGINT) is not ctrl_c:  # dask-jobqueue 0.9 has it call sys.exit, once imported
            signal.signal(signal.SIGINT, ctrl_c)
    try:
        torch.device("cpu" if using.device == "auto" else using.device)
    except RuntimeError as error:
        raise SpecError(f"Device {using.device!r} is none of auto, cpu, cuda, cuda:1 ...") from error
    return SlurmJobs(using.workers or 1, using.threads or 1, using.device, using.slurm or Slurm(), folder)


def prepared(cells: Sequence[Cell], folder: Folder, device: str, plugins: Registry) -> list[Cell]:
    """Extract features and compare images, once for all workers; return the cells with those of one data together.

    Raises:
        OutputError: the cache folder cannot be written.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(data_of(cell.spec), []).append(cell)
    for group in groups.values():
        for cell in {cell.spec.delta: cell for cell in group}.values():  # one may be too large for this data
            try:
                Memory(plugins).prepare(cell.spec, device)
                break
            except OutputError:
                raise
            except DpbenchError as error:
                folder.log(f"prepare  {error}  ({cell})")  # a worker will say so too, cell by cell
    return [cell for group in groups.values() for cell in group]


def _counts(using: Using, gpus: int) -> tuple[int, int]:
    """Return workers and threads of each: together they fill the cores, or there is one worker a GPU."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = using.workers or gpus or max(1, cores // (using.threads or 1))
    return workers, using.threads or max(1, cores // workers)


def _gpus(device: str) -> tuple[str, ...]:
    """Return the GPUs that workers share out, as CUDA_VISIBLE_DEVICES names them; none where cells need none."""
    if device_named(device).type != "cuda":
        return ()
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    names = visible or [str(place) for place in range(torch.cuda.device_count())]
    _, colon, place = device.partition(":")
    return (names[int(place)],) if colon else tuple(names)
