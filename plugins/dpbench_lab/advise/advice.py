"""Advice on a folder of images: each learner's expected score at each epsilon, from public images alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from dpbench.api import Budget, Learner, PublicData
from dpbench.errors import SpecError
from dpbench.harness.delta import compute_default_delta
from dpbench.harness.roles import ExamplesByRole
from dpbench.harness.tuning.trials import TrialRunner
from dpbench.privacy.core.plan import check_budget
from dpbench.privacy.core.rows import PrivacyUnits, PrivateRows
from dpbench.records.protocol import Component
from dpbench.records.search import ResolvedSearch, Search, Trial
from dpbench.registry import Registry
from dpbench.registry.components import build, resolve_search
from dpbench.support import progress
from dpbench_lab.advise.folder import PublicFolderData
from dpbench_lab.advise.forecast import (
    LEARNERS,
    Forecast,
    Forecaster,
    ForecastInput,
    read_board_records,
)

GUIDE = "class-means"  # whose rehearsals the boards have, cheap and without a learning rate
PUBLIC_LEARNER = "public-only"
EPSILON_RANGE = (0.03, 8.0)  # the boards' epsilons
FEWEST_REHEARSED = 144  # the fewest public images that a board rehearses on: those of the digits
STEPS = 11  # epsilons that are tried for a wished accuracy
UNIT_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # times the private units here: sizes that are tried for it


@dataclass(frozen=True)
class AdviceAtEpsilon:
    """The expected accuracies at one epsilon, and the learner to choose."""

    epsilon: float
    rehearsal: float | None
    forecasts: dict[str, Forecast]  # by learner
    pick: str


@dataclass(frozen=True)
class AccuracyTarget:
    """The smallest epsilon, and the fewest private units, at which an accuracy is expected."""

    accuracy: float
    expected: float | None  # None: at no epsilon that the boards have
    safe: float | None  # where the whole interval reaches it
    units: int | None  # at the largest epsilon that was asked for; None: more than were tried


@dataclass(frozen=True)
class LearnerAdvice:
    """The expected accuracy of private learners on a dataset, and of training on its public labels alone."""

    private: int  # units
    unit: str
    public: int  # images
    classes: tuple[str, ...]
    dimensions: int  # effective ones of the public features: the participation ratio of their spectrum
    delta: float
    labels_read: bool
    alone: float | None  # accuracy of `public-only`, cross-validated
    at: tuple[AdviceAtEpsilon, ...]
    wish: AccuracyTarget | None


def advise(
    part: PublicFolderData,
    epsilons: Sequence[float],
    delta: float,
    plugins: Registry,
    *,
    labels: bool = True,
    wished: float | None = None,
) -> LearnerAdvice:
    """Return advice based on public images and, if `labels`, on their labels.

    With `wished`, also find the smallest epsilon and the fewest private units at which this accuracy is expected.

    Covered: advice depends only on public images, their labels, the classes and the number of private images.
    Not covered: a test set that differs from the public images.

    Raises:
        SpecError: a delta that is too large, or too few labelled public images to rehearse on.
    """
    for epsilon in epsilons:
        check_budget(Budget(epsilon, delta), part.task)
    forecaster = Forecaster(read_board_records(), "rehearsal" if labels else "numbers")
    expect = partial(_advise_at_epsilon, part, delta, plugins, forecaster)
    at = tuple(expect(epsilon) for epsilon in epsilons)
    alone = (
        _make_trial_runner(part, Budget(EPSILON_RANGE[0], delta), plugins, PUBLIC_LEARNER)
        .score_current_settings()
        .accuracy
        if labels
        else None
    )
    wish = None
    if wished is not None:
        fewest = _find_min_private_units(wished, part, max(epsilons), delta, plugins, forecaster)
        wish = _make_accuracy_target(wished, [expect(epsilon) for epsilon in _list_candidate_epsilons()], fewest)
    dimensions = _count_effective_dimensions(part.x)
    return LearnerAdvice(part.private, part.unit, len(part.y), part.classes, dimensions, delta, labels, alone, at, wish)


def _advise_at_epsilon(
    part: PublicFolderData, delta: float, plugins: Registry, forecaster: Forecaster, epsilon: float
) -> AdviceAtEpsilon:
    rehearsal = None
    if forecaster.basis == "rehearsal":
        with progress.show_status(f"Rehearsing at ε = {epsilon:g}"):
            trials = _rehearse_on_public_labels(part, _make_trial_runner(part, Budget(epsilon, delta), plugins, GUIDE))
        rehearsal = max(trial.accuracy for trial in trials if trial.accuracy is not None)
    asked = ForecastInput(part.private, len(part.classes), epsilon, rehearsal)
    found = {learner: forecaster.predict(asked, learner) for learner in LEARNERS}
    return AdviceAtEpsilon(epsilon, rehearsal, found, forecaster.pick(asked))


def _rehearse_on_public_labels(part: PublicFolderData, runner: TrialRunner) -> Sequence[Trial]:
    try:
        return runner.choose_setting().trials
    except SpecError as error:
        raise SpecError(
            f"{len(part.y):,} public images are too few to rehearse on: no setting of {GUIDE} can be cross-validated "
            "on them. Raise --public-fraction, or add images."
        ) from error


def _list_candidate_epsilons() -> Iterator[float]:
    yield from (float(f"{epsilon:.2g}") for epsilon in np.geomspace(*EPSILON_RANGE, STEPS))


def _find_min_private_units(
    accuracy: float, part: PublicFolderData, epsilon: float, delta: float, plugins: Registry, forecaster: Forecaster
) -> int | None:
    """Return the fewest private units at which an accuracy is expected; None if the largest size is too small."""
    for factor in UNIT_FACTORS:
        size = round(part.private * factor)
        if size >= 1:
            larger = dataclasses.replace(part, private=size)
            advice = _advise_at_epsilon(larger, min(delta, compute_default_delta(size)), plugins, forecaster, epsilon)
            if advice.forecasts[advice.pick].mean >= accuracy:
                return size
    return None


def _make_accuracy_target(
    accuracy: float, advice_by_epsilon: Sequence[AdviceAtEpsilon], min_units: int | None
) -> AccuracyTarget:
    expected = (epsilon.epsilon for epsilon in advice_by_epsilon if epsilon.forecasts[epsilon.pick].mean >= accuracy)
    safe = (epsilon.epsilon for epsilon in advice_by_epsilon if epsilon.forecasts[epsilon.pick].low >= accuracy)
    return AccuracyTarget(accuracy, next(expected, None), next(safe, None), min_units)


def _make_trial_runner(part: PublicFolderData, budget: Budget, plugins: Registry, name: str) -> TrialRunner:
    """Return a trial runner that tries a learner on public labels, as `dpbench tune` does.

    Of the private data, it knows only the number of rows.
    """
    learner: Learner = build(plugins, "learner", Component(name=name))
    who = plugins.find("learner", name).describe_call
    search: ResolvedSearch = resolve_search(Search.model_validate({}), learner, {})
    return TrialRunner(learner, who, _make_examples_by_role(part), budget, "pld", search, f"advice {name}")


def _make_examples_by_role(part: PublicFolderData) -> ExamplesByRole:
    nothing = torch.zeros(part.private, dtype=torch.int64)
    units = None if part.units is None else PrivacyUnits(np.arange(part.private))
    rows = PrivateRows(torch.empty(0, *part.x.shape[1:]), nothing, nothing, units)
    return ExamplesByRole(part.task, rows, PublicData(part.x, part.y), part.units)


def _count_effective_dimensions(x: torch.Tensor) -> int:
    rows = x.flatten(1).double()
    values = torch.linalg.svdvals(rows - rows.mean(0)).square()
    return max(1, round(float(values.sum() ** 2 / values.square().sum().clamp(min=1e-30))))


def check_target_accuracy(accuracy: float | None) -> None:
    """Check that an accuracy, if given, is between 0 and 1.

    Raises:
        SpecError: it is not.
    """
    if accuracy is not None and not 0 < accuracy < 1:
        raise SpecError(f"Expected --accuracy {accuracy:g} to be between 0 and 1, like 0.9.")
