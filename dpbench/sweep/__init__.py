"""Sweeps: many runs that one file describes, on local processes, Dask or Slurm; stopped and resumed without loss."""

from dpbench.sweep.conduct import Overview, Summary, overview, sweep
from dpbench.sweep.grid import Cell, SweepGrid, read_grid
from dpbench.sweep.resources import Resources, Slurm, slurm_options

__all__ = [
    "Cell",
    "Overview",
    "Resources",
    "Slurm",
    "Summary",
    "SweepGrid",
    "overview",
    "read_grid",
    "slurm_options",
    "sweep",
]
