"""Several learners, datasets, extractors or budgets at once: the sweep that they make."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpbench.records.protocol import Component
from dpbench.registry import Registry

AXES = ("dataset", "extractor", "train_fraction", "learner", "epsilon")
"""What may have several values, in the order in which cells run: what shares features and rows stands together."""


def definition(values: Mapping[str, Any], several: Mapping[str, Sequence[Any]], plugins: Registry) -> dict[str, Any]:
    """Return the sweep over some axes; of several learners one that is the ceiling runs once, without privacy."""
    fixed = {name: value for name, value in values.items() if name not in several}
    learners = list(several.get("learner", ()))
    ceilings = [one for one in learners if plugins.find("learner", _name(one)).cls.reference]
    if not ceilings:
        return {"name": "run", "fixed": fixed, "grid": dict(several)}
    shared = {name: values for name, values in several.items() if name not in {"learner", "epsilon"}}
    epsilons = list(several.get("epsilon", [fixed.pop("epsilon", 1.0)]))
    others = [one for one in learners if one not in ceilings]
    grids = [{"learner": others, "epsilon": epsilons}] * bool(others) + [{"learner": ceilings, "epsilon": [math.inf]}]
    return {"name": "run", "fixed": fixed, "grid": shared, "grids": grids}


def _name(learner: str | Mapping[str, Any] | Component) -> str:
    if isinstance(learner, str):
        return learner.partition(":")[0]
    return learner.name if isinstance(learner, Component) else str(learner.get("name"))
