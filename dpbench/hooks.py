"""The three hooks that a plugin can implement.

A plugin is a module with any of these functions, named in the entry-point group `dpbench`.

>>> import dpbench
>>> @dpbench.hookimpl
... def dpbench_learners():
...     return [MyLearner]
"""

from __future__ import annotations

from collections.abc import Sequence

import pluggy

from dpbench.api import Dataset, Extractor, Learner

hookspec = pluggy.HookspecMarker("dpbench")
hookimpl = pluggy.HookimplMarker("dpbench")


@hookspec
def dpbench_datasets() -> Sequence[type[Dataset]]:
    """Return the dataset classes that this plugin provides."""
    raise NotImplementedError


@hookspec
def dpbench_extractors() -> Sequence[type[Extractor]]:
    """Return the feature extractor classes that this plugin provides."""
    raise NotImplementedError


@hookspec
def dpbench_learners() -> Sequence[type[Learner]]:
    """Return the learner classes that this plugin provides."""
    raise NotImplementedError
