"""Fingerprint a learner: fit it on a fixed task with a result's settings, and record its choices for open settings.

The learner is fitted at epsilon 2, where the noise is about as large as the signal, and at infinity, without noise.
Sigma is calibrated to four digits, so that an accountant's last digits change nothing.

Covered: the computations of a fit and its predictor at these sizes, and the choices for open settings.
Not covered: code that only another shape of data reaches, such as a learner's branch for two classes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from dpbench.api import Budget, Learner, Planned, Task
from dpbench.errors import DpbenchError
from dpbench.harness.fingerprints.core import IDENTITY
from dpbench.harness.fingerprints.tasks import FixedTask, list_fixed_tasks, make_activation_task
from dpbench.harness.fitting import FitInput, fit_once, predict_isolated
from dpbench.harness.plans import ask_learner_for_plan, settle_learner
from dpbench.harness.roles import select_declared_public_data
from dpbench.privacy.core.accounting.calibration import calibrate
from dpbench.privacy.core.randomness import Randomness
from dpbench.records.fingerprints import ComponentBehaviour, FitFingerprint
from dpbench.registry import Registry

FIT_EPSILONS = (2.0, math.inf)
DELTA = 1e-5
MAX_KEPT_SCORES = 6  # test examples whose scores are kept; of all of them the labels are
SEED = 0  # what noise is derived from, with `IDENTITY`
SIGMA_DIGITS = 4  # of sigma
OPEN_SETTING_TASKS: Mapping[str, tuple[tuple[int, ...], int, int, int]] = {
    "600 features": ((600,), 10, 1_500, 600),
    "1280 features": ((1280,), 2, 40_000, 4_444),
    "64 features": ((64,), 43, 300, 33),
}
"""Tasks for which open settings are chosen: shape, classes, private and public examples. Nothing is fitted on them."""


def fingerprint_learner(learner: Learner, plugins: Registry) -> ComponentBehaviour:
    """Fit a learner without open settings at each epsilon, on the first fixed task that it can plan for.

    If the learner refuses an epsilon, the message is kept. A learner that refuses both epsilons on every task is marked
    as not covered.
    """
    refusals: dict[str, dict[str, str]] = {}
    for fixed in list_fixed_tasks(learner, plugins):
        fits = {f"{epsilon:g}": _fingerprint_fit_or_error(learner, fixed, epsilon) for epsilon in FIT_EPSILONS}
        if any(isinstance(fit, FitFingerprint) for fit in fits.values()):
            return ComponentBehaviour(task=fixed.name, fits=fits)
        refusals[fixed.name] = {epsilon: str(fit) for epsilon, fit in fits.items()}
    name, said = next(iter(refusals.items()))
    return ComponentBehaviour(task="", fits={}, not_covered=f"{name}: {next(iter(said.values()))}")


def choose_auto_settings(learner: Learner, plugins: Registry) -> dict[str, Any]:
    """Return the values that the learner chooses for its open settings, by task and epsilon. Nothing is fitted.

    The value is `refused` if the learner refuses the task or the epsilon.
    """
    asked = {
        field.name
        for field in dataclasses.fields(learner)  # type: ignore[arg-type]
        if getattr(learner, field.name) is None
    }
    device, tail = torch.device("cpu"), make_activation_task().task.tail
    tasks = {
        name: Task(shape, classes, size, device, public)
        for name, (shape, classes, size, public) in OPEN_SETTING_TASKS.items()
    } | {"activations": dataclasses.replace(make_activation_task().task, tail=tail)}
    found: dict[str, Any] = {}
    for name, task in tasks.items():
        for epsilon in (0.05, *FIT_EPSILONS):
            try:
                settled = settle_learner(learner, partial(_describe_call, learner), task, Budget(epsilon, DELTA))
                said: Any = {field: getattr(settled, field) for field in sorted(asked)}
            except DpbenchError:
                said = "refused"
            found[f"{name}, {epsilon:g}"] = said
    return found


def _fingerprint_fit_or_error(learner: Learner, fixed: FixedTask, epsilon: float) -> FitFingerprint | str:
    try:
        return fit_on_fixed_task(learner, fixed, epsilon)
    except DpbenchError as error:
        return str(error)


def fit_on_fixed_task(learner: Learner, fixed: FixedTask, epsilon: float) -> FitFingerprint:
    """Fit a learner on a fixed task through a curator, like any other fit, and return its scores on the test examples.

    Raises:
        DpbenchError: the learner cannot plan for the task, fails, or asks an unplanned question.
    """
    budget = Budget(epsilon, DELTA)
    who = partial(_describe_call, learner)
    settled = settle_learner(learner, who, fixed.task, budget)
    plan = ask_learner_for_plan(settled, who, fixed.task, budget)
    public, randomness = select_declared_public_data(fixed.public, settled), Randomness.research(SEED, IDENTITY)
    fitted = fit_once(
        FitInput(settled, who, fixed.private, fixed.task, public, plan, _calibrate_sigma(plan, budget), randomness)
    )
    return FitFingerprint.from_scores(predict_isolated(fitted, fixed.test), MAX_KEPT_SCORES)


def _describe_call(learner: Learner, call: str) -> str:
    return f"{call} of learner {learner.name!r}"


def _calibrate_sigma(plan: tuple[Planned, ...], budget: Budget) -> float:
    return float(f"{calibrate(plan, budget, 'rdp'):.{SIGMA_DIGITS}g}")  # rdp: the quickest
