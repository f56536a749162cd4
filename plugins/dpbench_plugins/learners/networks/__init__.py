"""Private training of networks, whole or in part: per-example gradients, phases, optimisers, and the learners."""

from __future__ import annotations

from collections.abc import Sequence

from dpbench import Learner, hookimpl
from dpbench_plugins.learners.networks.finetune import DPFineTune, PublicFineTune
from dpbench_plugins.learners.networks.randp import DPRandP
from dpbench_plugins.learners.networks.scratch import DPSGDNet, NetworkLearner
from dpbench_plugins.learners.networks.self_tail import SelfTail

__all__ = ["DPFineTune", "DPRandP", "DPSGDNet", "NetworkLearner", "PublicFineTune", "SelfTail", "dpbench_learners"]


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this package."""
    return [DPSGDNet, DPRandP, DPFineTune, PublicFineTune, SelfTail]
