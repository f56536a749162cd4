"""The command of each study."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dpbench_lab.advise.command import advise
from dpbench_lab.claims.command import claims
from dpbench_lab.explain.command import explain
from dpbench_lab.figures.command import plot
from dpbench_lab.inspect.command import inspect
from dpbench_lab.museum.command import museum
from dpbench_lab.reproduce.command import reproduce

COMMANDS: Mapping[str, Callable[..., None]] = {
    "advise": advise, "inspect": inspect, "explain": explain, "reproduce": reproduce, "claims": claims,
    "museum": museum, "plot": plot,
}  # fmt: skip
