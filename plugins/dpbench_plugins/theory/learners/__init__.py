"""Learners from theorems: PILLAR's, Alon et al.'s, Hu et al.'s, and PATE."""

from __future__ import annotations

from collections.abc import Sequence

from dpbench import Learner, hookimpl
from dpbench_plugins.theory.learners.graph import ComponentGraph, LiteralCounts
from dpbench_plugins.theory.learners.pate import Pate
from dpbench_plugins.theory.learners.pillar_theory import PillarTheory, RandomProjectionTheory
from dpbench_plugins.theory.learners.sspp import LabelledSemiPrivateLearner, SemiPrivateLearner

__all__ = ["dpbench_learners"]


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this package."""
    return [
        PillarTheory,
        RandomProjectionTheory,
        SemiPrivateLearner,
        LabelledSemiPrivateLearner,
        ComponentGraph,
        LiteralCounts,
        Pate,
    ]
