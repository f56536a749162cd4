"""The way of every fit and of every prediction: nothing that a learner leaves behind reaches another fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from torch import Tensor

from dpbench.api import Learner, Predict, Task
from dpbench.harness.scoring import predict_all
from dpbench.privacy.purity.guard import Guard
from dpbench.privacy.purity.leftovers import forgetting
from dpbench.support.guard import guarded

T = TypeVar("T")


def fit_isolated(learner: Learner, who: str, fit: Callable[[Learner], T], guard: Guard) -> T:
    """Have `fit` fit a learner of its own, made like `learner`; conclude what `guard` judged of its questions.

    Raises:
        NotPure: a fit of this class has left something behind; no later one in this process is believed.
        DpbenchError: the learner fails, or a question was refused.
    """
    with forgetting(learner):
        done = guarded(who, fit, dataclasses.replace(learner))  # type: ignore[type-var]
        guard.conclude()
    return done


def predict_isolated(learner: Learner, who: str, predict: Predict, x: Tensor, task: Task) -> np.ndarray:
    """Return (n, classes) scores; what a predictor was fitted by, it must not tell a later fit either.

    Raises:
        NotPure: it leaves something behind.
        ComponentFailed: it fails, or its scores do not fit.
    """
    with forgetting(learner):
        return guarded(who, predict_all, predict, x, task)
