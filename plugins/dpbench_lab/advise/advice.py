"""Advice on a folder of images: what each learner is expected to score at each epsilon, from public images alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from dpbench.api import Budget, Learner, PublicData
from dpbench.errors import SpecError
from dpbench.harness.roles import Roles
from dpbench.harness.tuning.trials import Bench
from dpbench.privacy.core.plan import check_budget
from dpbench.privacy.core.rows import PrivateRows
from dpbench.records.protocol import Component
from dpbench.records.search import ResolvedSearch, Search
from dpbench.registry import Registry
from dpbench.registry.components import build, resolve_search
from dpbench.support import progress
from dpbench_lab.advise.folder import PublicPart
from dpbench_lab.advise.forecast import (
    LEARNERS,
    Forecast,
    Forecaster,
    Question,
    read_experience,
)

GUIDE = "class-means"  # whose rehearsals the boards have, cheap and without a learning rate
ALONE = "public-only"
KNOWN = (0.03, 8.0)  # the boards' epsilons
REHEARSED = 144  # the fewest public images that a board rehearses on: those of the digits
STEPS = 11  # epsilons that are tried for a wished accuracy


@dataclass(frozen=True)
class AtEpsilon:
    """What to expect at one epsilon."""

    epsilon: float
    rehearsal: float | None
    forecasts: dict[str, Forecast]  # by learner
    pick: str


@dataclass(frozen=True)
class Wish:
    """The smallest epsilon at which an accuracy is expected, and at which it is within reach of the whole interval."""

    accuracy: float
    expected: float | None  # None: at no epsilon that the boards have
    safe: float | None


@dataclass(frozen=True)
class Advice:
    """What to expect of private learners on some data, and of its public labels alone."""

    private: int
    public: int
    classes: tuple[str, ...]
    dimensions: int  # effective ones of the public features: the participation ratio of their spectrum
    delta: float
    labels_read: bool
    alone: float | None  # accuracy of `public-only`, cross-validated
    at: tuple[AtEpsilon, ...]
    wish: Wish | None


def advise(
    part: PublicPart,
    epsilons: Sequence[float],
    delta: float,
    plugins: Registry,
    *,
    labels: bool = True,
    wished: float | None = None,
) -> Advice:
    """Return advice from public images, and from their labels where those may be read.

    Covered: it is a function of public images, their labels, the classes and how many images are private.
    Not covered: a test set that differs from the public images.

    Raises:
        SpecError: a delta that is too large, or too few labelled public images to rehearse on.
    """
    for epsilon in epsilons:
        check_budget(Budget(epsilon, delta), part.task)
    forecaster = Forecaster(read_experience(), "rehearsal" if labels else "numbers")
    expect = partial(_expect, part, delta, plugins, forecaster)
    at = tuple(expect(epsilon) for epsilon in epsilons)
    alone = _bench(part, Budget(KNOWN[0], delta), plugins, ALONE).score_defaults().accuracy if labels else None
    wish = None if wished is None else _wish(wished, [expect(epsilon) for epsilon in _ladder()])
    return Advice(
        part.private, len(part.y), part.classes, _effective(part.x), delta, labels, alone, at, wish
    )  # fmt: skip


def _expect(part: PublicPart, delta: float, plugins: Registry, forecaster: Forecaster, epsilon: float) -> AtEpsilon:
    rehearsal = None
    if forecaster.basis == "rehearsal":
        with progress.status(f"Rehearsing at ε = {epsilon:g}"):
            trials = _bench(part, Budget(epsilon, delta), plugins, GUIDE).choose().trials
        rehearsal = max(trial.accuracy for trial in trials if trial.accuracy is not None)
    asked = Question(part.private, len(part.classes), epsilon, rehearsal)
    found = {learner: forecaster.predict(asked, learner) for learner in LEARNERS}
    return AtEpsilon(epsilon, rehearsal, found, forecaster.pick(asked))


def _ladder() -> Iterator[float]:
    yield from (float(f"{one:.2g}") for one in np.geomspace(*KNOWN, STEPS))


def _wish(accuracy: float, at: Sequence[AtEpsilon]) -> Wish:
    expected = (one.epsilon for one in at if one.forecasts[one.pick].mean >= accuracy)
    safe = (one.epsilon for one in at if one.forecasts[one.pick].low >= accuracy)
    return Wish(accuracy, next(expected, None), next(safe, None))


def _bench(part: PublicPart, budget: Budget, plugins: Registry, name: str) -> Bench:
    """Return where a learner is tried by public labels, as `dpbench tune` does; of private rows it has the count."""
    learner: Learner = build(plugins, "learner", Component(name=name))
    who = plugins.find("learner", name).who
    search: ResolvedSearch = resolve_search(Search.model_validate({}), learner, {})
    return Bench(learner, who, _roles(part), budget, "pld", search, f"advice {name}")


def _roles(part: PublicPart) -> Roles:
    rows = PrivateRows(
        torch.empty(0, *part.x.shape[1:]), torch.zeros(part.private, dtype=torch.int64),
        torch.zeros(part.private, dtype=torch.int64),
    )  # fmt: skip
    return Roles(part.task, rows, PublicData(part.x, part.y))


def _effective(x: torch.Tensor) -> int:
    rows = x.flatten(1).double()
    values = torch.linalg.svdvals(rows - rows.mean(0)).square()
    return max(1, round(float(values.sum() ** 2 / values.square().sum().clamp(min=1e-30))))


def check_wish(accuracy: float | None) -> None:
    """Refuse an accuracy that is none.

    Raises:
        SpecError: not between 0 and 1.
    """
    if accuracy is not None and not 0 < accuracy < 1:
        raise SpecError(f"Expected --accuracy {accuracy:g} to be between 0 and 1, like 0.9.")
