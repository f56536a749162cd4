"""Public maps of features, made once and shared by all fits that do not change them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

import torch

from dpbench.api import PublicData, Task
from dpbench.learning.linear import Transform
from dpbench.learning.probes import ProbeLearner
from dpbench.privacy.purity.reach import Snapshot

MOST_KEPT = 16  # maps: each a few arrays of the size of public features' statistics, for one seed


class CachedMap:
    """A public map, the generator's state after making it, and a snapshot of everything that the map reaches."""

    def __init__(self, features: Transform, generator: torch.Generator) -> None:
        self.features, self.state = features, generator.get_state()
        self._snapshot = Snapshot(features, generators=False)

    def has_changed(self) -> bool:
        """Return whether a fit has changed the map, perhaps by noisy answers, which another fit would find."""
        return self._snapshot.find_change() is not None


class MapCache:
    """The most recent public maps. Each fit gets the map that it would make on its own, to the last bit."""

    def __init__(self) -> None:
        self._made: OrderedDict[Hashable, CachedMap] = OrderedDict()

    def of(
        self, learner: ProbeLearner, task: Task, public: PublicData, generator: torch.Generator, data: str = ""
    ) -> Transform:
        """Return `learner.features`, made once for all fits with equal public `data` and generator.

        The generator is left in the state in which making the map leaves it.

        So cells that differ only in budget, steps, learning rate, clip ... make PILLAR's projection once.
        """
        drawn = generator.get_state().numpy().tobytes()
        key = (learner.map_key, data, str(task.device), public.y is None, drawn)
        made = self._made.pop(key, None)
        if made is None or made.has_changed():
            made = CachedMap(learner.features(task, public, generator), generator)
        self._made[key] = made
        while len(self._made) > MOST_KEPT:
            self._made.popitem(last=False)
        generator.set_state(made.state)
        return made.features
