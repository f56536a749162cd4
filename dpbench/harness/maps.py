"""Cache public feature maps, and share each map among all fits that do not change it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

import torch

from dpbench.api import PublicData, Task
from dpbench.learning.linear import Transform
from dpbench.learning.probes import ProbeLearner
from dpbench.privacy.purity.reach import ReachSnapshot

MAX_CACHED_MAPS = 16  # maps: each a few arrays of the size of public features' statistics, for one seed


class CachedPublicMap:
    """A public map, the state of the generator after making it, and a snapshot of everything that the map reaches."""

    def __init__(self, features: Transform, generator: torch.Generator) -> None:
        self.features, self.state = features, generator.get_state()
        self._snapshot = ReachSnapshot(features, generators=False)

    def has_changed(self) -> bool:
        """Return whether a fit changed the map. A changed map could pass noisy answers on to the next fit."""
        return self._snapshot.find_change() is not None


class PublicMapCache:
    """A cache of the latest public maps, which returns exactly the map that a fit would compute itself."""

    def __init__(self) -> None:
        self._made: OrderedDict[Hashable, CachedPublicMap] = OrderedDict()

    def find_or_make_map(
        self, learner: ProbeLearner, task: Task, public: PublicData, generator: torch.Generator, data: str = ""
    ) -> Transform:
        """Return the map `learner.features`, cached for all fits with equal public data and generator state.

        Runs that differ only in budget, steps, learning rate or clip therefore compute PILLAR's projection once. The
        generator ends in the same state as after computing the map.

        Args:
            learner: makes the map.
            task: the task that the map is made for.
            public: the public data that the map is made from.
            generator: the random generator of the fit.
            data: a key of the public data; empty if the cache is used for one public split only.
        """
        drawn = generator.get_state().numpy().tobytes()
        key = (learner.map_key, data, str(task.device), public.y is None, drawn)
        made = self._made.pop(key, None)
        if made is None or made.has_changed():
            made = CachedPublicMap(learner.features(task, public, generator), generator)
        self._made[key] = made
        while len(self._made) > MAX_CACHED_MAPS:
            self._made.popitem(last=False)
        generator.set_state(made.state)
        return made.features
