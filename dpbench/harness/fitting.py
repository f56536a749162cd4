"""The way of every fit and of every prediction: nothing that a learner leaves behind reaches another fit.

A fit that finds noisy answers of an earlier one has more budget than is stated for it: those of another seed, of
another run of a private search, or of another epsilon in the same process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from torch import Tensor

from dpbench.api import Learner, Predict, Task
from dpbench.errors import NotPure
from dpbench.harness.imports import import_named
from dpbench.harness.scoring import predict_all
from dpbench.privacy.purity.guard import Guard
from dpbench.privacy.purity.reach import Reach
from dpbench.support.guard import guarded

T = TypeVar("T")
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
        self._reach = Reach((learner, type(learner)), thorough=True)
        self._before = self._reach.read()

    def found(self) -> str | None:
        """Name the first thing that has changed, or what an earlier fit of this class has left in this process."""
        cls = type(self._learner)
        left: str | None = self._reach.change(self._before, self._reach.read()) or getattr(cls, _LEFT, None)
        if left is not None:
            setattr(cls, _LEFT, left)
        return left


def fitted(learner: Learner, who: str, fit: Callable[[Learner], T], guard: Guard) -> T:
    """Have `fit` fit a learner of its own, made like `learner`; conclude what `guard` judged of its questions.

    Raises:
        NotPure: a fit of this class has left something behind; no later one in this process is believed.
        DpbenchError: the learner fails, or a question was refused.
    """
    with _forgetting(learner):
        done = guarded(who, fit, dataclasses.replace(learner))  # type: ignore[type-var]
        guard.conclude()
    return done


def predicted(learner: Learner, who: str, predict: Predict, x: Tensor, task: Task) -> np.ndarray:
    """Return (n, classes) scores; what a predictor was fitted by, it must not tell a later fit either.

    Raises:
        NotPure: it leaves something behind.
        ComponentFailed: it fails, or its scores do not fit.
    """
    with _forgetting(learner):
        return guarded(who, predict_all, predict, x, task)


@contextmanager
def _forgetting(learner: Learner) -> Iterator[None]:
    leftovers = Leftovers(learner)
    try:
        yield
    except BaseException as error:  # noted whatever ended the fit; what ended it is told too
        left = leftovers.found()
        if left is None or not isinstance(error, Exception):
            raise
        raise NotPure(f"{_refusal(learner, left)} It failed as well: {error}") from error
    if (left := leftovers.found()) is not None:
        raise NotPure(_refusal(learner, left))


def _refusal(learner: Learner, left: str) -> str:
    return (
        f"Learner {learner.name!r} leaves something behind: its fit changed {left}. Another fit in this process would "
        "find it, and have more budget than is stated. Keep what a fit learns in the fit, and draw from the generator "
        "that it is given."
    )
