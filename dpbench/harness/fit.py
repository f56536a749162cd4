"""One fit and its scores: where the private rows of a run meet its learner, and the test split its predictor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dpbench.api import Curator, Learner, Predict
from dpbench.data.groups import count_groups
from dpbench.harness import scoring
from dpbench.harness.fitting import fit_isolated, predict_isolated
from dpbench.harness.prepare import PreparedRun, prepare_seed
from dpbench.harness.roles import copy_public
from dpbench.harness.tuning import private
from dpbench.harness.tuning.together import stackable
from dpbench.privacy.binding import bind
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.curator import handle_of
from dpbench.records.result import SeedResult
from dpbench.support.threads import computing


@dataclass(frozen=True)
class SeedFit:
    """What one fit gave: post-processing of noisy answers and public data, both."""

    predict: Predict
    result: SeedResult


def fit(prepared: PreparedRun, seed: int) -> SeedResult:
    """Return the scores of one fit; see `fit_seed`."""
    return fit_seed(prepared, seed).result


def fit_seed(prepared: PreparedRun, seed: int) -> SeedFit:
    """Fit on the private split as planned, then score on the test split, which the predictor meets only here.

    Covered: the fit has the epsilon that `prepared.privacy` states (see `privacy.binding`, and
    `privacy.mechanisms.private_selection` where a seed stands for a search); seeds are separate runs of one mechanism,
    so publishing several of them composes.

    Raises:
        DpbenchError: the learner fails, asks for what it did not plan, or its scores do not fit.
    """
    with prepared.phases("load"):
        prepared = prepare_seed(prepared, seed)
    with prepared.phases("fit"), computing(prepared.threads), prepared.roles.files.refused():
        fit_as_planned = _fit_best if prepared.privacy.repeats else _fit_once
        predict, about = fit_as_planned(prepared, seed)
    with prepared.phases("score"), computing(prepared.threads):
        who = prepared.who("predict")
        scores = predict_isolated(prepared.parts.learner, who, predict, prepared.test.x, prepared.roles.task)
        found = scoring.score(scores, prepared.test.y, prepared.parts.learner.logits)
        groups = _correct_by_group(prepared, scores)
        return SeedFit(predict, SeedResult(seed=seed, group_correct=groups, **about, **found))


def _correct_by_group(prepared: PreparedRun, scores: np.ndarray) -> dict[str, dict[str, str]] | None:
    """Return the correct predictions by group and class; `scores` (n, classes) are of the test split."""
    test = prepared.test
    if not test.groups:
        return None
    return count_groups(test.groups, test.y, prepared.roles.task.classes, scores.argmax(1) == test.y)


def _fit_once(prepared: PreparedRun, seed: int) -> tuple[Predict, dict[str, Any]]:
    """Fit once, through a fresh curator."""
    roles, privacy = prepared.roles, prepared.privacy
    randomness = Randomness.of(privacy.rng, seed, prepared.identity)
    curator = bind(roles.private, roles.task, privacy.releases, privacy.sigma, randomness)
    fit_ = lambda learner: fit_learner(prepared, learner, handle_of(curator), randomness.initialisation)
    predict = fit_isolated(prepared.parts.learner, prepared.who("fit"), fit_, curator.guard)
    return predict, {"spent": dict(curator.ledger.spent)}


def fit_learner(prepared: PreparedRun, learner: Learner, curator: Curator, generator: torch.Generator) -> Predict:
    """Have the learner fit; a probe with the map that an earlier run may have made of the same public data."""
    public = copy_public(prepared.public)
    if not stackable(learner):
        return learner.fit(curator, public, generator)
    features = prepared.shared.features(learner, prepared.spec.data_key, curator.task, public, generator)
    return learner.fit_on(features, curator, public, generator)


def _fit_best(prepared: PreparedRun, seed: int) -> tuple[Predict, dict[str, Any]]:
    """Fit a random number of times and keep the best by public labels."""
    if prepared.search is None:
        raise ValueError("Expected a search in the run, because its guarantee covers one; got none.")
    won = private.best_of(
        prepared.parts.learner, prepared.who, prepared.roles, prepared.source.budget, prepared.search, prepared.privacy,
        seed, prepared.identity,
    )  # fmt: skip
    return won.predict, {"spent": dict(won.spent), "setting": won.setting}
