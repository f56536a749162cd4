"""Try settings and score them; settings that can train together do so."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpbench.api import Budget, Curator, Learner, Planned, Predict, Task
from dpbench.errors import DpbenchError, SpecError
from dpbench.harness.fitting import (
    FinishedFit,
    FitInput,
    copy_public_data,
    fit_once,
    fit_several_settings,
    predict_isolated,
)
from dpbench.harness.plans import Describer, ask_learner_for_plan, settle_learner
from dpbench.harness.roles import ExamplesByRole
from dpbench.harness.scoring import compute_confusion_matrix
from dpbench.harness.tuning import space as spaces
from dpbench.harness.tuning.folds import Fold, make_folds
from dpbench.harness.tuning.stack import StackedCurators
from dpbench.harness.tuning.together import MappedRowsCache, fit_probes_together, is_stackable
from dpbench.privacy.core.accounting import calibration
from dpbench.privacy.core.accounting.accountant import AccountantName
from dpbench.privacy.core.ledger_curator import LedgerCurator, Question
from dpbench.privacy.core.map import MapQuestion
from dpbench.privacy.core.plan import release_sigmas
from dpbench.privacy.core.randomness import Randomness
from dpbench.records.metrics import compute_metric_from_confusion
from dpbench.records.search import ResolvedSearch, Selection, Trial, choose_least_clean_rule
from dpbench.registry.components import find_selection_rule
from dpbench.support import progress

MAX_TRAINED_TOGETHER = 16  # settings trained at once: more would not fit a processor's cache


@dataclass(frozen=True)
class TrialPlan:
    """A setting with its plan and sigma, or with the error that it caused."""

    index: int
    setting: spaces.Setting
    learner: Learner | None
    plan: tuple[Planned, ...] = ()
    sigma: float = 0.0
    error: str | None = None


@dataclass(frozen=True)
class TrialRunner:
    """Runs the trials of a search, with the task and budget of the real run and with separate random streams.

    Args:
        learner: the learner with the settings that are not searched.
        who: describes a call of the learner, for messages about its failures.
        roles: private rows and public split; the test split is not touched.
        budget: the budget of the real run.
        accountant: the accountant that calibrates every setting.
        search: the settings to try, and the folds to try them on.
        identity: the text from which noise is derived. The noise is research noise even if the run has secure noise: a
            public search reads nothing private, and a private search outside ε has no guarantee to lose.
    """

    learner: Learner
    who: Describer
    roles: ExamplesByRole
    budget: Budget
    accountant: AccountantName
    search: ResolvedSearch
    identity: str

    @property
    def task(self) -> Task:
        """The task of the real run."""
        return self.roles.task

    def choose_setting(self) -> Selection:
        """Try the settings of the search and return the record of the best setting; ties go to the first.

        Raises:
            SpecError: no public labels, or none of the settings could be scored.
        """
        search = self.search
        wanted, draw = spaces.list_settings(search.space, search.tries, search.seed)
        trials = self.run_trials(wanted)
        best = max((trial for trial in trials if trial.value is not None), key=_get_trial_score, default=None)
        if best is None:
            raise SpecError(
                f"Every setting of learner {self.learner.name!r} failed ({len(trials)} tried). The first error: "
                f"{trials[0].error}"
            )
        rule = choose_least_clean_rule(search.rule, find_selection_rule(self.learner, search.space))
        return Selection(
            rule=rule, space=search.space, possible=spaces.count_settings(search.space), tried=len(trials),
            draw=draw, seed=search.seed, private_touched=search.rule != "public-validation",
            public_labels=len(self.roles.public.x), chosen=best.setting, trials=tuple(trials),
        )  # fmt: skip

    def score_current_settings(self) -> Trial:
        """Score the learner's current settings on the search's validation data, to compare with the chosen settings."""
        setting = {name: getattr(self.learner, name) for name in self.search.space}
        return self.run_trials([setting])[0]

    def run_trials(self, settings: Sequence[spaces.Setting]) -> list[Trial]:
        """Return the score of every setting over all folds, or the error if it has no score."""
        folds = make_folds(self.roles, self.learner, self.search)
        tried = [self._plan_trial(index, setting) for index, setting in enumerate(settings)]
        groups = list(_group_stackable_trials(tried))
        found: dict[int, np.ndarray] = {}  # confusion matrices (classes, classes) over all folds
        errors = {trial.index: trial.error for trial in tried if trial.error}
        with progress.show_progress_bar("Tuning", len(groups) * len(folds)) as advance:
            for number, fold in enumerate(folds):
                mapped = MappedRowsCache()
                for group in groups:
                    for trial, outcome in zip(group, self._evaluate_group(group, fold, number, mapped), strict=True):
                        if isinstance(outcome, str):
                            errors[trial.index] = outcome
                        else:
                            found[trial.index] = outcome + found[trial.index] if trial.index in found else outcome
                    advance(1)
        return [
            Trial(setting=trial.setting, accuracy=None, error=errors[trial.index])
            if trial.index in errors
            else self._make_trial(trial.setting, found[trial.index])
            for trial in tried
        ]

    def _make_trial(self, setting: spaces.Setting, confusion: np.ndarray) -> Trial:
        counts, metric = confusion.tolist(), self.task.metric
        own = None if metric == "accuracy" else compute_metric_from_confusion(metric, counts)
        return Trial(setting=setting, accuracy=compute_metric_from_confusion("accuracy", counts), score=own)

    def _plan_trial(self, index: int, setting: spaces.Setting) -> TrialPlan:
        try:
            tuned = settle_learner(spaces.apply_setting(self.learner, setting), self.who, self.task, self.budget)
            plan = ask_learner_for_plan(tuned, self.who, self.task, self.budget)
            return TrialPlan(index, setting, tuned, plan, calibration.calibrate(plan, self.budget, self.accountant))
        except DpbenchError as error:
            return TrialPlan(index, setting, None, error=str(error))

    def _evaluate_group(
        self, group: Sequence[TrialPlan], fold: Fold, fold_index: int, mapped: MappedRowsCache
    ) -> list[np.ndarray | str]:
        """Return the confusion matrix of each setting in a group, or the error if it has none."""
        inputs = [self._make_fit_input(plan, fold, fold_index) for plan in group]
        probes = [dataclasses.replace(plan.learner) for plan in group if is_stackable(plan.learner)]
        try:
            if len(probes) == len(group):
                public, start = copy_public_data(fold.public), inputs[0].randomness.initialisation

                def fit_group(curators: Sequence[LedgerCurator]) -> Sequence[Predict]:
                    return fit_probes_together(
                        probes, StackedCurators(tuple(curators), fold.weight), public, start, mapped
                    )

                fits = fit_several_settings(inputs, fit_group)
            else:
                fits = [self._fit(plan, given, fold) for plan, given in zip(group, inputs, strict=True)]
        except DpbenchError as error:
            if len(group) == 1:
                return [str(error)]
            return [self._evaluate_group([plan], fold, fold_index, mapped)[0] for plan in group]  # which of them is it?
        return [self._compute_confusion_matrix(fitted, fold) for fitted in fits]

    def _make_fit_input(self, plan: TrialPlan, fold: Fold, fold_index: int) -> FitInput:
        """Return the inputs of a trial's fit. The setting must not have been refused.

        Sigma is divided by the fold's weight; answers that are multiplied by the weight have the noise of the real run.
        """
        assert plan.learner is not None
        randomness = Randomness.tuning(self.search.seed, self.identity, fold_index, plan.index)
        sigma = plan.sigma / fold.weight
        return FitInput(
            plan.learner, self.who, fold.rows, self.task, fold.public, plan.plan, sigma, randomness,
            files=self.roles.files,
        )  # fmt: skip

    def _fit(self, plan: TrialPlan, fit_input: FitInput, fold: Fold) -> FinishedFit:
        if fold.weight == 1:
            return fit_once(fit_input)
        return fit_once(
            fit_input,
            wrap=lambda curator: make_weighted_curator(curator, release_sigmas(plan.plan, plan.sigma), fold.weight),
        )

    def _compute_confusion_matrix(self, fitted: FinishedFit, fold: Fold) -> np.ndarray | str:
        try:
            return compute_confusion_matrix(predict_isolated(fitted, fold.x), fold.y)
        except DpbenchError as error:
            return str(error)


def _get_trial_score(trial: Trial) -> float:
    return trial.value if trial.value is not None else -1.0


def _group_stackable_trials(plans: Sequence[TrialPlan]) -> Iterator[list[TrialPlan]]:
    """Yield groups of settings that can train together, at most 16 in each."""
    groups: dict[Hashable, list[TrialPlan]] = defaultdict(list)
    for plan in plans:
        if plan.learner is not None:
            shared = plan.learner.shared if is_stackable(plan.learner) else plan.index
            groups[shared].append(plan)
    for group in groups.values():
        for start in range(0, len(group), MAX_TRAINED_TOGETHER):
            yield group[start : start + MAX_TRAINED_TOGETHER]


def make_weighted_curator(curator: LedgerCurator, sigma: Mapping[str, float], weight: float) -> Curator:
    """Wrap a curator so that each row counts `weight` times and sums have the size and noise of the real run.

    The learner sees its real task, sigma and plan; no private row is read. A choice uses the unscaled losses of the
    stand-ins. Their totals are `weight` times smaller, but eps0 is `weight` times larger, because sigma is divided by
    `weight`.

    Args:
        curator: the curator of the stand-ins, bound with the real sigma divided by `weight`. Its answers times
            `weight` have the noise of the real run.
        sigma: the real noise multipliers.
        weight: number of private examples that each row represents.
    """

    def answer_with_weight(question: Question) -> Any:
        found = curator.answer(question.adapt_to_public_stand_ins(weight))
        if isinstance(question, MapQuestion):
            return make_weighted_curator(found, sigma, weight)
        return question.scale_answer(found, weight)

    return Curator(curator.task, sigma, answer_with_weight)
