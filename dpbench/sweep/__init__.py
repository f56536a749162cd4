"""Sweeps: many runs that one file describes, on local processes, Dask or Slurm; stopped and resumed without loss."""

from dpbench.sweep.conduct import Overview, Summary, overview, sweep
from dpbench.sweep.grid import Cell, Grid, read_grid
from dpbench.sweep.resources import Resources, Slurm, slurm_options

__all__ = [
    "Cell",
    "Grid",
    "Overview",
    "Resources",
    "Slurm",
    "Summary",
    "overview",
    "read_grid",
    "slurm_options",
    "sweep",
]
