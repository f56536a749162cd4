"""Fit one seed on the private split and score the predictor on the test split."""

from __future__ import annotations

from dataclasses import dataclass

from dpbench.api import Predict
from dpbench.harness.fitting import FinishedFit, fit_once, predict_isolated
from dpbench.harness.prepare import PreparedRun, prepare_seed
from dpbench.harness.tuning import private
from dpbench.harness.tuning import space as spaces
from dpbench.records.result import SeedResult
from dpbench.support.threads import limit_threads


@dataclass(frozen=True)
class SeedFit:
    """The predictor and the scores of one fit. Both are post-processing of noisy answers and public data."""

    predict: Predict
    result: SeedResult


def fit_and_score_seed(prepared: PreparedRun, seed: int) -> SeedResult:
    """Fit one seed and return its scores; see `fit_seed`."""
    return fit_seed(prepared, seed).result


def fit_seed(prepared: PreparedRun, seed: int) -> SeedFit:
    """Fit on the private split as planned, then score the predictor on the test split, which the fit never reads.

    Guarantee: the fit has the epsilon that `prepared.privacy` states (see `privacy.binding`, and
    `privacy.core.accounting.private_search` if each seed runs a private search). It covers one seed: seeds are separate
    runs of the mechanism, so the epsilon of publishing several follows by composition.

    Raises:
        DpbenchError: the learner fails, asks for something that it did not plan, or returns malformed scores.
    """
    with prepared.loaded.phases("load"):
        prepared = prepare_seed(prepared, seed)
    with prepared.loaded.phases("fit"), limit_threads(prepared.loaded.threads):
        if prepared.privacy.repeats:
            fitted, setting = _run_seed_search(prepared, seed)
        else:
            fitted, setting = fit_once(prepared.make_fit_input(seed)), None
    with prepared.loaded.phases("score"), limit_threads(prepared.loaded.threads):
        scores = predict_isolated(fitted, prepared.test.x)
        scorer, spent = prepared.test.scorer, dict(fitted.spent)
        found, groups = scorer.score(scores, prepared.learner.logits), scorer.count_groups(scores)
        about = SeedResult(seed=seed, group_correct=groups, spent=spent, setting=setting, **found.model_dump())
        return SeedFit(fitted.predict, about)


def _run_seed_search(prepared: PreparedRun, seed: int) -> tuple[FinishedFit, spaces.Setting]:
    """Run the private search of a seed; return the fit with the best score on public labels, and its setting."""
    loaded, search = prepared.loaded, prepared.loaded.resolved.search
    if search is None:
        raise ValueError("Expected a search in the run, because its guarantee covers one; got none.")
    won = private.run_private_search(
        prepared.learner, loaded.who, prepared.roles, loaded.budget, search, prepared.privacy, seed,
        prepared.identity,
    )  # fmt: skip
    return won.fitted, won.setting
