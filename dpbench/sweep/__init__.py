"""Sweeps: many runs that one file describes, on local processes, Dask or Slurm; stopped and resumed without loss."""
