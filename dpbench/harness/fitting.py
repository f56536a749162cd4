"""Isolate fits: every fit and every prediction of a learner goes through this module.

No fit reads what another fit left behind. A refused question ends the fit with an error, even if the learner catches
the refusal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Curator, Learner, Planned, Predict, PublicData, Task
from dpbench.errors import DpbenchError
from dpbench.harness.leftovers import refuse_leftovers
from dpbench.harness.plans import Describer
from dpbench.harness.private_files import IN_A_PREDICTION, NO_FILES, PrivateDatasetFiles
from dpbench.harness.scoring import predict_all
from dpbench.harness.tuning.together import is_stackable
from dpbench.learning.linear import Transform
from dpbench.learning.probes import ProbeLearner
from dpbench.privacy.binding import bind
from dpbench.privacy.core.guarding import RowGuard
from dpbench.privacy.core.ledger_curator import LedgerCurator
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.core.witness import NO_WITNESS, AuditWitness
from dpbench.privacy.curator import make_learner_curator
from dpbench.support.plugin_calls import call_plugin

MakeMap = Callable[[ProbeLearner, Task, PublicData, torch.Generator], Transform]
"""Returns a probe's public map, as `ProbeLearner.features` does."""


@dataclass(frozen=True)
class FitInput:
    """The inputs of one fit.

    Args:
        learner: the learner with its settings; the fit gets its own copy.
        who: describes a call of the learner, for messages about its failures.
        rows: the private split, or public stand-ins for it.
        task: the public facts about the rows.
        public: the public data that the learner may see; the fit gets its own copy.
        plan: every release of the fit.
        sigma: the base noise multiplier that was calibrated for the plan.
        randomness: the random streams of this fit; no other fit uses the same.
        memo: returns a probe's public map, cached by an earlier fit or new; if None, the learner computes its own.
        files: the private dataset's files, which neither the fit nor its predictor may open.
    """

    learner: Learner
    who: Describer
    rows: PrivateRows
    task: Task
    public: PublicData
    plan: Sequence[Planned]
    sigma: float
    randomness: Randomness
    memo: MakeMap | None = None
    files: PrivateDatasetFiles = NO_FILES


@dataclass(frozen=True)
class FinishedFit:
    """A finished fit, with its predictor and the steps that it spent. Both are post-processing of noisy answers."""

    learner: Learner
    who: Describer
    task: Task
    predict: Predict
    spent: Mapping[str, int]  # steps of each release
    guard: RowGuard | None = None  # of the questions that the learner asked; None where nothing was fitted
    files: PrivateDatasetFiles = NO_FILES


def fit_once(
    given: FitInput,
    *,
    wrap: Callable[[LedgerCurator], Curator] = make_learner_curator,
    witness: AuditWitness = NO_WITNESS,
) -> FinishedFit:
    """Bind the learner to its rows and fit it in isolation.

    Only this and `fit_several_settings` give a learner access to rows.

    Guarantee: together, all answers that the learner gets have the epsilon that an accountant states for this plan and
    sigma; see `privacy.binding`.

    Args:
        given: the learner, its rows, and the plan and noise that bind them.
        wrap: turns the curator into the handle that the learner gets. Searches on public data, audits and
            explanations insert a curator of their own.
        witness: observes the sums before noise, for an audit.

    Raises:
        NotPure: a fit of this class has left something behind; no later fit in this process can be trusted.
        PrivacyError: the learner opened a file of the private dataset.
        DpbenchError: the learner failed, or a question was refused or failed. The error of a question is `final`.
    """
    (fitted,) = _fit_isolated([given], lambda own, curators: [_fit_learner(own, given, wrap(curators[0]))], witness)
    return fitted


def fit_several_settings(
    fit_inputs: Sequence[FitInput], fit: Callable[[Sequence[LedgerCurator]], Sequence[Predict]]
) -> list[FinishedFit]:
    """Fit several settings of a learner in one call of `fit`, which only searches do; see `tuning.stack`.

    Raises:
        DpbenchError: as for `fit_once`; then none of the settings has a fit.
    """
    return _fit_isolated(fit_inputs, lambda _, curators: fit(curators), NO_WITNESS)


def predict_isolated(fitted: FinishedFit, x: Tensor) -> np.ndarray:
    """Return scores (n, classes), and refuse a predictor that leaves state behind for a later fit.

    Raises:
        NotPure: the predictor leaves something behind.
        PrivacyError: it opened a file of the private dataset, which also contains the test labels.
        DpbenchError: it fails, its scores are malformed, or it asked a question that was refused (a `final` error).
    """
    guards = [fitted.guard] if fitted.guard else []
    with fitted.files.refuse_access(IN_A_PREDICTION), refuse_leftovers(fitted.learner), _raise_guard_refusals(guards):
        return call_plugin(fitted.who("predict"), predict_all, fitted.predict, x, fitted.task)


def _fit_isolated(
    fit_inputs: Sequence[FitInput],
    fit: Callable[[Learner, Sequence[LedgerCurator]], Sequence[Predict]],
    witness: AuditWitness,
) -> list[FinishedFit]:
    """Bind each fit to its rows, and call `fit` with a copy of the first fit's learner and all curators."""
    curators = [bind(each.rows, each.task, each.plan, each.sigma, each.randomness, witness) for each in fit_inputs]
    guards, first = [curator.guard for curator in curators], fit_inputs[0]
    with first.files.refuse_access(), refuse_leftovers(first.learner), _raise_guard_refusals(guards):
        own: Any = dataclasses.replace(first.learner)  # type: ignore[type-var]
        predictors = call_plugin(first.who("fit"), fit, own, curators)
    return [
        FinishedFit(each.learner, each.who, each.task, predict, dict(curator.ledger.spent), curator.guard, each.files)
        for each, predict, curator in zip(fit_inputs, predictors, curators, strict=True)
    ]


@contextmanager
def _raise_guard_refusals(guards: Sequence[RowGuard]) -> Iterator[None]:
    """Raise the guards' refusals at the end of the block, even if the learner caught them or failed later."""
    try:
        yield
    except DpbenchError:
        for guard in guards:
            guard.raise_earlier_refusal()
        raise
    for guard in guards:
        guard.raise_earlier_refusal()


def _fit_learner(learner: Learner, fit_input: FitInput, curator: Curator) -> Predict:
    """Fit the learner. A standard probe gets its public map from the memo, if there is one."""
    public, generator = copy_public_data(fit_input.public), fit_input.randomness.initialisation
    if fit_input.memo is None or not is_stackable(learner):
        return learner.fit(curator, public, generator)
    return learner.fit_on(fit_input.memo(learner, curator.task, public, generator), curator, public, generator)


def copy_public_data(public: PublicData) -> PublicData:
    """Copy public data for one fit, so that a learner that writes into it changes no other fit."""
    y, mirrored = (None if part is None else part.clone() for part in (public.y, public.mirrored))
    return PublicData(public.x.clone(), y, mirrored)
