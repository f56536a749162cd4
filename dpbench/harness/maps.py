"""Public maps of features, made once for all fits that leave them be."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

import torch

from dpbench.api import PublicData, Task
from dpbench.learning.linear import Transform
from dpbench.learning.probes import ProbeLearner
from dpbench.privacy.purity.reach import Snapshot

KEPT = 16  # maps: each a few arrays of the size of public features' statistics, for one seed


class CachedMap:
    """A public map, the state in which its making left the generator, and what it reaches as it was made."""

    def __init__(self, features: Transform, generator: torch.Generator) -> None:
        self.features, self.state = features, generator.get_state()
        self._snapshot = Snapshot(features, generators=False)

    def has_changed(self) -> bool:
        """Say whether a fit has changed it, by noisy answers perhaps: another fit would find them."""
        return self._snapshot.change() is not None


class Maps:
    """The last few public maps. Each fit gets what it would make on its own, to the last bit."""

    def __init__(self) -> None:
        self._made: OrderedDict[Hashable, CachedMap] = OrderedDict()

    def of(
        self, learner: ProbeLearner, task: Task, public: PublicData, generator: torch.Generator, data: str = ""
    ) -> Transform:
        """Return `learner.features`, made once for all fits with equal public `data` and generator; leave that as made.

        So cells that differ in budget, steps, learning rate, clip ... alone make PILLAR's projection once.
        """
        drawn = generator.get_state().numpy().tobytes()
        key = (learner.map_key, data, str(task.device), public.y is None, drawn)
        made = self._made.pop(key, None)
        if made is None or made.has_changed():
            made = CachedMap(learner.features(task, public, generator), generator)
        self._made[key] = made
        while len(self._made) > KEPT:
            self._made.popitem(last=False)
        generator.set_state(made.state)
        return made.features
