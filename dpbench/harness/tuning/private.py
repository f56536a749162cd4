"""Private selection: fit a random number of times and keep the best fit; epsilon covers the whole search."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dpbench.api import Budget, Learner, Task
from dpbench.errors import DpbenchError, SpecError
from dpbench.harness.fitting import FinishedFit, FitInput, fit_once, predict_isolated
from dpbench.harness.plans import Describer, settle_learner
from dpbench.harness.roles import ExamplesByRole
from dpbench.harness.scoring import compute_confusion_matrix
from dpbench.harness.tuning import space as spaces
from dpbench.harness.tuning.folds import Fold, make_folds
from dpbench.privacy.core.accounting.accountant import AccountantName
from dpbench.privacy.core.accounting.private_search import RunCountDistribution, draw_run_count
from dpbench.privacy.core.randomness import Randomness, make_selection_generator
from dpbench.records.metrics import compute_metric_from_confusion
from dpbench.records.search import ResolvedSearch, Selection
from dpbench.records.stated_plan import PrivacyGuarantee
from dpbench.support.fields import list_filled_in_fields

MAX_SETTINGS = 100_000  # of a private search, whose settings are drawn


@dataclass(frozen=True)
class PrivateSearchWinner:
    """The best fit of a seed's private search, and its setting."""

    fitted: FinishedFit
    setting: spaces.Setting


def get_run_count_distribution(search: ResolvedSearch | None) -> RunCountDistribution | None:
    """Return the distribution of the number of runs in a private search; None for other searches."""
    return RunCountDistribution(search.repeats, search.shape) if search and search.rule == "private-accounted" else None


def make_private_selection_record(learner: Learner, roles: ExamplesByRole, search: ResolvedSearch) -> Selection:
    """Return the record of a private search, which does not reveal the number of runs."""
    make_folds(roles, learner, search)  # refuses where there are too few labels
    return Selection(
        rule=search.rule, space=search.space, possible=spaces.count_settings(search.space), tried=None, draw="random",
        seed=search.seed, private_touched=True, public_labels=len(roles.public.x), chosen=None,
    )  # fmt: skip


def list_candidates(learner: Learner, accountant_name: AccountantName, search: ResolvedSearch) -> list[Learner]:
    """Return a learner for each setting that the search may draw.

    Raises:
        SpecError: the accountant or the space does not fit private selection.
    """
    if accountant_name != "rdp":
        raise SpecError(
            f"Expected accountant='rdp' with selection private-accounted, got {accountant_name!r}: only Renyi "
            "divergences can account for a private search. Add --accountant rdp."
        )
    wanted, draw_ = spaces.list_settings(search.space, MAX_SETTINGS, search.seed)
    if draw_ != "grid":
        raise SpecError(f"Expected at most {MAX_SETTINGS:,} settings in a private search. Name a smaller --space.")
    return [spaces.apply_setting(learner, setting) for setting in wanted]


def run_private_search(
    learner: Learner, describe_call: Describer, roles: ExamplesByRole, budget: Budget, search: ResolvedSearch,
    privacy: PrivacyGuarantee, seed: int, identity: str,
) -> PrivateSearchWinner:  # fmt: skip
    """Fit a random number of times with random settings, and return the fit with the best score on public labels.

    Guarantee: the winner has the epsilon that `privacy.core.accounting.private_search` states for the search.

    A failed run counts with the worst score. If all runs fail, the predictor gives every class score 0. The number of
    runs is not kept.

    Raises:
        DpbenchError: a run failed with an error that is `final`.
    """
    wanted, _ = spaces.list_settings(search.space, MAX_SETTINGS, search.seed)
    fold = make_folds(roles, learner, search)[0]
    chance = make_selection_generator(privacy.rng, seed, identity)
    best: tuple[float, PrivateSearchWinner] | None = None
    for run in range(1, draw_run_count(RunCountDistribution(search.repeats, search.shape), chance) + 1):
        setting = wanted[chance.randrange(len(wanted))]
        randomness = Randomness.for_fit(privacy.rng, seed, identity, run)
        try:
            tuned = settle_learner(spaces.apply_setting(learner, setting), describe_call, roles.task, budget)
            fitted = fit_once(
                FitInput(
                    tuned, describe_call, fold.rows, roles.task, fold.public, privacy.releases, privacy.sigma,
                    randomness,
                    files=roles.files,
                )
            )  # fmt: skip
            score = _score_fit(fitted, fold)
        except DpbenchError as error:
            if error.final:  # another run may use what it left behind, and what failed on rows is not noisy
                raise
            continue
        if best is None or score > best[0]:
            best = score, PrivateSearchWinner(fitted, setting | list_filled_in_fields(learner, tuned))
    return best[1] if best else _make_winner_without_fit(learner, describe_call, roles.task, privacy)


def _score_fit(fitted: FinishedFit, fold: Fold) -> float:
    scores = predict_isolated(fitted, fold.x)
    return compute_metric_from_confusion(fitted.task.metric, compute_confusion_matrix(scores, fold.y).tolist())


def _make_winner_without_fit(
    learner: Learner, describe_call: Describer, task: Task, privacy: PrivacyGuarantee
) -> PrivateSearchWinner:
    spent = dict.fromkeys((release.name for release in privacy.plan), 0)
    return PrivateSearchWinner(
        FinishedFit(learner, describe_call, task, lambda x: torch.zeros(len(x), task.classes), spent), {}
    )
