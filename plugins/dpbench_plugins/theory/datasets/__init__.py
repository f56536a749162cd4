"""Distributions from theorems, as datasets of features: the target is known, and test examples are fresh draws."""

from __future__ import annotations

from collections.abc import Sequence

from dpbench import Dataset, hookimpl
from dpbench_plugins.theory.datasets.graphs import Disjunction, WeightedBlocks
from dpbench_plugins.theory.datasets.halfspaces import GaussianMixture, LowRankHalfspace
from dpbench_plugins.theory.datasets.plane import HalfPlane, Rectangles, Thresholds
from dpbench_plugins.theory.datasets.shifted import DummyThresholds, IncompatibleDisjunction, ShiftedLowRank

__all__ = ["dpbench_datasets"]


@hookimpl
def dpbench_datasets() -> Sequence[type[Dataset]]:
    """Register the datasets of this package."""
    return [
        GaussianMixture, LowRankHalfspace, ShiftedLowRank, Thresholds, DummyThresholds, HalfPlane, Rectangles,
        Disjunction, IncompatibleDisjunction, WeightedBlocks,
    ]  # fmt: skip
