"""The way of every fit and of every prediction: nothing that a learner leaves behind reaches another fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from torch import Tensor

from dpbench.api import Learner, Predict, Task
from dpbench.harness.leftovers import refuse_leftovers
from dpbench.harness.scoring import predict_all
from dpbench.privacy.core.guarding import RowGuard
from dpbench.support.plugin_calls import call_plugin

T = TypeVar("T")


def fit_isolated(learner: Learner, who: str, fit: Callable[[Learner], T], guard: RowGuard) -> T:
    """Have `fit` fit a learner of its own, made like `learner`; conclude what `guard` judged of its questions.

    Raises:
        NotPure: a fit of this class has left something behind; no later one in this process is believed.
        DpbenchError: the learner fails, or a question was refused.
    """
    with refuse_leftovers(learner):
        done = call_plugin(who, fit, dataclasses.replace(learner))  # type: ignore[type-var]
        guard.conclude()
    return done


def predict_isolated(learner: Learner, who: str, predict: Predict, x: Tensor, task: Task) -> np.ndarray:
    """Return (n, classes) scores; what a predictor was fitted by, it must not tell a later fit either.

    Raises:
        NotPure: it leaves something behind.
        ComponentFailed: it fails, or its scores do not fit.
    """
    with refuse_leftovers(learner):
        return call_plugin(who, predict_all, predict, x, task)
