"""Many runs: a file of cells, run by processes here or on a Dask cluster, stopped and resumed without loss."""

from dpbench.sweep.conduct import Summary, Survey, survey, sweep
from dpbench.sweep.grid import Cell, Grid, read_grid
from dpbench.sweep.jobs import Slurm, slurm_settings
from dpbench.sweep.using import Using

__all__ = ["Cell", "Grid", "Slurm", "Summary", "Survey", "Using", "read_grid", "slurm_settings", "survey", "sweep"]
