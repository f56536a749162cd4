"""dpbench for a person at a notebook: run, compare, load, own arrays, figures and models. No command line in it."""

from dpbench.models import Model
from dpbench.notebook.arrays import dataset
from dpbench.notebook.launch import check, figure, run
from dpbench.notebook.outcome import Comparison, Results, compare, load, load_model, results

__all__ = [
    "Comparison",
    "Model",
    "Results",
    "check",
    "compare",
    "dataset",
    "figure",
    "load",
    "load_model",
    "results",
    "run",
]
