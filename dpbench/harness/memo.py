"""Share data and maps between runs, so that a sweep spends little time besides fitting.

Cache keys are public values, and each run gets what it would compute on its own, to the last bit.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import torch

from dpbench.api import Budget, PublicData, Task
from dpbench.errors import SpecError
from dpbench.harness import guarantee
from dpbench.harness.maps import PublicMapCache
from dpbench.harness.roles import ExamplesByRole, extract_examples_by_role
from dpbench.harness.source import DataSource
from dpbench.harness.split_images import SplitImages, assign_images
from dpbench.learning.linear import Transform
from dpbench.learning.probes import ProbeLearner
from dpbench.privacy.core.plan import check_budget
from dpbench.privacy.core.rows import ChunkBuffers
from dpbench.records import provenance
from dpbench.support import threads

MAX_CACHED_EXAMPLES = 4  # sets of roles: each holds a public split and the labels; features are memory-mapped


class SharedRunCache:
    """A cache that runs share: the latest examples by role, all guarantees computed so far, and the latest public maps.

    A single run has a fresh memo; a worker of a sweep keeps one memo for all its cells. Sharing changes no result:
    roles (private or public) depend only on the data, and a guarantee only on plan, budget, accountant, kind of
    randomness and repeats.
    """

    def __init__(self, device: torch.device, threads: int | None = None) -> None:
        """Share work between runs on one device. `threads` applies to every run; None chooses it by data size.

        Raises:
            SpecError: fewer than one thread.
        """
        if threads is not None and threads < 1:
            raise SpecError(f"Expected threads={threads} to be at least 1.")
        self.device, self.threads = device, threads
        self._examples: OrderedDict[Hashable, tuple[ExamplesByRole, SplitImages]] = OrderedDict()
        self._maps = PublicMapCache()
        self.state = functools.cache(guarantee.compute_guarantee)
        self._process = functools.cache(provenance.collect_provenance)

    def get_thread_count(self, task: Task) -> int:
        """Return the number of threads that learners fit with on this task."""
        return self.threads or threads.choose_thread_count(task.size * math.prod(task.example_shape))

    def provenance(self, task: Task) -> dict[str, Any]:
        """Return the versions, commit and machine of this process, which are read once, and the threads of a fit."""
        return {**self._process(str(self.device)), "threads": self.get_thread_count(task)}

    def examples(self, source: DataSource, budget: Budget) -> tuple[ExamplesByRole, SplitImages]:
        """Return the examples of a source, with new scratch memory, because a failed fit may still hold the old memory.

        Raises:
            DpbenchError: as `assign_images` and `extract_examples_by_role` do.
        """
        key = source.key
        if key in self._examples:
            self._examples.move_to_end(key)
            roles, images = self._examples[key]
            # As dealing does, before copies are left out.
            check_budget(budget, dataclasses.replace(roles.task, size=images.private_count_with_copies))
        else:
            while len(self._examples) >= MAX_CACHED_EXAMPLES:
                self._examples.popitem(last=False)  # before the next is loaded: both might not fit
            images = assign_images(source, budget)
            roles = extract_examples_by_role(images)
            self._examples[key] = roles, images
        return dataclasses.replace(roles, private=dataclasses.replace(roles.private, scratch=ChunkBuffers())), images

    def features(
        self, data_key: str, learner: ProbeLearner, task: Task, public: PublicData, generator: torch.Generator
    ) -> Transform:
        """Return the map `learner.features`; fits with equal public data and generator share it while none changes it.

        Rows and samples are not shared. If runs were trained together, as a search trains its settings, they would
        share samples, and the result of a run would depend on the runs beside it.
        """
        return self._maps.find_or_make_map(learner, task, public, generator, data_key)
