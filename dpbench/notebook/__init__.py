"""dpbench in a notebook: run, compare and load results, use your own arrays, draw figures and load models."""

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
