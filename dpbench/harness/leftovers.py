"""What a fit leaves behind in this process, where a later one would find it.

A fit that finds noisy answers of an earlier one has more budget than is stated for it: those of another seed, of
another run of a private search, or of another epsilon in the same process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dpbench.api import Learner
from dpbench.errors import NotPure
from dpbench.harness.code_imports import import_named
from dpbench.privacy.purity.reach import Snapshot

_LEFT = "__left_behind__"  # on a learner's class: what a fit of it left in this process, where a later one finds it


class Leftovers:
    """What a learner and its code reach: whatever of it changes, a later fit would find.

    Compared as what a row function reaches is (`privacy.purity.guard`, which says what is covered): attributes of the
    learner and of its class, globals that its code names, defaults, caches, containers, tensors and arrays, and the
    global generators of torch, numpy and `random`.
    """

    def __init__(self, learner: Learner) -> None:
        import_named(type(learner))
        self._learner = learner
        self._snapshot = Snapshot((learner, type(learner)))

    def find(self) -> str | None:
        """Name the first thing that has changed, or what an earlier fit of this class has left in this process."""
        cls = type(self._learner)
        left: str | None = self._snapshot.change() or getattr(cls, _LEFT, None)
        if left is not None:
            setattr(cls, _LEFT, left)
        return left


@contextmanager
def refuse_leftovers(learner: Learner) -> Iterator[None]:
    """Refuse a block in which a learner leaves something behind.

    Raises:
        NotPure: says what has changed, and what else failed.
    """
    leftovers = Leftovers(learner)
    try:
        yield
    except BaseException as error:  # noted whatever ended the fit; what ended it is told too
        left = leftovers.find()
        if left is None or not isinstance(error, Exception):
            raise
        raise NotPure(f"{_refusal(learner, left)} It failed as well: {error}") from error
    if (left := leftovers.find()) is not None:
        raise NotPure(_refusal(learner, left))


def _refusal(learner: Learner, left: str) -> str:
    return (
        f"Learner {learner.name!r} leaves state behind: its fit changed {left}. The next fit in this process would "
        "find it and spend more than the stated budget. Keep what a fit learns in the fit, and draw from the generator "
        "that it is given."
    )
