"""Detect state that a fit leaves behind in this process for a later fit to read.

A fit that reads noisy answers of an earlier fit spends more budget than is stated. The earlier fit may belong to
another seed, another run of a private search, or a run with another epsilon in the same process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from dpbench.api import Learner
from dpbench.errors import NotPure
from dpbench.harness.own_modules import LearnerModules, import_learner_modules
from dpbench.privacy.purity.reach import ModuleReach, ReachedObject, ReachSnapshot
from dpbench.records.provenance import HARNESS

_LEFTOVER_ATTRIBUTE = "__left_behind__"
"""Name of the attribute that records what a fit left in this process.

It is set on the learner's class and, as a mapping from names of distributions, on `Learner`.
"""


class LeftoverStateSearch:
    """A snapshot of all that a learner's code can reach, to detect what a fit has left behind.

    Covered: all globals of the learner's own modules (`own_modules`, imported beforehand), including classes,
    functions, descriptors and caches, whether or not code names them. Also everything that the learner reaches,
    compared as for row functions (`privacy.purity.guard` lists what is covered): attributes of the learner and of its
    class, globals that its code names (also those of other modules), defaults, caches, containers, tensors and arrays,
    and the global generators of torch, numpy and `random`. A fit that is the first to import one of the learner's own
    modules is refused. Not covered: modules of libraries and of other distributions that a fit is the first to import.
    Such a module is ignored wherever the import put it (a global that code names, or an attribute of its package), so
    a later fit may read what a fit wrote into it.
    """

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._own = import_learner_modules(type(learner))
        self._snapshot = ReachSnapshot((learner, type(learner)), left_out=self._own.is_excluded_import)
        self._globals = _walk_learner_modules(self._own)
        self._before = self._globals.read()
        if not self._before.has_same_referents(self._globals.first):  # of an earlier fit, and no longer complete
            _walk_learner_modules.cache_clear()
            self._globals = _walk_learner_modules(self._own)
            self._before = self._globals.first

    def find(self) -> str | None:
        """Return the first change since the snapshot, or else what an earlier fit left in this process, or None.

        The earlier fit may be of this class or of another learner of its distribution, because learners of one
        distribution can read each other's modules. What is found is recorded, so that later fits find it too.
        """
        cls, all_left = type(self._learner), vars(Learner).get(_LEFTOVER_ATTRIBUTE, {})
        brought_by = self._own.distribution_names - {HARNESS}
        earlier = (vars(cls).get(_LEFTOVER_ATTRIBUTE), *(all_left.get(name) for name in sorted(brought_by)))
        left = self._find_changed_state() or next(filter(None, earlier), None)
        if left is not None:
            setattr(cls, _LEFTOVER_ATTRIBUTE, left)
            setattr(Learner, _LEFTOVER_ATTRIBUTE, {**all_left, **dict.fromkeys(brought_by, left)})
        return left

    def list_arrays(self) -> Iterator[ReachedObject]:
        """Yield the arrays and tensors that the learner and its own modules reach."""
        yield from self._snapshot.reach.list_arrays()
        yield from self._globals.list_arrays()

    def _find_changed_state(self) -> str | None:
        if name := self._own.find_new_import():
            return (
                f"module `{name}` (imported for the first time, so that it was not compared; import it at the top of "
                "the learner's module)"
            )
        return self._snapshot.find_change() or self._globals.find_change(self._before, self._globals.read())


@lru_cache(1)
def _walk_learner_modules(modules: LearnerModules) -> ModuleReach:
    """Walk the learner's own modules once for many fits, because re-reading a stored walk takes a fifth of the time."""
    return ModuleReach(modules.whole, modules.is_excluded_import)


@contextmanager
def refuse_leftovers(learner: Learner) -> Iterator[None]:
    """Raise an error if the learner leaves state behind in this block.

    Raises:
        NotPure: the learner left state behind; the message names it, and any other error of the block.
    """
    leftovers = LeftoverStateSearch(learner)
    try:
        yield
    except BaseException as error:  # noted whatever ended the fit; what ended it is told too
        left = leftovers.find()
        if left is None or not isinstance(error, Exception):
            raise
        raise NotPure(f"{_describe_leftover_state(learner, left)} It failed as well: {error}") from error
    if (left := leftovers.find()) is not None:
        raise NotPure(_describe_leftover_state(learner, left))


def _describe_leftover_state(learner: Learner, changed: str) -> str:
    return (
        f"Learner {learner.name!r} leaves state behind: its fit changed {changed}. The next fit in this process would "
        "find it and spend more than the stated budget. Keep what a fit learns in the fit, and draw from the generator "
        "that it is given."
    )
