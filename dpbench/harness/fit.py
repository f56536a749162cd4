"""One fit and its scores: where the private rows of a run meet its learner, and the test split its predictor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from dpbench.api import Curator, Learner, Predict
from dpbench.harness import scoring
from dpbench.harness.fitting import fitted, predicted
from dpbench.harness.prepare import Prepared, of_seed
from dpbench.harness.roles import own_copy
from dpbench.harness.tuning import private
from dpbench.harness.tuning.together import stackable
from dpbench.privacy.core.binding import bind
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.curator import handle_of
from dpbench.records.result import SeedResult


@dataclass(frozen=True)
class Fitted:
    """What one fit gave: post-processing of noisy answers and public data, both."""

    predict: Predict
    result: SeedResult


def fit(prepared: Prepared, seed: int) -> SeedResult:
    """Return the scores of one fit; see `fit_once`."""
    return fit_once(prepared, seed).result


def fit_once(prepared: Prepared, seed: int) -> Fitted:
    """Fit on the private split as planned, then score on the test split, which the predictor meets only here.

    Covered: the fit has the epsilon that `prepared.privacy` states (see `privacy.binding`, and
    `privacy.accounting.private_selection` where a seed stands for a search); seeds are separate runs of one mechanism,
    so publishing several of them composes.

    Raises:
        DpbenchError: the learner fails, asks for what it did not plan, or its scores do not fit.
    """
    with prepared.phases("load"):
        prepared = of_seed(prepared, seed)
    with prepared.phases("fit"):
        predict, about = (_best if prepared.privacy.repeats else _single)(prepared, seed)
    with prepared.phases("score"):
        who = prepared.parts.who("learner", "predict")
        scores = predicted(prepared.parts.learner, who, predict, prepared.test.x, prepared.roles.task)
        return Fitted(predict, SeedResult(seed=seed, **about, **scoring.score(scores, prepared.test.y)))


def _single(prepared: Prepared, seed: int) -> tuple[Predict, dict[str, Any]]:
    """Fit once, through a fresh curator."""
    roles, privacy = prepared.roles, prepared.privacy
    randomness = Randomness.of(privacy.rng, seed, prepared.identity)
    curator = bind(roles.private, roles.task, privacy.releases, privacy.sigma, randomness)
    fit_ = lambda learner: learned(prepared, learner, handle_of(curator), randomness.initialisation)
    predict = fitted(prepared.parts.learner, prepared.parts.who("learner", "fit"), fit_, curator.guard)
    return predict, {"spent": dict(curator.ledger.spent)}


def learned(prepared: Prepared, learner: Learner, curator: Curator, generator: torch.Generator) -> Predict:
    """Have the learner fit; a probe with the map that an earlier run may have made of the same public data."""
    public = own_copy(prepared.public)
    if not stackable(learner):
        return learner.fit(curator, public, generator)
    features = prepared.shared.features(learner, prepared.spec, curator.task, public, generator)
    return learner.fit_on(features, curator, public, generator)


def _best(prepared: Prepared, seed: int) -> tuple[Predict, dict[str, Any]]:
    """Fit a random number of times and keep the best by public labels."""
    learner, who = prepared.parts.learner, partial(prepared.parts.who, "learner")
    won = private.best_of(learner, who, prepared.roles, prepared.privacy, prepared.spec, seed, prepared.identity)
    return won.predict, {"spent": dict(won.spent), "setting": won.setting}
