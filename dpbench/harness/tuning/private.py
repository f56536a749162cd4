"""Private selection: run a random number of times, keep the best, state epsilon of the whole search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from dpbench.api import Budget, Learner, Predict, Task
from dpbench.errors import DpbenchError, NotPure, SpecError
from dpbench.harness.fitting import fit_isolated, predict_isolated
from dpbench.harness.plans import Who, settle
from dpbench.harness.roles import Roles, copy_public
from dpbench.harness.scoring import count_confusion
from dpbench.harness.tuning import space as spaces
from dpbench.harness.tuning.folds import Fold, folds_of
from dpbench.privacy.binding import bind
from dpbench.privacy.core.accounting.accountant import AccountantName
from dpbench.privacy.core.ledger_curator import LedgerCurator
from dpbench.privacy.core.randomness import Randomness, selection_generator
from dpbench.privacy.curator import handle_of
from dpbench.privacy.mechanisms.private_selection import Repeats, draw
from dpbench.records.metrics import count_metric
from dpbench.records.search import ResolvedSearch, Selection
from dpbench.records.stated_plan import Privacy
from dpbench.support.fields import filled_fields

MOST_SETTINGS = 100_000  # of a private search, whose settings are drawn


@dataclass(frozen=True)
class Winner:
    """The best of the runs that stand behind one seed."""

    predict: Predict
    setting: spaces.Setting
    spent: Mapping[str, int]


def repeats_of(search: ResolvedSearch | None) -> Repeats | None:
    """Return how the number of runs behind a seed is drawn; None where a seed is one run."""
    return Repeats(search.repeats, search.shape) if search and search.rule == "private-accounted" else None


def selection_record(learner: Learner, roles: Roles, search: ResolvedSearch) -> Selection:
    """Return what may be put on record of a private search: nothing that tells how many runs there were."""
    folds_of(roles, learner, search)  # refuses where there are too few labels
    return Selection(
        rule=search.rule, space=search.space, possible=spaces.count_settings(search.space), tried=None, draw="random",
        seed=search.seed, private_touched=True, public_labels=len(roles.public.x), chosen=None,
    )  # fmt: skip


def candidates(learner: Learner, accountant: AccountantName, search: ResolvedSearch) -> list[Learner]:
    """Return the learner with every setting that a run of the search may draw.

    Raises:
        SpecError: the accountant or the space does not fit private selection.
    """
    if accountant != "rdp":
        raise SpecError(
            f"Expected accountant='rdp' with selection private-accounted, got {accountant!r}: only Renyi divergences "
            "can account for a private search. Add --accountant rdp."
        )
    wanted, draw_ = spaces.list_settings(search.space, MOST_SETTINGS, search.seed)
    if draw_ != "grid":
        raise SpecError(f"Expected at most {MOST_SETTINGS:,} settings in a private search. Name a smaller --space.")
    return [spaces.candidate(learner, setting) for setting in wanted]


def best_of(
    learner: Learner, who: Who, roles: Roles, budget: Budget, search: ResolvedSearch, privacy: Privacy, seed: int,
    identity: str,
) -> Winner:  # fmt: skip
    """Run a random number of times with random settings and return the best run by public labels.

    Covered: the winner has the epsilon that `privacy.mechanisms.private_selection` states for the search. A run that
    fails counts, with the worst score; where all do, the outcome is a predictor that knows nothing. How many runs there
    were is not kept.
    """
    wanted, _ = spaces.list_settings(search.space, MOST_SETTINGS, search.seed)
    fold = folds_of(roles, learner, search)[0]
    chance = selection_generator(privacy.rng, seed, identity)
    best: tuple[float, Winner] | None = None
    for run in range(1, draw(Repeats(search.repeats, search.shape), chance) + 1):
        setting = wanted[chance.randrange(len(wanted))]
        randomness = Randomness.of(privacy.rng, seed, identity, run)
        curator = bind(fold.rows, roles.task, privacy.releases, privacy.sigma, randomness)
        try:
            one = settle(spaces.candidate(learner, setting), who, roles.task, budget)
            score, winner = _one(
                one, setting | filled_fields(learner, one), who, fold, curator, randomness.initialisation
            )
        except NotPure:
            raise
        except DpbenchError:
            curator.guard.conclude()  # what it remembered another run may use, and what failed on rows is not noisy
            continue
        if best is None or score > best[0]:
            best = score, winner
    return best[1] if best else _nothing(roles.task, privacy)


def _one(
    learner: Learner, setting: spaces.Setting, who: Who, fold: Fold, curator: LedgerCurator, generator: torch.Generator
) -> tuple[float, Winner]:
    fit = lambda own: own.fit(handle_of(curator), copy_public(fold.public), generator)
    predict: Predict = fit_isolated(learner, who("fit"), fit, curator.guard)
    scores = predict_isolated(learner, who("predict"), predict, fold.x, curator.task)
    found = count_metric(curator.task.metric, count_confusion(scores, fold.y).tolist())
    return found, Winner(predict, setting, dict(curator.ledger.spent))


def _nothing(task: Task, privacy: Privacy) -> Winner:
    spent = dict.fromkeys((release.name for release in privacy.plan), 0)
    return Winner(lambda x: torch.zeros(len(x), task.classes), {}, spent)
