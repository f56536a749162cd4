"""One fit and its scores: where the private rows of a run meet its learner, and the test split its predictor."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType
from typing import Any

import torch

from dpbench.api import Curator, Learner, Predict
from dpbench.errors import NotPure
from dpbench.harness import scoring
from dpbench.harness.prepare import Prepared, of_seed
from dpbench.harness.roles import own_copy
from dpbench.harness.tuning import private
from dpbench.learning.probes import stackable
from dpbench.privacy.binding import bind
from dpbench.privacy.purity.reach import Reach
from dpbench.privacy.randomness import Randomness
from dpbench.records.result import SeedResult
from dpbench.support.guard import guarded


@dataclasses.dataclass(frozen=True)
class Fitted:
    """What one fit gave: post-processing of noisy answers and public data, both."""

    predict: Predict
    result: SeedResult


def fit(prepared: Prepared, seed: int) -> SeedResult:
    """Return the scores of one fit; see `fitted`."""
    return fitted(prepared, seed).result


def fitted(prepared: Prepared, seed: int) -> Fitted:
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
        scores = guarded(who, scoring.predict_all, predict, prepared.test.x, prepared.roles.task)
        return Fitted(predict, SeedResult(seed=seed, **about, **scoring.score(scores, prepared.test.y)))


def _single(prepared: Prepared, seed: int) -> tuple[Predict, dict[str, Any]]:
    """Fit once, through a fresh curator."""
    roles, privacy = prepared.roles, prepared.privacy
    randomness = Randomness.of(privacy.rng, seed, prepared.identity)
    curator = bind(roles.private, roles.task, privacy.releases, privacy.sigma, randomness)
    with forgetting(prepared.parts.learner) as learner:
        who = prepared.parts.who("learner", "fit")
        predict = guarded(who, learned, prepared, learner, curator.handle(), randomness.initialisation)
        curator.guard.conclude()
    return predict, {"spent": dict(curator.ledger.spent)}


@contextmanager
def forgetting(learner: Learner) -> Iterator[Learner]:
    """Yield a learner of its own to a fit, and refuse a fit that leaves something behind for the next one.

    A fit that finds noisy answers of an earlier one has more budget than is stated for it: those of another seed, or of
    another epsilon in the same process. What the learner's code reaches is compared, as what a row function reaches is
    (`privacy.purity`). The state of global generators may differ.

    Raises:
        NotPure: a global, a class or an object that `fit` reaches has changed.
    """
    fresh = dataclasses.replace(learner)  # type: ignore[type-var]
    code = [one for base in type(learner).__mro__ for one in vars(base).values() if isinstance(one, FunctionType)]
    reach = Reach(code, thorough=True, generators=False)
    before = reach.read()
    yield fresh
    changed = reach.change(before, reach.read())
    if changed is not None:
        raise NotPure(
            f"Learner {learner.name!r} leaves something behind: its fit changed {changed}. Another fit in this process "
            "would find it, and have more budget than is stated. Keep what a fit learns in the fit."
        )


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
