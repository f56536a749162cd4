"""The command of each study."""

from __future__ import annotations

from dpbench.cli.program import Panel
from dpbench_lab.advise.command import advise
from dpbench_lab.claims.command import claims
from dpbench_lab.explain.command import explain
from dpbench_lab.figures.command import plot
from dpbench_lab.inspect.command import inspect
from dpbench_lab.museum.command import museum
from dpbench_lab.reproduce.command import reproduce

STUDIES: Panel = {
    "advise": (advise, "Predict what each learner will score on your images."),
    "inspect": (inspect, "Show whether a few dimensions of features are enough."),
    "explain": (explain, "Measure what noise, clipping and projection cost."),
    "reproduce": (reproduce, "Reproduce a paper's table or figure and judge it."),
    "claims": (claims, "Recompute the ε of published claims."),
    "museum": (museum, "Show accidents of privacy and what catches each."),
    "plot": (plot, ""),  # goes in version 0.4
}
