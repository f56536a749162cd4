"""Distributions from theorems, as datasets of features: the target is known, and test examples are fresh draws."""

from __future__ import annotations

from collections.abc import Sequence

from dpbench import Dataset, hookimpl
from dpbench_plugins.theory.datasets.graphs import Blocks, Disjunction
from dpbench_plugins.theory.datasets.halfspaces import GaussianMixture, LowRank
from dpbench_plugins.theory.datasets.plane import HalfPlane, Rectangles, Thresholds
from dpbench_plugins.theory.datasets.shifted import Dummies, Incompatible, ShiftedLowRank

__all__ = ["dpbench_datasets"]


@hookimpl
def dpbench_datasets() -> Sequence[type[Dataset]]:
    """Register the datasets of this package."""
    return [
        GaussianMixture, LowRank, ShiftedLowRank, Thresholds, Dummies, HalfPlane, Rectangles, Disjunction, Incompatible,
        Blocks,
    ]  # fmt: skip
